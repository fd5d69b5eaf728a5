// SPDX-License-Identifier: MIT
// Frames that are copied, by one thread and by several: content, odd sizes, many memories, flushes and stops meanwhile.
#include <gst/check/gstharness.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "gpumap/error.hpp"
#include "gpumap/slot_copier.hpp"
#include "pipeline.hpp"
#include "ring_helpers.hpp"

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

}  // namespace
}  // namespace gpumap::gst::test
