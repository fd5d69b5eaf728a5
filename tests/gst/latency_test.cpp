// SPDX-License-Identifier: MIT
// The way of each frame through the elements: whole, in order, and told where it is asked for.
#include <gmock/gmock.h>
#include <gst/check/gsttestclock.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "gst/latency/latency_meta.h"
#include "latency_frames.hpp"

namespace gpumap::gst::test {
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

}  // namespace
}  // namespace gpumap::gst::test
