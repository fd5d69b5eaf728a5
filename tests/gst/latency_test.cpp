// SPDX-License-Identifier: MIT
// The way of each frame through the elements: whole, in order, and told where it is asked for.
#include <gmock/gmock.h>
#include <gst/check/gsttestclock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/latency.hpp"
#include "gst/latency/latency_meta.h"
#include "pipeline.hpp"

namespace gpumap::gst::test {

// What the tests of frames' ways share. Built with GPUMAP_TEST_GPU they skip where the only GPU is the CPU.

inline constexpr std::int64_t ms = 1'000'000;

class Latency : public testing::Test {
 protected:
  void SetUp() override {
#ifdef GPUMAP_TEST_GPU
    try {
      if (Device::open("auto")->info().software) GTEST_SKIP() << "the only GPU here is the CPU";
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
#endif
  }
};

/// What a channel's frames say at the end; hold it from before the start.
class Watched {
 public:
  explicit Watched(std::string channel) : channel_(std::move(channel)), log_(LatencyLog::of_channel(channel_)) {
    log_->keep_frames(10'000);
  }
  /// `description` with $CHANNEL on the channel.
  [[nodiscard]] std::string line(std::string description) const {
    for (std::size_t at = 0; (at = description.find("$CHANNEL", at)) != description.npos;) {
      description.replace(at, 8, channel_);
    }
    return description;
  }
  [[nodiscard]] std::vector<FrameRecord> frames() { return log_->take_frames(); }
  [[nodiscard]] LatencySummary summary() { return log_->summary(); }
  /// So that the next one finds nothing in its way.
  [[nodiscard]] bool ended(std::uint64_t frames) {
    return eventually([&] { return summary().frames == frames; });
  }
  /// Without the first frame, for which kernels are compiled and memory is allocated.
  [[nodiscard]] std::vector<FrameRecord> frames_but_the_first() {
    auto all_frames = frames();
    if (!all_frames.empty()) all_frames.erase(all_frames.begin());
    return all_frames;
  }

 private:
  std::string channel_;
  std::shared_ptr<LatencyLog> log_;
};

inline void expect_in_order(const FrameRecord& frame) {
  std::int64_t before = 0;
  for (std::size_t i = 0; i < stamp_count; ++i) {
    if (frame.at_ns[i] == 0) continue;
    EXPECT_GE(frame.at_ns[i], before) << to_string(static_cast<Stamp>(i)) << " of frame " << frame.sequence;
    before = frame.at_ns[i];
  }
}

inline void expect_stamps(const FrameRecord& frame, const std::vector<Stamp>& wanted) {
  for (std::size_t i = 0; i < stamp_count; ++i) {
    const bool is_wanted = std::ranges::find(wanted, static_cast<Stamp>(i)) != wanted.end();
    EXPECT_EQ(frame.at_ns[i] != 0, is_wanted) << to_string(static_cast<Stamp>(i)) << " of frame " << frame.sequence;
  }
}

inline const std::vector<Stamp> all{Stamp::acquired, Stamp::first_store, Stamp::last_store,     Stamp::published,
                                    Stamp::received, Stamp::launched,    Stamp::kernel_started, Stamp::kernel_ended,
                                    Stamp::visible,  Stamp::released};

namespace {

GpumapLatencyMeta* meta_of(GstBuffer* buffer) {
  return reinterpret_cast<GpumapLatencyMeta*>(gst_buffer_get_meta(buffer, g_type_from_name(GPUMAP_LATENCY_META_API)));
}

/// Field `latency` of an element's stats, which there is.
Ptr<GstStructure> latency_of(GstElement* element) {
  GstStructure* stats = nullptr;
  GstStructure* latency = nullptr;
  g_object_get(element, "stats", &stats, nullptr);
  EXPECT_TRUE(gst_structure_get(stats, "latency", GST_TYPE_STRUCTURE, &latency, nullptr));
  gst_structure_free(stats);
  return Ptr<GstStructure>(latency);
}

/// How many frames have come to their end, of `wanted`: one counts once nobody has it any more and the times of its
/// kernels are known, for which a GPU that is busy, or played by busy cores, takes a while.
std::uint64_t frames_told(GstElement* element, std::uint64_t wanted) {
  guint64 frames = 0;
  (void)eventually([&] {
    const auto latency = latency_of(element);
    return !latency || !gst_structure_get_uint64(latency.get(), "frames", &frames) || frames >= wanted;
  });
  return frames;
}

TEST_F(Latency, OffAtFirst) {
  Watched watched(new_channel());
  Pipeline pipeline(
      watched.line("appsrc name=in caps=application/octet-stream ! gpumapsink name=sink "
                   "channel=$CHANNEL   gpumapsrc name=src channel=$CHANNEL ! appsink name=out"));
  ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(999, 1))));
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_TRUE(pipeline.set_state(GST_STATE_PLAYING) != GST_STATE_CHANGE_FAILURE);
  {
    const Sample sample = pull(pipeline.appsink());
    ASSERT_TRUE(sample);
    EXPECT_EQ(meta_of(gst_sample_get_buffer(sample.get())), nullptr);
  }
  GstStructure* stats = nullptr;
  g_object_get(pipeline.element("sink"), "stats", &stats, nullptr);
  EXPECT_FALSE(gst_structure_has_field(stats, "latency"));
  gst_structure_free(stats);
  pipeline.stop();
  EXPECT_EQ(watched.summary().frames, 0U);
}

TEST_F(Latency, EveryFrameHasItsWayInOrder) {
  for (const char* transport : transports()) {
    Watched watched(new_channel());
    Pipeline pipeline(on_transport(
        watched.line("videotestsrc num-buffers=30 ! video/x-raw,format=NV12,width=319,height=241 ! gpumapsink "
                     "channel=$CHANNEL stamps=true   gpumapsrc channel=$CHANNEL ! gpumapkernel kernel=checksum ! "
                     "fakesink enable-last-sample=false"),
        transport));
    ASSERT_EQ(pipeline.run(), "eos") << transport;
    pipeline.stop();
    EXPECT_TRUE(watched.ended(30)) << transport;
    const auto frames = watched.frames();
    ASSERT_EQ(frames.size(), 30U) << transport;
    for (std::size_t n = 0; n < frames.size(); ++n) {
      EXPECT_EQ(frames[n].sequence, n);
      EXPECT_EQ(frames[n].bytes, 320U * 242 * 3 / 2);
      expect_in_order(frames[n]);
      expect_stamps(frames[n], all);
    }
    EXPECT_EQ(watched.summary().dropped, 0U);
  }
}

TEST_F(Latency, CopiedFramesHaveItToo) {
  Watched watched(new_channel());
  Pipeline pipeline(
      watched.line("appsrc name=in caps=application/octet-stream ! gpumapsink channel=$CHANNEL "
                   "stamps=true   gpumapsrc channel=$CHANNEL ! gpumapkernel kernel=checksum ! fakesink "
                   "enable-last-sample=false"));
  for (const std::size_t bytes : {1U, 63U, 4097U, 100'001U}) {
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(bytes, bytes))));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.run(), "eos");
  pipeline.stop();
  EXPECT_TRUE(watched.ended(4));
  const auto frames = watched.frames();
  ASSERT_EQ(frames.size(), 4U);
  std::vector<std::uint64_t> sequences;
  for (const FrameRecord& frame : frames) {
    sequences.push_back(frame.sequence);
    expect_in_order(frame);
    expect_stamps(frame, all);
  }
  EXPECT_THAT(sequences, testing::ElementsAre(0, 1, 2, 3));  // over two rings: the frames grew
}

TEST_F(Latency, TheMetaCrossesTwoPipelines) {
  Watched watched(new_channel());
  Pipeline from(
      watched.line("videotestsrc num-buffers=5 ! video/x-raw,format=RGBA,width=64,height=33 ! gpumapsink "
                   "channel=$CHANNEL stamps=true"));
  Pipeline to(watched.line(
      "gpumapsrc channel=$CHANNEL ! gpumapkernel kernel=convert ! appsink name=out sync=false enable-last-sample=false "
      "caps=video/x-raw,format=BGRA"));
  ASSERT_NE(from.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(to.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (std::uint64_t n = 0; n < 5; ++n) {
    const Sample sample = pull(to.appsink());
    ASSERT_TRUE(sample);
    const GpumapLatencyMeta* meta = meta_of(gst_sample_get_buffer(sample.get()));
    ASSERT_NE(meta, nullptr);
    EXPECT_EQ(meta->sequence, n);
    const std::vector<std::int64_t> order{
        meta->at_ns[GPUMAP_LATENCY_ACQUIRED],   meta->at_ns[GPUMAP_LATENCY_FIRST_STORE],
        meta->at_ns[GPUMAP_LATENCY_LAST_STORE], meta->at_ns[GPUMAP_LATENCY_PUBLISHED],
        meta->at_ns[GPUMAP_LATENCY_RECEIVED],   meta->at_ns[GPUMAP_LATENCY_LAUNCHED],
        meta->at_ns[GPUMAP_LATENCY_VISIBLE],    monotonic_ns()};
    EXPECT_GT(order.front(), 0);
    EXPECT_TRUE(std::ranges::is_sorted(order)) << testing::PrintToString(order);
    EXPECT_EQ(meta->at_ns[GPUMAP_LATENCY_RELEASED], 0);
  }
  to.stop();
  from.stop();
  // appsink keeps its last sample for as long as it lives; a newer one until it stops.
  EXPECT_TRUE(eventually([&] { return watched.summary().frames >= 4; }));
  EXPECT_LE(watched.summary().frames, 5U);
}

TEST_F(Latency, KernelsInARowAreOneWay) {
  Watched watched(new_channel());
  Pipeline pipeline(watched.line(
      "videotestsrc num-buffers=8 ! video/x-raw,format=NV12,width=64,height=48 ! gpumapsink channel=$CHANNEL "
      "stamps=true   gpumapsrc channel=$CHANNEL ! gpumapkernel kernel=convert ! video/x-raw(memory:GPUMap),format=RGBA "
      "! gpumapkernel kernel=identity ! gpumapkernel kernel=checksum ! fakesink enable-last-sample=false"));
  ASSERT_EQ(pipeline.run(), "eos");
  pipeline.stop();
  EXPECT_TRUE(watched.ended(8));
  const auto frames = watched.frames();
  ASSERT_EQ(frames.size(), 8U);
  for (const FrameRecord& frame : frames) {
    expect_in_order(frame);
    expect_stamps(frame, all);
  }
}

TEST_F(Latency, ATeeIsOneFrame) {
  Watched watched(new_channel());
  Pipeline pipeline(watched.line(
      "videotestsrc num-buffers=20 ! video/x-raw,format=NV12,width=64,height=48 ! gpumapsink channel=$CHANNEL "
      "stamps=true   gpumapsrc channel=$CHANNEL ! tee name=t ! queue ! gpumapkernel kernel=checksum ! fakesink   "
      "t. ! queue ! gpumapkernel kernel=convert ! fakesink"));
  ASSERT_EQ(pipeline.run(), "eos");
  pipeline.stop();
  EXPECT_TRUE(watched.ended(20));
  EXPECT_EQ(watched.frames().size(), 20U);
}

// --- what was lost, and when frames were due

TEST_F(Latency, DropsAreCounted) {
  for (const char* leaky : {"oldest", "newest"}) {
    Watched watched(new_channel());
    Pipeline pipeline(
        watched.line("appsrc name=in caps=application/octet-stream ! gpumapsink name=sink "
                     "channel=$CHANNEL stamps=true slots=4 slot-size=100 leaky=" +
                     std::string(leaky)));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (std::uint64_t n = 0; n < 20; ++n) ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(100, n))));
    ASSERT_TRUE(eventually([&] {
      return stat(pipeline.element("sink"), "frames") +
                 (leaky == std::string("newest") ? stat(pipeline.element("sink"), "drops") : 0) ==
             20;
    }));
    Pipeline to(watched.line("gpumapsrc channel=$CHANNEL ! fakesink enable-last-sample=false"));
    gst_app_src_end_of_stream(pipeline.appsrc());
    ASSERT_EQ(to.run(), "eos");
    to.stop();
    pipeline.stop();
    EXPECT_EQ(watched.summary().frames, 4U) << leaky;
    EXPECT_EQ(watched.summary().dropped, 16U) << leaky;
  }
}

TEST_F(Latency, TimeCountsFromWhenAFrameIsDue) {
  Watched watched(new_channel());
  Pipeline pipeline(
      watched.line("appsrc name=in format=time caps=application/octet-stream ! gpumapsink name=sink sync=true "
                   "channel=$CHANNEL stamps=true   gpumapsrc channel=$CHANNEL ! gpumapkernel "
                   "kernel=checksum ! fakesink enable-last-sample=false async=false sync=false"));
  for (std::uint64_t n = 0; n < 5; ++n) {
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(100, n), (n + 1) * 30 * GST_MSECOND)));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.run(), "eos");
  const auto base = static_cast<std::int64_t>(gst_element_get_base_time(pipeline.element("sink")));
  pipeline.stop();
  EXPECT_TRUE(watched.ended(5));
  const auto frames = watched.frames();
  ASSERT_EQ(frames.size(), 5U);
  for (std::size_t n = 1; n < 5; ++n) {  // the first may pass before it plays
    EXPECT_EQ(frames[n].due_ns, base + static_cast<std::int64_t>(n + 1) * 30 * ms);
    EXPECT_GE(frames[n].at(Stamp::published), frames[n].due_ns);
    EXPECT_GE(total_time(frames[n], Total::lateness).value_or(-1), 0);
  }
}

// Stamps are of CLOCK_MONOTONIC, whatever the pipeline's clock does: when a frame is due by another clock is not known.
TEST_F(Latency, AClockThatStepsMovesNoStamp) {
  Watched watched(new_channel());
  Pipeline pipeline(
      watched.line("appsrc name=in format=time caps=application/octet-stream ! gpumapsink name=sink channel=$CHANNEL "
                   "async=false stamps=true   gpumapsrc channel=$CHANNEL ! gpumapkernel kernel=checksum ! fakesink "
                   "enable-last-sample=false async=false sync=false"));
  GstClock* clock = gst_test_clock_new();
  gst_pipeline_use_clock(GST_PIPELINE(pipeline.get()), clock);
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  for (std::uint64_t n = 0; n < 5; ++n) {
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(100, n), n * GST_SECOND)));
    ASSERT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "frames") == n + 1; }));
    gst_test_clock_advance_time(GST_TEST_CLOCK(clock), 1000 * GST_SECOND);
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(), "eos");
  pipeline.stop();
  gst_object_unref(clock);
  EXPECT_TRUE(watched.ended(5));
  const auto frames = watched.frames();
  ASSERT_EQ(frames.size(), 5U);
  for (const FrameRecord& frame : frames) {
    expect_in_order(frame);
    expect_stamps(frame, all);
    EXPECT_EQ(frame.due_ns, 0);
    EXPECT_LT(total_time(frame, Total::whole).value(), 40'000 * ms);
  }
}

// What lies between two looks at two clocks, here or in gpumapsink, is an error. A thread may be stopped there, but not
// each time.
TEST_F(Latency, CaptureTimesOfComparableClocks) {
  Watched watched(new_channel());
  Pipeline pipeline(
      watched.line("appsrc name=in caps=application/octet-stream ! gpumapsink channel=$CHANNEL "
                   "stamps=true   gpumapsrc channel=$CHANNEL ! fakesink enable-last-sample=false"));
  std::int64_t unix_now = 0;
  std::int64_t monotonic_now = 0;
  ASSERT_TRUE(eventually([&] {
    timespec now{};
    const std::int64_t before = monotonic_ns();
    clock_gettime(CLOCK_REALTIME, &now);
    monotonic_now = monotonic_ns();
    unix_now = now.tv_sec * 1'000 * ms + now.tv_nsec;
    return monotonic_now - before < ms / 10;
  }));
  const auto add = [&](const char* reference, std::int64_t time) {
    Buffer buffer = new_buffer(random_data(64, 1));
    if (reference != nullptr) {
      const Caps caps = new_caps(reference);
      gst_buffer_add_reference_timestamp_meta(buffer.get(), caps.get(), static_cast<GstClockTime>(time),
                                              GST_CLOCK_TIME_NONE);
    }
    ASSERT_TRUE(push(pipeline.appsrc(), std::move(buffer)));
  };
  constexpr std::size_t times = 5;
  for (std::size_t n = 0; n < times; ++n) {
    add("timestamp/x-unix", unix_now - 5 * ms);
    add("timestamp/x-ntp", unix_now + 2'208'988'800'000 * ms - 7 * ms);
  }
  add("timestamp/x-monotonic", monotonic_now - 9 * ms);
  add("timestamp/x-camera,stream=(string)0", 12345);
  add(nullptr, 0);
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.run(), "eos");
  pipeline.stop();
  const auto frames = watched.frames();
  ASSERT_EQ(frames.size(), 2 * times + 3);
  std::int64_t unix_error = std::numeric_limits<std::int64_t>::max();
  std::int64_t ntp_error = unix_error;
  for (std::size_t n = 0; n < times; ++n) {
    unix_error = std::min(unix_error, std::abs(frames[2 * n].captured_ns - (monotonic_now - 5 * ms)));
    ntp_error = std::min(ntp_error, std::abs(frames[2 * n + 1].captured_ns - (monotonic_now - 7 * ms)));
  }
  EXPECT_LE(unix_error, ms);
  EXPECT_LE(ntp_error, ms);
  EXPECT_EQ(frames[2 * times].captured_ns, monotonic_now - 9 * ms);
  EXPECT_EQ(frames[2 * times + 1].captured_ns, 0);
  EXPECT_EQ(frames[2 * times + 2].captured_ns, 0);
}

// --- where it is told

TEST_F(Latency, StatsOfBothElementsHaveIt) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=12 ! video/x-raw,format=NV12,width=64,height=48 ! "
                     "gpumapsink name=sink channel=$CHANNEL stamps=true   gpumapsrc name=src "
                     "channel=$CHANNEL ! gpumapkernel kernel=checksum ! fakesink "
                     "enable-last-sample=false"));
  ASSERT_EQ(pipeline.run(), "eos");
  for (const char* name : {"sink", "src"}) {
    EXPECT_EQ(frames_told(pipeline.element(name), 12), 12U) << name;
    const auto latency = latency_of(pipeline.element(name));
    ASSERT_TRUE(latency) << name;
    double sum = 0;
    for (const char* stage :
         {"hold", "write", "publish", "queue", "dispatch", "start", "kernel", "notice", "release"}) {
      GstStructure* figures = nullptr;
      ASSERT_TRUE(gst_structure_get(latency.get(), stage, GST_TYPE_STRUCTURE, &figures, nullptr)) << stage;
      gdouble mean = 0;
      EXPECT_TRUE(gst_structure_get_double(figures, "mean", &mean));
      sum += mean;
      gst_structure_free(figures);
    }
    GstStructure* whole = nullptr;
    ASSERT_TRUE(gst_structure_get(latency.get(), "whole", GST_TYPE_STRUCTURE, &whole, nullptr));
    gdouble mean = 0;
    EXPECT_TRUE(gst_structure_get_double(whole, "mean", &mean));
    EXPECT_NEAR(sum, mean, 1.0);
    gst_structure_free(whole);
  }
}

TEST_F(Latency, MessagesComeAtIntervalsAndAtTheEnd) {
  Pipeline pipeline(on_new_channel(
      "appsrc name=in caps=application/octet-stream ! gpumapsink name=sink channel=$CHANNEL "
      "latency-interval=50   gpumapsrc channel=$CHANNEL ! fakesink enable-last-sample=false sync=false"));
  GstBus* bus = gst_element_get_bus(pipeline.get());
  std::vector<guint64> frames;
  std::mutex mutex;
  struct Seen {
    std::vector<guint64>& frames;
    std::mutex& mutex;
  } seen{frames, mutex};
  gst_bus_set_sync_handler(
      bus,
      [](GstBus*, GstMessage* message, gpointer data) {
        auto* to = static_cast<Seen*>(data);
        const GstStructure* said = gst_message_get_structure(message);
        if (said != nullptr && gst_structure_has_name(said, "gpumap-latency")) {
          guint64 count = 0;
          gst_structure_get_uint64(said, "frames", &count);
          const std::lock_guard lock(to->mutex);
          to->frames.push_back(count);
        }
        return GST_BUS_PASS;
      },
      &seen, nullptr);
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  // As many as it takes until two have come: who tells may be late.
  guint64 pushed = 0;
  const auto push_one = [&] { return push(pipeline.appsrc(), new_buffer(random_data(100, pushed++))); };
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(push_one());
    const std::lock_guard lock(mutex);
    return frames.size() >= 2;
  }));
  EXPECT_TRUE(push_one());
  gst_app_src_end_of_stream(pipeline.appsrc());
  EXPECT_EQ(pipeline.wait(), "eos");
  ASSERT_NE(pipeline.set_state(GST_STATE_READY), GST_STATE_CHANGE_FAILURE);
  gst_bus_set_sync_handler(bus, nullptr, nullptr, nullptr);
  gst_object_unref(bus);
  ASSERT_GE(frames.size(), 3U);
  EXPECT_TRUE(std::ranges::is_sorted(frames));
  EXPECT_LT(frames.front(), pushed);
  EXPECT_EQ(frames.back(), pushed);
}

TEST_F(Latency, ANewStartBeginsAnew) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=7 ! video/x-raw,format=NV12,width=64,height=48 ! "
                     "gpumapsink name=sink channel=$CHANNEL stamps=true   gpumapsrc channel=$CHANNEL ! "
                     "fakesink enable-last-sample=false"));
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_EQ(pipeline.run(), "eos");
    EXPECT_EQ(frames_told(pipeline.element("sink"), 7), 7U);
    pipeline.stop();
  }
}

// A delay in the way of a frame is in the stage where it was, and in no other.

class LatencyDelay : public Latency {};

/// The stage that has most of the time of the median frame, but for those named.
std::int64_t median(const std::vector<FrameRecord>& frames, Stage stage) {
  std::vector<std::int64_t> times;
  for (const FrameRecord& frame : frames) {
    times.push_back(stage_times(frame)[static_cast<std::size_t>(stage)].value_or(0));
  }
  if (times.empty()) return -1;
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

/// What a busy machine adds is in any stage: of so many runs one shows the delay alone.
constexpr int runs = 10;

/// 20 ms are in `delayed` and in no other: where that is not so, else "".
std::string misplaced(const std::vector<FrameRecord>& frames, Stage delayed) {
  std::string text;
  for (std::size_t i = 0; i < stage_count; ++i) {
    const auto stage = static_cast<Stage>(i);
    const std::int64_t time = median(frames, stage);
    const bool right = stage == delayed ? time >= 20 * ms && time < 1'000 * ms : time < 15 * ms;
    if (!right) text += std::string(to_string(stage)) + " " + std::to_string(time) + " ns  ";
  }
  return text;
}

void expect_delay_in(const std::function<std::vector<FrameRecord>()>& run, Stage delayed) {
  std::string wrong;
  for (int turn = 0; turn < runs; ++turn) {
    const auto frames = run();
    ASSERT_FALSE(frames.empty());
    wrong = misplaced(frames, delayed);
    if (wrong.empty()) return;
  }
  ADD_FAILURE() << "delayed was " << to_string(delayed) << ", but in the last run " << wrong;
}

/// Frames written by hand: acquire, map, unmap and push with `pause` told before each step but the first.
std::vector<FrameRecord> written_by_hand(const std::function<void(int)>& pause) {
  Watched watched(new_channel());
  Pipeline pipeline(
      watched.line("appsrc name=in caps=video/x-raw,format=GRAY8,width=64,height=33,framerate=0/1 ! "
                   "gpumapsink name=sink channel=$CHANNEL stamps=true   gpumapsrc channel=$CHANNEL ! "
                   "gpumapkernel kernel=checksum ! fakesink enable-last-sample=false async=false"));
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Caps caps = new_caps("video/x-raw,format=GRAY8,width=64,height=33,framerate=0/1");
  const Pad pad(gst_element_get_static_pad(pipeline.element("sink"), "sink"));
  GstQuery* query = gst_query_new_allocation(caps.get(), TRUE);
  EXPECT_TRUE(gst_pad_query(pad.get(), query));
  GstBufferPool* pool = nullptr;
  gst_query_parse_nth_allocation_pool(query, 0, &pool, nullptr, nullptr, nullptr);
  EXPECT_NE(pool, nullptr);
  gst_query_unref(query);
  EXPECT_TRUE(gst_buffer_pool_set_active(pool, TRUE));
  for (int n = 0; n < 6; ++n) {
    GstBuffer* buffer = nullptr;
    GstMapInfo map;
    // One that is written and never pushed: nothing may be left of it.
    EXPECT_EQ(gst_buffer_pool_acquire_buffer(pool, &buffer, nullptr), GST_FLOW_OK);
    EXPECT_TRUE(gst_buffer_map(buffer, &map, GST_MAP_WRITE));
    gst_buffer_unmap(buffer, &map);
    gst_buffer_unref(buffer);
    EXPECT_EQ(gst_buffer_pool_acquire_buffer(pool, &buffer, nullptr), GST_FLOW_OK);
    pause(0);
    EXPECT_TRUE(gst_buffer_map(buffer, &map, GST_MAP_WRITE));
    std::fill_n(map.data, map.size, static_cast<guint8>(n));
    pause(1);
    gst_buffer_unmap(buffer, &map);
    pause(2);
    EXPECT_EQ(gst_app_src_push_buffer(pipeline.appsrc(), buffer), GST_FLOW_OK);
    EXPECT_TRUE(watched.ended(static_cast<std::uint64_t>(n) + 1));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  EXPECT_EQ(pipeline.wait(), "eos");
  gst_buffer_pool_set_active(pool, FALSE);
  gst_object_unref(pool);
  pipeline.stop();
  return watched.frames_but_the_first();
}

TEST_F(LatencyDelay, InTheProducer) {
  const std::array<Stage, 3> stages{Stage::hold, Stage::write, Stage::publish};
  for (int step = 0; step < 3; ++step) {
    const auto run = [step] {
      auto frames = written_by_hand([step](int at) {
        if (at == step) std::this_thread::sleep_for(20ms);
      });
      EXPECT_EQ(frames.size(), 5U);
      return frames;
    };
    expect_delay_in(run, stages.at(static_cast<std::size_t>(step)));
  }
}

/// Frames one after the other, with `after_src` behind the gpumapsrc.
std::vector<FrameRecord> run_line(const std::string& after_src) {
  Watched watched(new_channel());
  Pipeline pipeline(
      watched.line("appsrc name=in caps=video/x-raw,format=NV12,width=64,height=48,framerate=0/1 ! gpumapsink "
                   "channel=$CHANNEL stamps=true   gpumapsrc channel=$CHANNEL ! " +
                   after_src + " ! fakesink enable-last-sample=false sync=false async=false"));
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  constexpr std::uint64_t count = 9;
  for (std::uint64_t n = 0; n < count; ++n) {
    EXPECT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(std::size_t{64} * 48 * 3 / 2, n))));
    EXPECT_TRUE(watched.ended(n + 1));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  EXPECT_EQ(pipeline.wait(), "eos");
  pipeline.stop();
  auto frames = watched.frames_but_the_first();
  EXPECT_EQ(frames.size(), count - 1);
  return frames;
}

TEST_F(LatencyDelay, BeforeTheKernel) {
  expect_delay_in([] { return run_line("identity sleep-time=20000 ! gpumapkernel kernel=checksum"); }, Stage::dispatch);
}

TEST_F(LatencyDelay, OnTheGpu) {
  const std::string file = testing::TempDir() + "gpumap-latency-" + std::to_string(getpid()) + ".comp";
  // Every thread, as software drivers end a loop after 65,535 turns.
  std::ofstream(file) << "#version 460\n#include <gpumap.glsl>\n// gpumap: params turns=1\n// gpumap: results sum=u64\n"
                         "// gpumap: output unchanged\n"
                         "void main() {\n  uint sum = uint(gpumap_thread()) + 1u;\n"
                         "  for (uint i = 0u; i < uint(frame.params[0]); ++i) {\n"
                         "    sum ^= sum << 13; sum ^= sum >> 17; sum ^= sum << 5;\n  }\n"
                         "  if (sum == 0u) gpumap_u64_at(frame.result).value = 1ul;\n}\n";
  const auto run = [&file](std::uint64_t turns) {
    return run_line("gpumapkernel location=" + file + " params=turns=" + std::to_string(turns));
  };
  std::uint64_t turns = 1000;
  while (turns < 1'000'000'000 && median(run(turns), Stage::kernel) < 20 * ms) turns *= 4;
  EXPECT_LT(turns, 1'000'000'000U) << "no kernel took 20 ms";
  std::string wrong;
  for (int turn = 0; turn < runs; ++turn) {
    const auto frames = run(turns);
    wrong = misplaced(frames, Stage::kernel);
    if (wrong.empty()) break;
    // It took so long because something else did: it is to do so by itself.
    if (median(frames, Stage::kernel) < 20 * ms && turns < 1'000'000'000) turns *= 4;
  }
  EXPECT_EQ(wrong, "") << "in the last run";
  (void)std::remove(file.c_str());
}

TEST_F(LatencyDelay, AfterTheKernel) {
  const std::string line = "gpumapkernel kernel=checksum ! video/x-raw(memory:GPUMap) ! identity sleep-time=20000";
  expect_delay_in([&line] { return run_line(line); }, Stage::release);
}

/// Times in the ring of the first and the last of six frames, which come at once and are taken every 25 ms.
std::pair<std::int64_t, std::int64_t> queued() {
  Watched watched(new_channel());
  Pipeline pipeline(
      watched.line("appsrc name=in caps=application/octet-stream ! gpumapsink channel=$CHANNEL "
                   "stamps=true slots=8 slot-size=100   gpumapsrc name=src channel=$CHANNEL ! "
                   "identity sleep-time=25000 ! gpumapkernel kernel=checksum ! fakesink "
                   "enable-last-sample=false"));
  for (std::uint64_t n = 0; n < 6; ++n) EXPECT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(100, n))));
  gst_app_src_end_of_stream(pipeline.appsrc());
  EXPECT_EQ(pipeline.run(), "eos");
  pipeline.stop();
  EXPECT_TRUE(watched.ended(6));
  const auto frames = watched.frames();
  EXPECT_EQ(frames.size(), 6U);
  const auto time_of = [](const FrameRecord& frame) {
    return stage_times(frame)[static_cast<std::size_t>(Stage::queue)].value_or(0);
  };
  return frames.empty() ? std::pair<std::int64_t, std::int64_t>()
                        : std::pair(time_of(frames[0]), time_of(frames.back()));
}

TEST_F(LatencyDelay, InTheRing) {
  std::int64_t first = 0;
  std::int64_t last = 0;
  // Each waits for those before it.
  const auto is_right = [&] { return first < 20 * ms && last >= 100 * ms; };
  for (int turn = 0; turn < runs && !is_right(); ++turn) std::tie(first, last) = queued();
  EXPECT_TRUE(is_right()) << "the first waited for " << first << " ns, the last for " << last;
}

TEST_F(LatencyDelay, BuffersThatAreNeverPushedLeaveNothing) {
  const auto frames = written_by_hand([](int) {});
  ASSERT_EQ(frames.size(), 5U);
  for (std::size_t n = 0; n < frames.size(); ++n) {
    EXPECT_EQ(frames[n].sequence, n + 1);
    expect_in_order(frames[n]);
    expect_stamps(frames[n], all);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
