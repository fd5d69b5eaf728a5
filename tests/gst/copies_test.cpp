// SPDX-License-Identifier: MIT
// How often a frame is copied on its way in, by the elements' own count: never where upstream writes into the slot.
#include <gmock/gmock.h>
#include <gst/check/gstharness.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gpumap/slot_copier.hpp"
#include "gpumap/thread_schedule.hpp"
#include "link_sides.hpp"
#include "pipeline.hpp"
#include "ring_helpers.hpp"
#include "test_frames.hpp"
#include "thread_names.hpp"

namespace gpumap::gst::test {
namespace {

struct Counts {
  std::uint64_t frames = 0, zero_copy = 0, copied = 0, bytes_copied = 0, cpu_reads = 0;
};

Counts counts_of(const Pipeline& pipeline) {
  GstElement* sink = pipeline.element("sink");
  return {stat(sink, "frames"), stat(sink, "zero-copy-frames"), stat(sink, "copied-frames"), stat(sink, "bytes-copied"),
          stat(sink, "cpu-reads")};
}

Counts run_and_count(const std::string& upstream, const std::string& sink_options = "") {
  Pipeline pipeline(on_new_channel(upstream + " ! gpumapsink name=sink $CHANNEL " + sink_options +
                                   " gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! fakesink"));
  EXPECT_EQ(pipeline.run(), "eos") << upstream;
  GstElement* sink = pipeline.element("sink");
  EXPECT_EQ(pipeline.results().size(), stat(sink, "frames")) << upstream;
  EXPECT_EQ(stat(sink, "drops"), 0U) << upstream;
  return counts_of(pipeline);
}

void expect_none(const std::string& upstream, std::uint64_t frames) {
  const Counts counts = run_and_count(upstream);
  if (frames != 0) {
    EXPECT_EQ(counts.frames, frames) << upstream;
  }
  EXPECT_GT(counts.frames, 0U) << upstream;
  EXPECT_EQ(counts.zero_copy, counts.frames) << upstream;
  EXPECT_EQ(counts.copied, 0U) << upstream;
  EXPECT_EQ(counts.bytes_copied, 0U) << upstream;
  EXPECT_EQ(counts.cpu_reads, 0U) << upstream;
}

TEST(Copies, NoneForVideotestsrc) {
  for (const char* format : {"NV12", "I420", "RGB", "GRAY8", "AYUV", "YUY2"}) {
    expect_none(
        std::string("videotestsrc num-buffers=25 pattern=snow ! video/x-raw,width=333,height=77,format=") + format, 25);
  }
}

TEST(Copies, NoneForVideoconvert) {
  expect_none(
      "videotestsrc num-buffers=25 ! video/x-raw,format=RGB,width=333,height=77 ! videoconvert ! "
      "video/x-raw,format=NV12",
      25);
}

TEST(Copies, NoneForJpegdec) {
  expect_none("videotestsrc num-buffers=25 ! video/x-raw,format=I420,width=640,height=360 ! jpegenc ! jpegdec", 25);
}

TEST(Copies, NoneForAudiotestsrc) {
  expect_none("audiotestsrc num-buffers=25 wave=white-noise ! audio/x-raw,format=S16LE,channels=2", 25);
}

TEST(Copies, NoneThroughAQueue) {
  expect_none(
      "videotestsrc num-buffers=25 ! video/x-raw,format=NV12,width=333,height=77 ! queue max-size-buffers=3 ! "
      "identity",
      25);
}

TEST(Copies, OneForFilesrc) {
  const std::string path = testing::TempDir() + "gpumap-copies-" + std::to_string(getpid());
  const Data data = random_data(300001, 4);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  const Counts counts = run_and_count("filesrc blocksize=40000 location=" + path);
  EXPECT_EQ(std::remove(path.c_str()), 0);
  EXPECT_EQ(counts.frames, 8U);
  EXPECT_EQ(counts.copied, 8U);
  EXPECT_EQ(counts.zero_copy, 0U);
  EXPECT_EQ(counts.bytes_copied, data.size());
  EXPECT_EQ(counts.cpu_reads, 0U);
}

// Slots that upstream asked for and dropped, here in a valve, come back.
TEST(Copies, DroppedUpstreamComesBack) {
  const Counts counts = run_and_count(
      "videotestsrc num-buffers=200 ! video/x-raw,width=64,height=32,format=NV12,framerate=60/1 ! "
      "videorate drop-only=true ! video/x-raw,framerate=7/1",
      "slots=2");
  EXPECT_GT(counts.frames, 15U);
  EXPECT_LT(counts.frames, 40U);
}

std::chrono::nanoseconds cpu_time_of_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// Eight frames of sound from an upstream that asks for memory frame by frame, and works as long on each as `slow`
/// says.
Counts run_with_allocator(const std::array<bool, 8>& slow) {
  Pipeline pipeline(on_new_channel(
      "gpumapsink name=sink transport=bar $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! fakesink"));
  const Ptr<GstPad> out(GST_PAD(gst_object_ref_sink(gst_pad_new("out", GST_PAD_SRC))));
  const Pad in(gst_element_get_static_pad(pipeline.element("sink"), "sink"));
  EXPECT_EQ(gst_pad_link(out.get(), in.get()), GST_PAD_LINK_OK);
  gst_pad_set_active(out.get(), TRUE);
  gst_element_set_state(pipeline.get(), GST_STATE_PLAYING);
  const Ptr<GstCaps> caps(gst_caps_from_string("audio/x-raw,format=S16LE,layout=interleaved,rate=48000,channels=2"));
  gst_pad_push_event(out.get(), gst_event_new_stream_start("sound"));
  gst_pad_push_event(out.get(), gst_event_new_caps(caps.get()));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_push_event(out.get(), gst_event_new_segment(&segment));
  GstQuery* query = gst_query_new_allocation(caps.get(), FALSE);
  EXPECT_TRUE(gst_pad_peer_query(out.get(), query));
  GstAllocator* allocator = nullptr;
  if (gst_query_get_n_allocation_params(query) != 0) {
    gst_query_parse_nth_allocation_param(query, 0, &allocator, nullptr);
  }
  gst_query_unref(query);
  EXPECT_NE(allocator, nullptr);
  for (const bool works : slow) {
    GstMemory* memory = gst_allocator_alloc(allocator, 70000, nullptr);
    GstMapInfo map;
    EXPECT_TRUE(gst_memory_map(memory, &map, GST_MAP_WRITE));
    // 70 ns a byte: less than the CPU's reads through the BAR cost, more than nearly any element needs.
    const auto end = cpu_time_of_thread() + (works ? 5ms : 0ms);
    std::memset(map.data, static_cast<int>(end.count() & 0xff), map.size);
    while (cpu_time_of_thread() < end) {
    }
    gst_memory_unmap(memory, &map);
    GstBuffer* buffer = gst_buffer_new();
    gst_buffer_append_memory(buffer, memory);
    EXPECT_EQ(gst_pad_push(out.get(), buffer), GST_FLOW_OK);
  }
  gst_pad_push_event(out.get(), gst_event_new_eos());
  EXPECT_EQ(pipeline.wait(), "eos");
  gst_clear_object(&allocator);
  gst_pad_set_active(out.get(), FALSE);
  return counts_of(pipeline);
}

// Of the first two slots it is not known why they took so long: the third frame is in host memory, to see whether that
// is faster.
TEST(Copies, OneOfAnUpstreamThatIsSlowAnyway) {
  const Counts counts = run_with_allocator({true, true, true, true, true, true, true, true});
  EXPECT_EQ(counts.frames, 8U);
  EXPECT_EQ(counts.copied, 1U);
  EXPECT_EQ(counts.zero_copy, 7U);
  EXPECT_EQ(counts.cpu_reads, 0U);
}

TEST(Copies, AllOfAnUpstreamThatIsFastInHostMemoryOnly) {
  const Counts counts = run_with_allocator({true, true, false, false, false, false, false, false});
  EXPECT_EQ(counts.frames, 8U);
  EXPECT_EQ(counts.copied, 6U);
  EXPECT_EQ(counts.zero_copy, 2U);
  EXPECT_EQ(counts.cpu_reads, 1U);
}

// Upstream elements that read what they wrote, hold frames or send one twice: the picture is right, at one copy a frame
// and next to no CPU reads of slots.

std::vector<Data> frames_of(Pipeline& pipeline) {
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<Data> frames;
  while (const Sample sample = pull(pipeline.appsink())) frames.push_back(pixels_of(sample.get()));
  EXPECT_EQ(pipeline.wait(), "eos");
  return frames;
}

/// Through gpumap as without it.
void expect_same(const std::string& upstream, std::size_t frames, std::uint64_t copied, std::uint64_t reads_at_most,
                 const std::string& options = "") {
  Pipeline plain(upstream + " ! capsfilter caps=video/x-raw ! appsink name=out sync=false");
  Pipeline mapped(on_new_channel(upstream + " ! gpumapsink name=sink $CHANNEL " + options +
                                 " gpumapsrc $CHANNEL ! capsfilter caps=video/x-raw ! appsink name=out sync=false"));
  const auto expected = frames_of(plain);
  const auto got = frames_of(mapped);
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_EQ(got.size(), frames);
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i] == expected[i]) << "frame " << i << ", from byte "
                                       << std::mismatch(got[i].begin(), got[i].end(), expected[i].begin()).first -
                                              got[i].begin();
  }
  GstElement* sink = mapped.element("sink");
  EXPECT_EQ(stat(sink, "copied-frames"), copied);
  EXPECT_EQ(stat(sink, "copied-frames") + stat(sink, "zero-copy-frames"), stat(sink, "frames"));
  EXPECT_LE(stat(sink, "cpu-reads"), reads_at_most);
}

// Moving and noisy, so that predicted frames have something to predict from and to correct.
constexpr const char* moving =
    "videotestsrc num-buffers=40 pattern=ball ! video/x-raw,format=I420,width=322,height=182 ! videobox ! ";

TEST(Decoders, H264ReadsItsReferenceFrames) {
  expect_same(std::string(moving) + "x264enc bframes=2 b-adapt=false speed-preset=ultrafast ! h264parse ! avdec_h264",
              40, 40, 8);
}

TEST(Decoders, TextoverlayReadsWhatItWritesOver) {
  expect_same(std::string(moving) + "textoverlay text=first-light", 40, 40, 8);
}

/// Where slots lie in host memory the CPU may read them.
class ReadableSlots : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, ReadableSlots, testing::Values("pinned", "zero-copy", "pageable"), transport_name);

TEST_P(ReadableSlots, CostUpstreamsThatReadNoCopy) {
  const std::string options = std::string("slots=16 transport=") + GetParam();
  expect_same(std::string(moving) + "x264enc bframes=2 b-adapt=false speed-preset=ultrafast ! h264parse ! avdec_h264",
              40, 0, 0, options);
  expect_same(std::string(moving) + "textoverlay text=first-light", 40, 0, 0, options);
  expect_same(
      "videotestsrc num-buffers=5 pattern=ball ! video/x-raw,format=RGB,width=322,height=182 ! "
      "pngenc snapshot=false ! pngdec",
      5, 0, 0, options);
}

// The decoder wants one slot more for its reference frames, and the last one is with the sink's last sample.
TEST_P(ReadableSlots, RunOutWhereBothSidesHoldFrames) {
  Pipeline pipeline(on_new_channel(
      std::string(moving) +
      "x264enc bframes=2 b-adapt=false ref=4 ! h264parse ! avdec_h264 max-threads=4 ! gpumapsink name=sink slots=6 "
      "$CHANNEL transport=" +
      GetParam() + " gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! fakesink"));
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(pipeline.results().size(), 40U);
}

TEST(Decoders, JpegdecWritesOnly) {
  // Whole blocks, so that nothing beyond the picture's edge takes part in the encoding.
  expect_same(
      "videotestsrc num-buffers=40 pattern=ball ! video/x-raw,format=I420,width=320,height=176 ! jpegenc ! jpegdec", 40,
      0, 0);
}

TEST(Decoders, PngdecReads) {
  expect_same(
      "videotestsrc num-buffers=5 pattern=ball ! video/x-raw,format=RGB,width=322,height=182 ! "
      "pngenc snapshot=false ! pngdec",
      5, 5, 0);
}

// The sink of a player is in a bin of its own, and may be in two.
TEST(Decoders, AreFoundFromInsideBins) {
  const std::string channel = new_channel();
  for (int bins = 1; bins <= 2; ++bins) {
    Pipeline pipeline(
        "videotestsrc num-buffers=5 pattern=ball ! video/x-raw,format=RGB,width=322,height=182 ! "
        "pngenc snapshot=false ! pngdec name=last gpumapsrc channel=" +
        channel + " ! fakesink sync=false");
    GstElement* bin =
        gst_parse_bin_from_description(("queue ! gpumapsink name=sink channel=" + channel).c_str(), TRUE, nullptr);
    if (bins == 2) {
      GstElement* outer = gst_bin_new(nullptr);
      const Pad inner(gst_element_get_static_pad(bin, "sink"));
      gst_bin_add(GST_BIN(outer), bin);
      gst_element_add_pad(outer, gst_ghost_pad_new("sink", inner.get()));
      bin = outer;
    }
    gst_bin_add(GST_BIN(pipeline.get()), bin);
    ASSERT_TRUE(gst_element_link(pipeline.element("last"), bin));
    ASSERT_EQ(pipeline.run(), "eos");
    EXPECT_EQ(stat(pipeline.element("sink"), "copied-frames"), 5U) << "in " << bins << " bins";
  }
}

// The same buffer pushed again and again: the first time it is the slot, then its content is copied from there.
TEST(Decoders, ImagefreezeSendsOneFrameOften) {
  expect_same(
      "videotestsrc num-buffers=1 pattern=snow ! video/x-raw,format=RGB,width=33,height=17 ! "
      "imagefreeze num-buffers=30",
      30, 29, 1, "slots=3");
}

// Since 1.24 it gives some of its duplicates as the frame in our memory that it had from us.
TEST(Decoders, VideorateDuplicates) {
  guint major = 0;
  guint minor = 0;
  guint micro = 0;
  guint nano = 0;
  gst_version(&major, &minor, &micro, &nano);
  const bool newer = minor >= 24;
  expect_same(
      "videotestsrc num-buffers=10 pattern=ball ! video/x-raw,format=NV12,width=64,height=48,framerate=5/1 ! "
      "videorate ! video/x-raw,framerate=15/1",
      27, newer ? 17 : 27, newer ? 9 : 0, "slots=4");
}

// Frames that are copied, by one thread and by several: content, odd sizes, many memories, flushes and stops meanwhile;
// the priority and the CPUs of those threads and the elements' others.

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
  for (const char* name : {"gpumap-server", "gpumap-inlet", "gpumap-connect", "src:src"}) {
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
