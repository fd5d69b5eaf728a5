// SPDX-License-Identifier: MIT
// Frames that are copied, by one thread and by several: content, odd sizes, many memories, flushes and stops meanwhile;
// the priority and the CPUs of those threads and the elements' others.
#include <gmock/gmock.h>
#include <gst/check/gstharness.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gpumap/slot_copier.hpp"
#include "gpumap/thread_schedule.hpp"
#include "link_sides.hpp"
#include "ring_helpers.hpp"
#include "thread_names.hpp"

namespace gpumap::gst::test {
namespace {

constexpr std::size_t frame_bytes_1080p = 3'110'400;

/// The data as a buffer of so many memories, which end at odd places.
Buffer in_memories(const Data& data, std::size_t memories) {
  Buffer buffer(gst_buffer_new());
  std::size_t at = 0;
  for (std::size_t i = 0; i < memories; ++i) {
    const std::size_t end = i + 1 == memories ? data.size() : (data.size() * (i + 1) / memories) | 1U;
    const std::size_t bytes = std::min(end, data.size()) - at;
    GstMemory* memory = gst_allocator_alloc(nullptr, bytes, nullptr);
    GstMapInfo map;
    if (gst_memory_map(memory, &map, GST_MAP_WRITE) != 0) {
      std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(at), bytes, reinterpret_cast<std::byte*>(map.data));
      gst_memory_unmap(memory, &map);
    }
    gst_buffer_append_memory(buffer.get(), memory);
    at += bytes;
  }
  return buffer;
}

/// A sink and a src of one channel, without elements around them.
class Passage {
 public:
  explicit Passage(const std::string& sink_options) {
    const std::string channel = new_channel();
    in_ = gst_harness_new_parse(("gpumapsink name=sink " + sink_options + " channel=" + channel).c_str());
    out_ = gst_harness_new_parse(("gpumapsrc channel=" + channel).c_str());
    gst_harness_play(out_);
    gst_harness_set_src_caps(in_, new_caps("application/octet-stream").release());
  }
  ~Passage() {
    gst_harness_teardown(out_);
    gst_harness_teardown(in_);
  }
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;
  [[nodiscard]] GstHarness* in() const { return in_; }
  [[nodiscard]] GstHarness* out() const { return out_; }
  [[nodiscard]] GstElement* sink() const { return in_->element; }

 private:
  GstHarness* in_ = nullptr;
  GstHarness* out_ = nullptr;
};

struct Copying {
  guint threads = 0;
  std::string kernel;
};
Copying copying_of(GstElement* sink) {
  // A harness wraps what it parses in a bin.
  Element element(GST_IS_BIN(sink) ? gst_bin_get_by_name(GST_BIN(sink), "sink") : GST_ELEMENT(gst_object_ref(sink)));
  GstStructure* stats = nullptr;
  g_object_get(element.get(), "stats", &stats, nullptr);
  Copying copying;
  EXPECT_TRUE(gst_structure_get_uint(stats, "copy-threads", &copying.threads));
  copying.kernel = gst_structure_get_string(stats, "copy-kernel");
  gst_structure_free(stats);
  return copying;
}

class CopyThreads : public testing::TestWithParam<int> {
 protected:
  static std::string option() { return "copy-threads=" + std::to_string(GetParam()); }
};

TEST_P(CopyThreads, OddSizesAndManyMemories) {
  const Passage passage(option());
  EXPECT_EQ(copying_of(passage.sink()).threads, 0U) << "nothing copied yet";
  std::uint64_t seed = 1;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65}, std::size_t{4097},
                                  std::size_t{300'001}, frame_bytes_1080p, std::size_t{6'000'001}, std::size_t{2}}) {
    for (const std::size_t memories : {1U, 2U, 7U}) {
      const Data data = random_data(bytes, seed++);
      ASSERT_EQ(gst_harness_push(passage.in(), in_memories(data, memories).release()), GST_FLOW_OK);
      const Buffer got(gst_harness_pull(passage.out()));
      ASSERT_NE(got, nullptr);
      ASSERT_TRUE(data_of(got.get()) == data) << bytes << " bytes in " << memories;
    }
  }
  const Copying copying = copying_of(passage.sink());
  EXPECT_GE(copying.threads, 1U);
  const auto kernels = store_kernel_names();
  EXPECT_NE(std::find(kernels.begin(), kernels.end(), copying.kernel), kernels.end()) << copying.kernel;
}

// What is in a slot was written for this frame: no thread of a copy that a flush overtook writes into a slot that is
// another frame's by then.
TEST_P(CopyThreads, FlushesMeanwhile) {
  const Passage passage(option() + " slots=2");
  constexpr std::size_t kinds = 4;
  std::vector<Data> frames;
  for (std::size_t i = 0; i < kinds; ++i) frames.push_back(random_data(600'000 + 1001 * i, i));
  std::atomic<bool> done{false};
  std::atomic<int> parked{0}, go{0}, good{0}, bad{0};
  std::thread upstream([&] {
    for (std::size_t turn = 0; !done; ++turn) {
      if (gst_harness_push(passage.in(), new_buffer(frames[turn % kinds]).release()) != GST_FLOW_FLUSHING) continue;
      const int ticket = ++parked;
      while (!done && go < ticket) g_usleep(200);
    }
  });
  std::thread downstream([&] {
    while (!done) {
      const Buffer got(gst_harness_try_pull(passage.out()));
      if (!got) {
        g_usleep(200);
      } else {
        ++(std::find(frames.begin(), frames.end(), data_of(got.get())) != frames.end() ? good : bad);
      }
    }
  });
  for (int round = 1; round <= 60; ++round) {
    g_usleep(static_cast<gulong>(round % 7) * 500);
    EXPECT_TRUE(gst_harness_push_event(passage.in(), gst_event_new_flush_start()));
    EXPECT_TRUE(eventually([&] { return parked == round; }));
    EXPECT_TRUE(gst_harness_push_event(passage.in(), gst_event_new_flush_stop(TRUE)));
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_TIME);
    EXPECT_TRUE(gst_harness_push_event(passage.in(), gst_event_new_segment(&segment)));
    go = round;
  }
  EXPECT_TRUE(eventually([&] { return good > 0; }));
  done = true;
  EXPECT_TRUE(gst_harness_push_event(passage.in(), gst_event_new_flush_start()));
  upstream.join();
  downstream.join();
  EXPECT_EQ(bad, 0);
}

TEST_P(CopyThreads, StopsMeanwhile) {
  Pipeline pipeline(on_new_channel("fakesrc sizetype=fixed sizemax=700001 filltype=pattern ! gpumapsink name=sink " +
                                   option() +
                                   " $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! fakesink"));
  for (int round = 0; round < 10; ++round) {
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    EXPECT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "copied-frames") > 3; }));
    EXPECT_GE(copying_of(pipeline.element("sink")).threads, 1U);
    EXPECT_LT(pipeline.stop(), 20s);
  }
}

INSTANTIATE_TEST_SUITE_P(Copy, CopyThreads, testing::Values(0, 1, 4));

TEST(CopyKernel, EnvironmentNamesIt) {
  for (const std::string_view kernel : store_kernel_names()) {
    setenv("GPUMAP_COPY", kernel.data(), 1);
    const Passage passage("");
    const Data data = random_data(5000, 1);
    EXPECT_EQ(gst_harness_push(passage.in(), new_buffer(data).release()), GST_FLOW_OK);
    const Buffer got(gst_harness_pull(passage.out()));
    EXPECT_TRUE(data_of(got.get()) == data) << kernel;
    EXPECT_EQ(copying_of(passage.sink()).kernel, kernel);
    unsetenv("GPUMAP_COPY");
  }
}

// GStreamer sizes a buffer by its memories, so none of them can pass the slot's end; if one ever did, the frame would
// be an error, not a frame with a hole.
TEST(SlotCopier, RefusesWhatPassesTheSlotsEnd) {
  const auto ring = gpumap::test::make_ring(2, 1000);
  const WriteLease lease = gpumap::test::must_acquire(*ring);
  SlotCopier copier;
  const Data data = random_data(1000, 1);
  copier.copy(lease, 0, data);
  try {
    copier.copy(lease, 1, data);
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "1000 bytes at offset 1 do not fit into a slot of 1000 bytes: make slots larger");
  }
  EXPECT_TRUE(std::equal(data.begin(), data.end(), lease.host()));
}

// ---- thread-priority and thread-cpus ----

using gpumap::test::thread_states;
using gpumap::test::ThreadState;

std::string own_cpu() {
  cpu_set_t cpus;
  EXPECT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  int last = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &cpus)) last = cpu;
  }
  return std::to_string(last);
}

struct ThreadProperties : LinkSides {
  /// As the threads of this process may have it.
  const std::string priority = refused_to_threads({.priority = 4}).empty() ? "4" : "0";
  const std::string cpu = own_cpu();
  const std::string options = "thread-cpus=" + cpu + " thread-priority=" + priority;

  [[nodiscard]] bool is_scheduled(const ThreadState& state) const {
    return state.cpus == cpu && state.policy == (priority == "0" ? SCHED_OTHER : SCHED_FIFO) &&
           std::to_string(state.priority) == priority;
  }
  /// There are threads of that name, and all have what the properties say. They set it themselves.
  [[nodiscard]] bool have(const std::string& name) const {
    return eventually([&] {
      const auto states = thread_states(name);
      return !states.empty() && std::ranges::all_of(states, [&](const ThreadState& one) { return is_scheduled(one); });
    });
  }
};

// GStreamer lends that thread from a pool, and takes it back for other elements.
TEST_F(ThreadProperties, OfTheStreamingThreadUntilItGoesBack) {
  Pipeline pipeline(
      on_new_channel("fakesrc name=in sizetype=fixed sizemax=1001 ! gpumapsink $CHANNEL gpumapsrc name=src $CHANNEL " +
                     options + " ! fakesink"));
  const auto before = thread_states();
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    EXPECT_TRUE(have("src:src"));
    for (const ThreadState& upstream : thread_states("in:src")) {
      EXPECT_EQ(upstream.policy, SCHED_OTHER);
      EXPECT_EQ(upstream.cpus, before.at(0).cpus);
    }
    pipeline.stop();
    for (const ThreadState& left : thread_states()) {
      EXPECT_NE(left.policy, SCHED_FIFO) << left.name;
      EXPECT_TRUE(left.cpus != cpu || before.at(0).cpus == cpu) << left.name;
    }
    EXPECT_EQ(pipeline.wait(0ms), "timeout");
    EXPECT_TRUE(pipeline.warnings().empty());
  }
}

TEST_F(ThreadProperties, OfThreadsThatCopy) {
  for (const char* line : {"gpumapsink $CHANNEL copy-threads=2 $OPTIONS gpumapsrc $CHANNEL ! fakesink",
                           "gpumapupload copy-threads=2 $OPTIONS ! fakesink"}) {
    std::string text = on_new_channel("fakesrc sizetype=fixed sizemax=3110400 ! " + std::string(line));
    text.replace(text.find("$OPTIONS"), 8, options);
    Pipeline pipeline(text);
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    EXPECT_TRUE(have("gpumap-copy")) << line;
  }
}

TEST_F(ThreadProperties, OfThreadsOfALink) {
  Pipeline producer(from_appsrc(options));
  start(producer);
  push_frame(producer, 1);
  Pipeline consumer(to_appsink(options));
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  push_frame(producer, 2);
  ASSERT_TRUE(pull(consumer.appsink()));
  for (const char* name : {"gpumap-outlet", "gpumap-server", "gpumap-inlet", "gpumap-connect", "src:src"}) {
    EXPECT_TRUE(have(name)) << name;
  }
}

/// Warnings of a pipeline that runs all the same, of the element `it`: code, text and a figure.
std::vector<std::pair<gint, std::string>> warnings_of_run(const std::string& line, const char* figure) {
  Pipeline pipeline(on_new_channel("fakesrc num-buffers=3 sizetype=fixed sizemax=1001 ! " + line));
  const Ptr<GstBus> bus(gst_element_get_bus(pipeline.get()));
  std::vector<std::pair<gint, std::string>> found;
  pipeline.set_state(GST_STATE_PLAYING);
  constexpr auto types = static_cast<GstMessageType>(GST_MESSAGE_WARNING | GST_MESSAGE_EOS | GST_MESSAGE_ERROR);
  for (bool ends = false; !ends;) {
    const Ptr<GstMessage> message(gst_bus_timed_pop_filtered(
        bus.get(), static_cast<GstClockTime>(std::chrono::nanoseconds(patience).count()), types));
    ends = !message || GST_MESSAGE_TYPE(message.get()) != GST_MESSAGE_WARNING;
    if (ends) {
      EXPECT_TRUE(message && GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_EOS) << line;
      continue;
    }
    GError* error = nullptr;
    gst_message_parse_warning(message.get(), &error, nullptr);
    const Ptr<GError> owned(error);
    EXPECT_STREQ(GST_MESSAGE_SRC_NAME(message.get()), "it");
    const GstStructure* details = nullptr;
    gst_message_parse_warning_details(message.get(), &details);
    EXPECT_TRUE(details != nullptr && gst_structure_has_field(details, figure) != 0) << error->message;
    found.emplace_back(error->code, error->message);
  }
  return found;
}

constexpr std::array elements_with_threads{"gpumapsink name=it $CHANNEL $OPTIONS gpumapsrc $CHANNEL ! fakesink",
                                           "gpumapsink $CHANNEL gpumapsrc name=it $CHANNEL $OPTIONS ! fakesink",
                                           "gpumapupload name=it $OPTIONS ! fakesink",
                                           "gpumapupload ! gpumapkernel name=it $OPTIONS ! fakesink"};

std::string with_options(std::string line, const std::string& options) {
  return line.replace(line.find("$OPTIONS"), 8, options);
}

TEST_F(ThreadProperties, WithoutARightToThemThePipelineRunsOn) {
  const gpumap::test::NoRealTime none;
  if (refused_to_threads({.priority = 1}).empty()) GTEST_SKIP() << "a capability that cannot be given up allows it";
  for (const char* line : elements_with_threads) {
    const auto told = warnings_of_run(with_options(line, "thread-priority=77"), "most-priority");
    ASSERT_EQ(told.size(), 1U) << line;
    EXPECT_EQ(told[0].first, GST_RESOURCE_ERROR_NOT_AUTHORIZED);
    EXPECT_THAT(told[0].second, testing::AllOf(testing::HasSubstr("priority 77"), testing::HasSubstr("ulimit -r"),
                                               testing::HasSubstr("/etc/security/limits.d")));
  }
}

TEST_F(ThreadProperties, ACpuThatIsNotThere) {
  for (const char* line : elements_with_threads) {
    const auto told = warnings_of_run(with_options(line, "thread-cpus=" + cpu + ",60000"), "allowed-cpus");
    ASSERT_EQ(told.size(), 1U) << line;
    EXPECT_EQ(told[0].first, GST_RESOURCE_ERROR_SETTINGS);
    EXPECT_THAT(told[0].second, testing::HasSubstr("CPU 60000 is not in this machine"));
    Pipeline wrong(on_new_channel("fakesrc num-buffers=3 ! " + with_options(line, "thread-cpus=1-x")));
    EXPECT_THAT(wrong.run(), testing::HasSubstr("thread-cpus: \"1-x\" is no list of CPUs")) << line;
  }
}

}  // namespace
}  // namespace gpumap::gst::test
