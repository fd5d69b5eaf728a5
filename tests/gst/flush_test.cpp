// SPDX-License-Identifier: MIT
// Flushes reach every wait: on a full ring, for a frame, for a preroll. Afterwards the stream goes on.
#include <gst/check/gstharness.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "monitor.hpp"
#include "test_helpers.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

void open(GstHarness* harness) {
  gst_harness_set_src_caps(harness, new_caps("application/octet-stream").release());
}

void flush_stop(GstHarness* harness) {
  ASSERT_TRUE(gst_harness_push_event(harness, gst_event_new_flush_stop(TRUE)));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  ASSERT_TRUE(gst_harness_push_event(harness, gst_event_new_segment(&segment)));
}

TEST(Flush, WakesAProducerOfAFullRing) {
  GstHarness* in = gst_harness_new_parse(("gpumapsink slots=2 channel=" + new_channel()).c_str());
  open(in);
  const Data data = random_data(100, 1);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(gst_harness_push(in, new_buffer(data).release()), GST_FLOW_OK);
    EXPECT_EQ(gst_harness_push(in, new_buffer(data).release()), GST_FLOW_OK);
    std::atomic<bool> returned{false};
    GstFlowReturn flow = GST_FLOW_OK;
    std::thread blocked([&] {
      flow = gst_harness_push(in, new_buffer(data).release());
      returned = true;
    });
    g_usleep(100000);
    EXPECT_FALSE(returned) << "a full ring blocks";
    ASSERT_TRUE(gst_harness_push_event(in, gst_event_new_flush_start()));
    EXPECT_TRUE(eventually([&] { return returned.load(); }));
    blocked.join();
    EXPECT_EQ(flow, GST_FLOW_FLUSHING);
    flush_stop(in);
  }
  gst_harness_teardown(in);
}

// What waits in the ring belongs to before the flush: it is dropped, and its slots are free again.
TEST(Flush, DropsWhatIsQueuedAndGoesOn) {
  const std::string channel = new_channel();
  GstHarness* in = gst_harness_new_parse(("gpumapsink slots=3 channel=" + channel).c_str());
  open(in);
  for (int round = 0; round < 4; ++round) {
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_EQ(gst_harness_push(in, new_buffer(random_data(100, 1)).release()), GST_FLOW_OK);
    }
    ASSERT_TRUE(gst_harness_push_event(in, gst_event_new_flush_start()));
    flush_stop(in);
  }
  const Data last = random_data(77, 2);
  ASSERT_EQ(gst_harness_push(in, new_buffer(last).release()), GST_FLOW_OK);
  GstHarness* out = gst_harness_new_parse(("gpumapsrc channel=" + channel).c_str());
  gst_harness_play(out);
  const Buffer got(gst_harness_pull(out));
  ASSERT_NE(got, nullptr);
  EXPECT_TRUE(data_of(got.get()) == last);
  gst_harness_teardown(out);
  gst_harness_teardown(in);
}

// `drops` tells how many frames a full ring cost: what a flush or a stop cuts off was not wanted any more.
TEST(Flush, IsNoDrop) {
  GstHarness* in = gst_harness_new_parse(("gpumapsink slots=3 leaky=oldest channel=" + new_channel()).c_str());
  const Element sink(gst_harness_find_element(in, "gpumapsink"));
  open(in);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(gst_harness_push(in, new_buffer(random_data(100, 1)).release()), GST_FLOW_OK);
  }
  EXPECT_EQ(stat(sink.get(), "drops"), 2U);
  ASSERT_TRUE(gst_harness_push_event(in, gst_event_new_flush_start()));
  flush_stop(in);
  EXPECT_EQ(stat(sink.get(), "drops"), 2U);
  ASSERT_EQ(gst_harness_push(in, new_buffer(random_data(100, 1)).release()), GST_FLOW_OK);
  gst_element_set_state(sink.get(), GST_STATE_READY);
  EXPECT_EQ(stat(sink.get(), "drops"), 2U);
  gst_harness_teardown(in);
}

TEST(Flush, CrossesWhileTheSrcWaits) {
  const std::string channel = new_channel();
  GstHarness* in = gst_harness_new_parse(("gpumapsink channel=" + channel).c_str());
  GstHarness* out = gst_harness_new_parse(("gpumapsrc channel=" + channel).c_str());
  gst_harness_play(out);
  open(in);
  for (std::uint64_t round = 0; round < 20; ++round) {
    const Data data = random_data(100 + round, round);
    ASSERT_EQ(gst_harness_push(in, new_buffer(data).release()), GST_FLOW_OK);
    const Buffer got(gst_harness_pull(out));
    ASSERT_NE(got, nullptr) << round;
    EXPECT_TRUE(data_of(got.get()) == data) << round;
    ASSERT_TRUE(gst_harness_push_event(in, gst_event_new_flush_start()));
    flush_stop(in);
  }
  int starts = 0, stops = 0, segments = 0;
  while (GstEvent* event = gst_harness_try_pull_event(out)) {
    starts += GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START ? 1 : 0;
    stops += GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_STOP ? 1 : 0;
    segments += GST_EVENT_TYPE(event) == GST_EVENT_SEGMENT ? 1 : 0;
    gst_event_unref(event);
  }
  EXPECT_EQ(starts, 20);
  EXPECT_EQ(stops, 20);
  EXPECT_GE(segments, 20);
  gst_harness_teardown(out);
  gst_harness_teardown(in);
}

// From the application's seek, through gpumapsrc to the far side's source and back as a flush through both. The next
// seek comes as soon as a frame is there, often while the pipeline is still on its way back to PLAYING.
TEST(Flush, SeekThroughBoth) {
  Pipeline pipeline(on_new_channel(
      "videotestsrc ! video/x-raw,format=NV12,width=64,height=48,framerate=25/1 ! gpumapsink name=sink slots=3 "
      "$CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=identity ! appsink name=out sync=false max-buffers=2"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  ASSERT_NE(pull(pipeline.appsink()), nullptr);
  for (int second = 1; second <= 20; ++second) {
    ASSERT_TRUE(gst_element_seek_simple(pipeline.element("out"), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH,
                                        100 * static_cast<gint64>(second) * static_cast<gint64>(GST_SECOND)));
    // What comes after the flush comes from the new place.
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
    const GstClockTime pts = GST_BUFFER_PTS(gst_sample_get_buffer(sample.get()));
    EXPECT_GE(pts, 100 * static_cast<GstClockTime>(second) * GST_SECOND);
    EXPECT_LT(pts, (100 * static_cast<GstClockTime>(second) + 50) * GST_SECOND);
    gint64 position = 0;
    EXPECT_TRUE(gst_element_query_position(pipeline.element("out"), GST_FORMAT_TIME, &position));
  }
  EXPECT_LT(pipeline.stop(), at_once);
}

/// As a thread does that changes a pipeline's state: it has its lock until `over`.
std::thread change_state(GstElement* pipeline, GstState target, std::atomic<bool>& changing,
                         const std::atomic<bool>& over) {
  std::thread thread([=, &changing, &over] {
    GST_STATE_LOCK(pipeline);
    const GstState before = std::exchange(GST_STATE_TARGET(pipeline), target);
    changing = true;
    EXPECT_TRUE(eventually([&] { return over.load(); }));
    changing = false;
    GST_STATE_TARGET(pipeline) = before;
    GST_STATE_UNLOCK(pipeline);
  });
  EXPECT_TRUE(eventually([&] { return changing.load(); }));
  return thread;
}

// A seek waits for no change of state, which may wait for streaming threads, of which one may be seeking. On the way
// down it is refused, and flushes nothing.
TEST(Flush, SeekWaitsForNoChangeOfStateAndIsRefusedOnTheWayDown) {
  Pipeline pipeline(on_new_channel(
      "videotestsrc ! video/x-raw,format=NV12,width=64,height=48,framerate=25/1 ! gpumapsink name=sink $CHANNEL "
      "gpumapsrc $CHANNEL ! appsink name=out sync=false max-buffers=2"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  for (const GstState target : {GST_STATE_PLAYING, GST_STATE_NULL}) {
    std::atomic<bool> changing{false}, over{false};
    const bool down = target == GST_STATE_NULL;
    std::thread changes = change_state(pipeline.get(), target, changing, over);
    const bool sought = gst_element_seek_simple(pipeline.element("out"), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH,
                                                (down ? 200 : 100) * GST_SECOND) != FALSE;
    EXPECT_EQ(sought, !down);
    EXPECT_TRUE(changing);
    over = true;
    changes.join();
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr);
    EXPECT_EQ(GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())) / GST_SECOND, 100U) << "the second was refused";
  }
}

// A seek after EOS starts the stopped gpumapsrc again.
TEST(Flush, SeekAfterEos) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=10 ! video/x-raw,format=NV12,width=64,height=48,framerate=25/1 ! "
                     "gpumapsink name=sink $CHANNEL gpumapsrc name=src $CHANNEL ! fakesink name=out sync=false"));
  ASSERT_EQ(pipeline.run(), "eos");
  ASSERT_TRUE(gst_element_seek_simple(pipeline.element("out"), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 0));
  EXPECT_EQ(pipeline.wait(), "eos");
}

// The thread that closes a pad waits for the one that is in it, which waits for a slot.
TEST(Flush, AClosedPadEndsTheWaitForASlot) {
  GstHarness* in = gst_harness_new_parse(("gpumapsink slots=2 channel=" + new_channel()).c_str());
  const Element sink(gst_harness_find_element(in, "gpumapsink"));
  const Pad pad(gst_element_get_static_pad(sink.get(), "sink"));
  open(in);
  const Data data = random_data(101, 1);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(gst_harness_push(in, new_buffer(data).release()), GST_FLOW_OK);
  std::atomic<bool> returned{false};
  GstFlowReturn flow = GST_FLOW_OK;
  std::thread blocked([&] {
    flow = gst_harness_push(in, new_buffer(data).release());
    returned = true;
  });
  ASSERT_TRUE(eventually([&] { return stat(sink.get(), "waits") > 0; }));
  EXPECT_FALSE(returned);
  EXPECT_TRUE(gst_pad_set_active(pad.get(), FALSE));
  blocked.join();
  EXPECT_EQ(flow, GST_FLOW_FLUSHING);
  gst_harness_teardown(in);
}

/// A flush by the application, of the gpumapsrc alone.
void flush(GstElement* src) {
  ASSERT_TRUE(gst_element_send_event(src, gst_event_new_flush_start()));
  ASSERT_TRUE(gst_element_send_event(src, gst_event_new_flush_stop(TRUE)));
}

// Two threads flush, as where both pipelines seek at once. A frame between the end of one flush and the beginning of
// the other would wait for a pipeline whose seek waits for it.
TEST(Flush, TheEndOfOneIsNoEndOfAnother) {
  Pipeline pipeline("appsrc ! gpumapsink name=sink  gpumapsrc name=src ! fakesink");
  ASSERT_NE(pipeline.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  struct Flushes {
    [[nodiscard]] bool now() const {
      GST_BASE_SINK_PREROLL_LOCK(sink);
      const bool flushing = sink->flushing != 0;
      GST_BASE_SINK_PREROLL_UNLOCK(sink);
      return flushing;
    }
    GstBaseSink* sink;
    const Pad in{gst_element_get_static_pad(GST_ELEMENT(sink), "sink")};
    std::thread other{};
    bool met = false;
  } flushes{GST_BASE_SINK(pipeline.element("sink"))};
  const Pad& in = flushes.in;
  const Pad out(gst_element_get_static_pad(pipeline.element("src"), "src"));
  // On the way across the pad is open, and its lock held.
  gst_pad_add_probe(
      out.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM | GST_PAD_PROBE_TYPE_EVENT_FLUSH),
      [](GstPad*, GstPadProbeInfo* info, gpointer own) {
        auto& all = *static_cast<Flushes*>(own);
        if (GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_FLUSH_STOP && !std::exchange(all.met, true)) {
          all.other = std::thread([&] { EXPECT_TRUE(gst_pad_send_event(all.in.get(), gst_event_new_flush_start())); });
          EXPECT_TRUE(eventually([&] { return all.now(); }));
        }
        return GST_PAD_PROBE_DROP;
      },
      &flushes, nullptr);
  GST_PAD_STREAM_LOCK(in.get());  // as FLUSH_STOP does: the other one does not go on before the look at it
  EXPECT_TRUE(gst_pad_send_event(in.get(), gst_event_new_flush_stop(TRUE)));
  EXPECT_TRUE(flushes.now());
  GST_PAD_STREAM_UNLOCK(in.get());
  flushes.other.join();
  EXPECT_TRUE(gst_pad_send_event(in.get(), gst_event_new_flush_stop(TRUE)));
  EXPECT_FALSE(flushes.now());
}

[[nodiscard]] bool is_flushing(GstElement* sink) {
  GST_BASE_SINK_PREROLL_LOCK(sink);
  const bool flushing = GST_BASE_SINK(sink)->flushing != 0;
  GST_BASE_SINK_PREROLL_UNLOCK(sink);
  return flushing;
}

/// Calls `at_event` for each event of a flush that leaves the pad "src" of `element`.
void watch_flushes(GstElement* element, std::function<GstPadProbeReturn(GstEventType)>& at_event) {
  const Pad out(gst_element_get_static_pad(element, "src"));
  gst_pad_add_probe(
      out.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM | GST_PAD_PROBE_TYPE_EVENT_FLUSH),
      [](GstPad*, GstPadProbeInfo* info, gpointer own) {
        const GstEventType type = GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info));
        return (*static_cast<std::function<GstPadProbeReturn(GstEventType)>*>(own))(type);
      },
      &at_event, nullptr);
}

// Of the two that begins first is not through yet when the other one ends. Upstream takes it for an error when an event
// is refused at a pad that does not flush.
TEST(Flush, TheEndOfOneLeavesThePadFlushingForAnother) {
  std::atomic<bool> begins{false}, goes_on{false};
  std::function<GstPadProbeReturn(GstEventType)> at_event = [&](GstEventType type) {
    if (type == GST_EVENT_FLUSH_START && !begins.exchange(true)) {
      EXPECT_TRUE(eventually([&] { return goes_on.load(); }));
    }
    return GST_PAD_PROBE_DROP;
  };
  Pipeline pipeline("appsrc ! gpumapsink name=sink  gpumapsrc name=src ! fakesink");
  ASSERT_NE(pipeline.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  watch_flushes(pipeline.element("src"), at_event);
  const Pad in(gst_element_get_static_pad(pipeline.element("sink"), "sink"));
  std::thread other([&] { EXPECT_TRUE(gst_pad_send_event(in.get(), gst_event_new_flush_start())); });
  EXPECT_TRUE(eventually([&] { return begins.load(); }));
  EXPECT_TRUE(gst_pad_send_event(in.get(), gst_event_new_flush_stop(TRUE)));
  EXPECT_TRUE(is_flushing(pipeline.element("sink")));
  EXPECT_TRUE(GST_PAD_IS_FLUSHING(in.get()));
  goes_on = true;
  other.join();
  EXPECT_TRUE(gst_pad_send_event(in.get(), gst_event_new_flush_stop(TRUE)));
  EXPECT_FALSE(is_flushing(pipeline.element("sink")));
  EXPECT_FALSE(GST_PAD_IS_FLUSHING(in.get()));
}

// The same behind the gpumapsrc, where the application flushes its pipeline while the other one seeks.
TEST(Flush, TheEndOfOneIsNoEndOfAnotherBehindTheSrc) {
  const std::string channel = new_channel();
  Pipeline from("appsrc ! gpumapsink name=sink channel=" + channel);
  const Pad in(gst_element_get_static_pad(from.element("sink"), "sink"));
  std::thread other;
  std::atomic<bool> met{false}, over{false};
  std::function<GstPadProbeReturn(GstEventType)> at_event = [&](GstEventType type) {
    if (type == GST_EVENT_FLUSH_STOP && !met.exchange(true)) {
      other = std::thread([&] {
        EXPECT_TRUE(gst_pad_send_event(in.get(), gst_event_new_flush_start()));
        over = true;
      });
      EXPECT_TRUE(eventually([&] { return over.load(); }));
    }
    return GST_PAD_PROBE_OK;
  };
  Pipeline to("gpumapsrc name=src channel=" + channel + " ! fakesink name=out");
  ASSERT_NE(from.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(to.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  watch_flushes(to.element("src"), at_event);
  flush(to.element("src"));
  EXPECT_TRUE(is_flushing(to.element("out")));
  other.join();
  EXPECT_TRUE(gst_pad_send_event(in.get(), gst_event_new_flush_stop(FALSE)));
  EXPECT_FALSE(is_flushing(to.element("out")));
}

// Both have begun when the first one ends. The frame that prerolls in between does not keep the second from its end.
TEST(Flush, AFrameBetweenTwoEndsKeepsNobody) {
  const std::string channel = new_channel();
  Pipeline from("appsrc name=in ! gpumapsink async=false channel=" + channel);
  Pipeline to("gpumapsrc name=src channel=" + channel + " ! fakesink name=out");
  ASSERT_NE(from.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(to.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  GstElement* const src = to.element("src");
  for (int count = 0; count < 2; ++count) ASSERT_TRUE(gst_element_send_event(src, gst_event_new_flush_start()));
  ASSERT_TRUE(gst_element_send_event(src, gst_event_new_flush_stop(FALSE)));
  ASSERT_EQ(gst_app_src_push_buffer(from.appsrc(), new_buffer(random_data(77, 1)).release()), GST_FLOW_OK);
  ASSERT_TRUE(to.reach(GST_STATE_PAUSED)) << to.error();
  std::atomic<bool> returned{false};
  std::thread second([&] {
    EXPECT_TRUE(gst_element_send_event(src, gst_event_new_flush_stop(FALSE)));
    returned = true;
  });
  EXPECT_TRUE(eventually([&] { return returned.load(); }));
  (void)to.set_state(GST_STATE_PLAYING);  // ends the wait of a frame
  second.join();
}

// A gpumapsrc becomes PAUSED behind sinks that are: its pad, not active yet, lets the start of a flush through to them,
// and not its end.
TEST(Flush, AheadOfAnActivePadLeavesNobodyFlushing) {
  const std::string channel = new_channel();
  Pipeline from("appsrc name=in ! gpumapsink async=false channel=" + channel);
  Pipeline to("gpumapsrc name=src channel=" + channel + " ! queue ! fakesink name=out async=false");
  Watch watch;
  watch.on(to.element("out"));
  const Pad out(gst_element_get_static_pad(to.element("src"), "src"));
  gst_pad_set_activate_function_full(
      out.get(),
      [](GstPad* pad, GstObject*) {
        flush(static_cast<GstElement*>(pad->activatedata));
        return gst_pad_activate_mode(pad, GST_PAD_MODE_PUSH, TRUE);
      },
      from.element("in"), nullptr);
  ASSERT_NE(from.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (std::size_t frames = 1; frames <= 3; ++frames) {
    ASSERT_NE(to.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_EQ(gst_app_src_push_buffer(from.appsrc(), new_buffer(random_data(77, 1)).release()), GST_FLOW_OK);
    ASSERT_TRUE(eventually([&] { return watch.count() == frames; })) << frames;
    ASSERT_NE(to.set_state(GST_STATE_READY), GST_STATE_CHANGE_FAILURE);
  }
}

// The source flushes for one after the other. The lock of a pipeline keeps only the seeks of its own application apart.
TEST(Flush, SeeksOfTwoPipelinesTakeTurns) {
  const std::string channel = new_channel();
  Pipeline from("videotestsrc ! identity name=in ! video/x-raw,width=34,height=18 ! gpumapsink channel=" + channel);
  Pipeline to("gpumapsrc channel=" + channel + " ! fakesink sync=false");
  ASSERT_NE(from.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(to.reach(GST_STATE_PLAYING));
  ASSERT_TRUE(from.reach(GST_STATE_PLAYING));
  struct Flushes {
    std::atomic<int> open{0}, most{0}, ended{0};
  } flushes;
  const Pad out(gst_element_get_static_pad(from.element("in"), "src"));
  gst_pad_add_probe(
      out.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM | GST_PAD_PROBE_TYPE_EVENT_FLUSH),
      [](GstPad*, GstPadProbeInfo* info, gpointer own) {
        auto& all = *static_cast<Flushes*>(own);
        const GstEventType type = GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info));
        if (type == GST_EVENT_FLUSH_START) {
          all.most = std::max(all.most.load(), ++all.open);
          // Another one that is to come would be here by now.
          static_cast<void>(eventually([&] { return all.most > 1; }, 300ms));
        } else if (type == GST_EVENT_FLUSH_STOP) {
          --all.open;
          ++all.ended;
        }
        return GST_PAD_PROBE_OK;
      },
      &flushes, nullptr);
  const auto seek = [](Pipeline& pipeline) {
    EXPECT_TRUE(gst_element_seek_simple(pipeline.get(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 3 * GST_SECOND));
  };
  for (int round = 0; round < 3; ++round) {
    std::thread other([&] { seek(to); });
    seek(from);
    other.join();
  }
  EXPECT_EQ(flushes.most, 1);
  EXPECT_EQ(flushes.ended, 6);
  EXPECT_EQ(from.error() + to.error(), "");
}

/// Counts the ends of flushes behind `src`, and those that reset the running time.
struct FlushStops {
  explicit FlushStops(GstElement* src) {
    const Pad out(gst_element_get_static_pad(src, "src"));
    gst_pad_add_probe(
        out.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM | GST_PAD_PROBE_TYPE_EVENT_FLUSH),
        [](GstPad*, GstPadProbeInfo* info, gpointer own) {
          GstEvent* const event = GST_PAD_PROBE_INFO_EVENT(info);
          gboolean anew = FALSE;
          if (GST_EVENT_TYPE(event) != GST_EVENT_FLUSH_STOP) return GST_PAD_PROBE_OK;
          gst_event_parse_flush_stop(event, &anew);
          ++static_cast<FlushStops*>(own)->all;
          if (anew != FALSE) ++static_cast<FlushStops*>(own)->resets;
          return GST_PAD_PROBE_OK;
        },
        this, nullptr);
  }
  std::atomic<int> all{0}, resets{0};
};

/// A producer in bytes, or one that gives times.
std::string producer_of(bool timed, const std::string& channel) {
  return std::string(timed ? "videotestsrc num-buffers=500" : "filesrc location=/proc/self/exe blocksize=99991") +
         " ! gpumapsink channel=" + channel;
}

// A demuxer behind the gpumapsrc gives times from 0 on behind a seek of its pipeline, as behind any source. What has
// times already is placed by the time shift, and the other branches of that pipeline go on, unless all of them seek.
TEST(Flush, ASeekInBytesOrOfTheWholePipelineResetsItsRunningTime) {
  for (const auto& [timed, whole] : {std::pair(false, false), {false, true}, {true, false}, {true, true}}) {
    SCOPED_TRACE(std::string(timed ? "timed" : "bytes") + (whole ? ", whole" : ", a sink"));
    const std::string channel = new_channel();
    Pipeline to("gpumapsrc name=src channel=" + channel + " ! fakesink name=out sync=false");
    const FlushStops stops(to.element("src"));
    Pipeline from(producer_of(timed, channel));
    ASSERT_NE(from.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(to.reach(GST_STATE_PAUSED)) << to.error();
    const auto seek = [format = timed ? GST_FORMAT_TIME : GST_FORMAT_BYTES](GstElement* element) {
      return gst_element_seek_simple(element, format, GST_SEEK_FLAG_FLUSH, 1234);
    };
    EXPECT_TRUE(seek(whole ? to.get() : to.element("out")));
    EXPECT_EQ(stops.all, 1);
    EXPECT_EQ(stops.resets, timed && !whole ? 0 : 1);
    EXPECT_TRUE(seek(from.get()));
    EXPECT_EQ(stops.all, 2);
    EXPECT_EQ(stops.resets, timed && !whole ? 0 : 1) << "the other pipeline's seek";
  }
}

/// Two gpumapsinks behind a demuxer: at the first of two seeks of one number it flushes both, and leaves the other out.
class Demuxed {
 public:
  explicit Demuxed(const std::array<std::string, 2>& channels) {
    for (const std::string& channel : channels) {
      outs_.push_back(gst_harness_new_parse(("gpumapsink async=false channel=" + channel).c_str()));
      gst_harness_set_src_caps(outs_.back(), new_caps("application/x-frame").release());
      gst_pad_add_probe(outs_.back()->srcpad, GST_PAD_PROBE_TYPE_EVENT_UPSTREAM, on_event, this, nullptr);
    }
  }
  ~Demuxed() {
    for (GstHarness* out : outs_) gst_harness_teardown(out);
  }
  Demuxed(const Demuxed&) = delete;
  Demuxed& operator=(const Demuxed&) = delete;

  void push() {
    for (GstHarness* out : outs_) {
      Buffer frame = new_buffer(random_data(1000, 1), 0);
      EXPECT_EQ(gst_harness_push(out, frame.release()), GST_FLOW_OK);
    }
  }

 private:
  static GstPadProbeReturn on_event(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer own) {
    auto* self = static_cast<Demuxed*>(own);
    GstEvent* const event = GST_PAD_PROBE_INFO_EVENT(info);
    if (GST_EVENT_TYPE(event) != GST_EVENT_SEEK) return GST_PAD_PROBE_OK;
    if (self->sought_.exchange(gst_event_get_seqnum(event)) == gst_event_get_seqnum(event)) return GST_PAD_PROBE_OK;
    for (GstEvent* flush : {gst_event_new_flush_start(), gst_event_new_flush_stop(TRUE)}) {
      gst_event_set_seqnum(flush, gst_event_get_seqnum(event));
      for (GstHarness* out : self->outs_) EXPECT_TRUE(gst_harness_push_event(out, gst_event_ref(flush)));
      gst_event_unref(flush);
    }
    return GST_PAD_PROBE_OK;
  }

  std::vector<GstHarness*> outs_;
  std::atomic<guint32> sought_{0};
};

// The seek comes to the demuxer through one sink, and its flush through both gpumapsrcs.
TEST(Flush, ASeekOfTheWholePipelineResetsItsRunningTimeInAllBranches) {
  const std::array channels{new_channel(), new_channel()};
  Demuxed demuxed(channels);
  Watch first, second;
  Pipeline to("gpumapsrc name=one channel=" + channels[0] +
              " ! fakesink name=out async=false sync=false gpumapsrc name=" + "other channel=" + channels[1] +
              " ! fakesink name=out2 async=false sync=false");
  const FlushStops one(to.element("one")), other(to.element("other"));
  first.on(to.element("out"));
  second.on(to.element("out2"));
  ASSERT_NE(to.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  demuxed.push();
  ASSERT_TRUE(eventually([&] { return first.count() == 1 && second.count() == 1; }));
  for (int round = 1; round <= 3; ++round) {
    EXPECT_TRUE(gst_element_seek_simple(to.get(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, round * GST_SECOND));
    EXPECT_EQ(one.all, round);
    EXPECT_EQ(one.resets, round);
    EXPECT_EQ(other.all, round);
    EXPECT_EQ(other.resets, round);
  }
}

// So does a stream in bytes that begins behind the end of another.
TEST(Flush, ANewStreamInBytesResetsTheRunningTime) {
  for (const bool timed : {false, true}) {
    const std::string channel = new_channel();
    Pipeline to("gpumapsrc name=src channel=" + channel + " ! fakesink sync=false");
    const FlushStops stops(to.element("src"));
    ASSERT_NE(to.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (int stream = 0; stream < 2; ++stream) {
      Pipeline from(producer_of(timed, channel));
      ASSERT_EQ(from.run(), "eos");
      ASSERT_EQ(to.wait(), "eos");
    }
    EXPECT_EQ(stops.all, 1);
    EXPECT_EQ(stops.resets, timed ? 0 : 1);
  }
}

// The sink's stream goes on, so nobody but the gpumapsrc can say its segment again.
TEST(Flush, OfTheSrcAloneKeepsTheSegment) {
  Monitor monitor;
  Pipeline pipeline(
      on_new_channel("videotestsrc ! video/x-raw,format=NV12,width=64,height=48,framerate=25/1 ! gpumapsink $CHANNEL "
                     "gpumapsrc name=src $CHANNEL ! appsink name=out sync=false max-buffers=2"));
  monitor.on(pipeline.element("out"), "sink");
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  for (int round = 0; round < 3; ++round) {
    ASSERT_NE(pull(pipeline.appsink()), nullptr);
    flush(pipeline.element("src"));
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
    EXPECT_EQ(gst_sample_get_segment(sample.get())->format, GST_FORMAT_TIME);
  }
  EXPECT_EQ(monitor.violations(), "");
}

// Flushes in every form that pads allow, holes that are marked, and events that do not wait behind frames or pile up.

/// A gpumapsink to push into; a gpumapsrc where a test wants one.
class Channel : public testing::Test {
 protected:
  void open(const std::string& options) {
    in_ = gst_harness_new_parse(("gpumapsink " + options + " channel=" + channel_).c_str());
    gst_harness_set_src_caps(in_, new_caps("application/octet-stream").release());
  }
  void consume(const std::string& behind = "fakesink name=out async=false sync=false") {
    out_ = std::make_unique<Pipeline>("gpumapsrc channel=" + channel_ + " ! " + behind);
    watch_.on(out_->element("out"));
    ASSERT_NE(out_->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  void TearDown() override {
    out_.reset();
    if (in_ != nullptr) gst_harness_teardown(in_);
  }
  void frame(GstClockTime pts = 0) {
    ASSERT_EQ(gst_harness_push(in_, new_buffer(random_data(64, 1), pts).release()), GST_FLOW_OK);
  }
  bool event(GstEvent* event) { return gst_harness_push_event(in_, event) != FALSE; }
  void segment() {
    GstSegment time;
    gst_segment_init(&time, GST_FORMAT_TIME);
    ASSERT_TRUE(event(gst_event_new_segment(&time)));
  }
  [[nodiscard]] bool arrives(std::size_t frames) {
    return eventually([&] { return watch_.count() >= frames; });
  }

  const std::string channel_ = new_channel();
  Watch watch_, before_;
  GstHarness* in_ = nullptr;
  std::unique_ptr<Pipeline> out_;
};

// A FLUSH_STOP may come alone, as where a probe ate its FLUSH_START; the src waits for a frame then, or works on one.
TEST_F(Channel, FlushStopWithoutFlushStart) {
  open("slots=4");
  consume();
  frame();
  ASSERT_TRUE(arrives(1));
  for (std::size_t round = 2; round < 12; ++round) {
    std::atomic<bool> returned{false};
    std::thread flusher([&] {
      event(gst_event_new_flush_stop(TRUE));
      returned = true;
    });
    const bool in_time = eventually([&] { return returned.load(); });
    if (!in_time) out_.reset();  // lets the flush go on, so that the other tests run
    flusher.join();
    ASSERT_TRUE(in_time) << "deadlock";
    segment();
    frame();
    ASSERT_TRUE(arrives(round)) << round << ": " << watch_.order();
  }
}

TEST_F(Channel, FlushesAgainAndAgainWithoutAPause) {
  open("slots=4");
  consume();
  for (int round = 0; round < 100; ++round) {
    ASSERT_TRUE(event(gst_event_new_flush_start()));
    event(gst_event_new_flush_start());  // refused by the pad, which is flushing
    ASSERT_TRUE(event(gst_event_new_flush_stop(round % 2 == 0)));
    segment();
    frame();
  }
  const std::size_t before = watch_.count();
  frame();
  EXPECT_TRUE(arrives(before + 1));
}

// What comes behind a hole says so: decoders and kernels that keep state begin anew there.
TEST_F(Channel, LeakyMarksTheHole) {
  for (const char* leaky : {"oldest", "newest"}) {
    SCOPED_TRACE(leaky);
    open(std::string("slots=4 leaky=") + leaky);
    for (int i = 0; i < 20; ++i) frame(static_cast<GstClockTime>(i) * GST_SECOND);
    consume();
    ASSERT_TRUE(arrives(3));
    frame(20 * GST_SECOND);
    ASSERT_TRUE(eventually([&] {
      const auto frames = watch_.frames();
      return !frames.empty() && frames.back().pts == 20 * GST_SECOND;
    }));
    const auto frames = watch_.frames();
    for (std::size_t i = 1; i < frames.size(); ++i) {
      EXPECT_EQ(frames[i].discont, frames[i].pts != frames[i - 1].pts + GST_SECOND)
          << "frame of " << frames[i].pts / GST_SECOND << " s behind that of " << frames[i - 1].pts / GST_SECOND
          << " s";
    }
    EXPECT_TRUE(frames.front().pts == 0 || frames.front().discont);
    out_.reset();
    watch_.forget();
    gst_harness_teardown(std::exchange(in_, nullptr));
  }
}

TEST_F(Channel, AFlushMarksTheHole) {
  open("slots=8");
  consume();
  frame(0);
  frame(GST_SECOND);
  ASSERT_TRUE(arrives(2));
  ASSERT_TRUE(event(gst_event_new_flush_start()));
  ASSERT_TRUE(event(gst_event_new_flush_stop(TRUE)));
  segment();
  frame(9 * GST_SECOND);
  frame(10 * GST_SECOND);
  ASSERT_TRUE(arrives(4)) << watch_.order();
  const auto frames = watch_.frames();
  EXPECT_FALSE(frames[1].discont);
  EXPECT_TRUE(frames[2].discont);
  EXPECT_FALSE(frames[3].discont);
}

// A flush ends the segment, also for who comes later.
TEST_F(Channel, ASrcThatComesBehindAFlushGetsNoOldSegment) {
  open("slots=8");
  consume();
  frame(0);
  ASSERT_TRUE(arrives(1));
  out_.reset();
  watch_.forget();
  ASSERT_TRUE(event(gst_event_new_flush_start()));
  ASSERT_TRUE(event(gst_event_new_flush_stop(TRUE)));
  consume();
  ASSERT_TRUE(eventually([&] { return watch_.events(GST_EVENT_STREAM_START) != 0; })) << watch_.order();
  segment();
  frame(GST_SECOND);
  ASSERT_TRUE(arrives(1)) << watch_.order();
  EXPECT_EQ(watch_.segments(), 1U) << watch_.order();
}

// An event out of band overtakes the frames that wait.
TEST_F(Channel, OutOfBandEventsPassAtOnce) {
  open("slots=32");
  consume("identity sleep-time=1000000 ! fakesink name=out async=false sync=false");
  GstElement* src = nullptr;
  GstIterator* sources = gst_bin_iterate_sources(GST_BIN(out_->get()));
  GValue value = G_VALUE_INIT;
  ASSERT_EQ(gst_iterator_next(sources, &value), GST_ITERATOR_OK);
  src = static_cast<GstElement*>(g_value_get_object(&value));
  before_.on(src, "src");
  g_value_unset(&value);
  gst_iterator_free(sources);
  for (int i = 0; i < 20; ++i) frame(static_cast<GstClockTime>(i) * GST_SECOND);
  ASSERT_TRUE(event(gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_OOB, gst_structure_new_empty("now"))));
  // Twenty frames take twenty seconds.
  EXPECT_TRUE(eventually([&] { return before_.events(GST_EVENT_CUSTOM_DOWNSTREAM_OOB) == 1; }, at_once))
      << before_.order();
  EXPECT_LT(before_.count(), 15U);
}

// Events without end and nobody to take them: memory does not grow with them.
TEST_F(Channel, GapsDoNotPileUp) {
  open("slots=4 leaky=oldest");
  frame();
  for (int i = 0; i < 5000; ++i) event(gst_event_new_gap(static_cast<GstClockTime>(i), 1));
  const std::size_t before = resident_bytes();
  for (int i = 0; i < 100000; ++i) event(gst_event_new_gap(static_cast<GstClockTime>(i), 1));
  if (!sanitized) {
    EXPECT_LE(resident_bytes(), before + 10'000'000) << "before: " << before;
  }
  consume();
  frame();
  EXPECT_TRUE(arrives(1));
}

/// The next start of a flush finds `sink` at the moment in which it goes to READY.
void stop_in_flush(GstElement* sink) {
  const Pad pad(gst_element_get_static_pad(sink, "sink"));
  const auto stop = [](GstPad*, GstPadProbeInfo* info, gpointer stopped) {
    if (GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) != GST_EVENT_FLUSH_START) return GST_PAD_PROBE_OK;
    EXPECT_EQ(gst_element_set_state(GST_ELEMENT(stopped), GST_STATE_READY), GST_STATE_CHANGE_SUCCESS);
    return GST_PAD_PROBE_REMOVE;
  };
  gst_pad_add_probe(pad.get(), GST_PAD_PROBE_TYPE_EVENT_FLUSH, stop, sink, nullptr);
}

// As where a pipeline goes to READY, its sinks first, while another one flushes it.
TEST(Flush, OfASinkOnItsWayToReadyLeavesItStartable) {
  const std::string channel = new_channel();
  GstHarness* in = gst_harness_new_parse(("gpumapsink sync=false channel=" + channel).c_str());
  open(in);
  Pipeline consumer("gpumapsrc channel=" + channel + " ! fakesink name=out sync=false");
  ASSERT_EQ(gst_harness_push(in, new_buffer(random_data(101, 1)).release()), GST_FLOW_OK);
  ASSERT_TRUE(consumer.reach(GST_STATE_PLAYING));
  for (int round = 0; round < 3; ++round) {
    stop_in_flush(consumer.element("out"));
    ASSERT_TRUE(gst_harness_push_event(in, gst_event_new_flush_start()));
    flush_stop(in);
    consumer.set_state(GST_STATE_READY);
    consumer.set_state(GST_STATE_PLAYING);
    ASSERT_EQ(gst_harness_push(in, new_buffer(random_data(101, 2)).release()), GST_FLOW_OK);
    ASSERT_TRUE(consumer.reach(GST_STATE_PLAYING)) << round;
  }
  gst_harness_teardown(in);
}

TEST(Flush, OfASinkBesideOneThatIsSoughtLeavesItStartable) {
  const std::string channel = new_channel();
  Pipeline producer(
      "audiotestsrc ! tee name=t ! queue ! fakesink name=other sync=false  t. ! queue ! gpumapsink "
      "sync=false channel=" +
      channel);
  Pipeline consumer("gpumapsrc name=src channel=" + channel + " ! fakesink sync=false");
  ASSERT_NE(producer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(consumer.reach(GST_STATE_PLAYING));
  ASSERT_TRUE(producer.reach(GST_STATE_PLAYING));
  for (int round = 0; round < 3; ++round) {
    stop_in_flush(producer.element("other"));
    EXPECT_TRUE(gst_element_seek_simple(consumer.element("src"), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 0));
    producer.set_state(GST_STATE_READY);
    producer.set_state(GST_STATE_PLAYING);
    ASSERT_TRUE(producer.reach(GST_STATE_PLAYING)) << round;
    ASSERT_TRUE(consumer.reach(GST_STATE_PLAYING)) << round;
  }
}

}  // namespace
}  // namespace gpumap::gst::test
