// SPDX-License-Identifier: MIT
// A stream that begins again: a new stream-start clears EOS, as on ordinary pads, and a gpumapsrc that comes again gets
// stream-start, caps and segment before the first frame, whatever upstream has sent again.
#include <gst/check/gstharness.h>

#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "matrix.hpp"
#include "temporary_folder.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

const std::string film = "videotestsrc num-buffers=20 ! video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! ";

class Producer : public testing::TestWithParam<GstState> {};
INSTANTIATE_TEST_SUITE_P(From, Producer, testing::Values(GST_STATE_NULL, GST_STATE_READY),
                         [](const auto& test) { return gst_element_state_get_name(test.param); });

// The consumer plays all the time.
TEST_P(Producer, StartsAgainAfterEos) {
  const std::string channel = new_channel();
  Watch watch;
  Pipeline out("gpumapsrc channel=" + channel + " ! video/x-raw ! fakesink name=out sync=false");
  watch.on(out.element("out"));
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Pipeline in(film + "gpumapsink channel=" + channel);
  for (std::size_t round = 1; round <= 4; ++round) {
    SCOPED_TRACE(round);
    ASSERT_EQ(in.run(), "eos");
    EXPECT_TRUE(eventually([&] { return watch.count() == round * 20; })) << watch.count();
    EXPECT_TRUE(eventually([&] { return watch.events(GST_EVENT_EOS) == round; }));
    EXPECT_EQ(watch.events(GST_EVENT_STREAM_START), round);
    ASSERT_TRUE(in.reach(GetParam()));
  }
}

// Another pipeline takes the place of the one that has ended, with other caps.
TEST(NextProducer, GoesOnWhereTheLastOneEnded) {
  const std::string channel = new_channel();
  Watch watch;
  Pipeline out("gpumapsrc channel=" + channel + " ! video/x-raw ! fakesink name=out sync=false");
  watch.on(out.element("out"));
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::size_t frames = 0;
  for (const char* format : {"I420", "RGB", "I420", "GRAY8"}) {
    SCOPED_TRACE(format);
    Pipeline in(std::string("videotestsrc num-buffers=20 ! video/x-raw,width=64,height=48,format=") + format +
                " ! gpumapsink channel=" + channel);
    ASSERT_EQ(in.run(), "eos");
    frames += 20;
    EXPECT_TRUE(eventually([&] { return watch.count() == frames; })) << watch.count();
  }
}

// Cut off in the middle, with no EOS, again and again.
TEST_P(Producer, StartsAgainWithoutEos) {
  const std::string channel = new_channel();
  Watch watch;
  Pipeline out("gpumapsrc channel=" + channel + " ! video/x-raw ! fakesink name=out sync=false");
  watch.on(out.element("out"));
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Pipeline in("videotestsrc ! video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! gpumapsink channel=" +
              channel);
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE(round);
    watch.forget();
    ASSERT_TRUE(in.reach(GST_STATE_PLAYING)) << in.error();
    EXPECT_TRUE(eventually([&] { return watch.count() > 10; })) << watch.order();
    ASSERT_TRUE(in.reach(GetParam()));
  }
}

// As a player's second film: the whole pipeline to READY and back after its end, as with a queue.
TEST_P(Producer, AndConsumerTogether) {
  Watch watch;
  Pipeline pipeline(on_new_channel(film + "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! video/x-raw ! fakesink name=out"));
  watch.on(pipeline.element("out"));
  for (std::size_t round = 1; round <= 4; ++round) {
    ASSERT_EQ(pipeline.run(), "eos");
    EXPECT_EQ(watch.count(), round * 20);
    ASSERT_TRUE(pipeline.reach(GetParam()));
  }
}

// Its end was in the ring, with frames before it, and no one is to see either.
TEST_P(Producer, AndConsumerTogetherBehindTheEnd) {
  Watch watch;
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=5 ! video/x-raw,format=I420,width=64,height=48,framerate=5/1 "
                     "! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! fakesink name=out sync=true"));
  watch.on(pipeline.element("out"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  ASSERT_TRUE(eventually([&] { return watch.count() >= 2; }));
  g_usleep(50000);  // the rest is in the ring, and EOS
  ASSERT_TRUE(pipeline.reach(GetParam()));
  // On a busy machine the end may have come out after all: the next one is waited for.
  const std::shared_ptr<GstBus> bus(gst_element_get_bus(pipeline.get()), gst_object_unref);
  gst_bus_set_flushing(bus.get(), TRUE);
  gst_bus_set_flushing(bus.get(), FALSE);
  watch.forget();
  ASSERT_EQ(pipeline.run(), "eos");
  const auto times = watch.times();
  ASSERT_EQ(times.size(), 5U) << watch.order();
  for (GstClockTime i = 0; i < 5; ++i) EXPECT_EQ(times[i], i * 200 * GST_MSECOND);
}

/// The running time of the first frame behind each flush; negative: it was due before the pipeline's began.
struct FirstFrames {
  void watch(GstElement* sink) {
    gst_segment_init(&segment, GST_FORMAT_TIME);
    const Pad pad(gst_element_get_static_pad(sink, "sink"));
    const auto types = GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM | GST_PAD_PROBE_TYPE_EVENT_FLUSH;
    gst_pad_add_probe(pad.get(), static_cast<GstPadProbeType>(types), note, this, nullptr);
  }
  static GstPadProbeReturn note(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<FirstFrames*>(user);
    if ((info->type & GST_PAD_PROBE_TYPE_BUFFER) == 0) {
      GstEvent* event = GST_PAD_PROBE_INFO_EVENT(info);
      if (GST_EVENT_TYPE(event) == GST_EVENT_SEGMENT) gst_event_copy_segment(event, &self->segment);
      if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_STOP) self->flushed = true;
    } else if (std::exchange(self->flushed, false)) {
      const GstClockTime pts = GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info));
      guint64 time = 0;
      const int sign = gst_segment_to_running_time_full(&self->segment, GST_FORMAT_TIME, pts, &time);
      self->last = sign * static_cast<GstClockTimeDiff>(time);
      ++self->count;
    }
    return GST_PAD_PROBE_OK;
  }

  GstSegment segment{};
  bool flushed = false;
  std::atomic<GstClockTimeDiff> last{0};
  std::atomic<int> count{0};
};

/// A consumer that has a branch of its own, beside what comes from the producer, by channel or by socket.
class OtherBranch : public testing::TestWithParam<bool> {
 protected:
  void play() {
    rendered_.on_rendered(out_.element("out"));
    passed_.on(out_.element("out"));
    ASSERT_NE(in_.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(out_.reach(GST_STATE_PLAYING)) << out_.error();
    ASSERT_TRUE(eventually([&] { return rendered_.count() > 5; }));
    base_ = gst_element_get_base_time(out_.get());
  }
  /// The flush came, frames came behind it at their time, and the running time is what it was.
  void expect_goes_on() {
    ASSERT_TRUE(eventually([&] { return passed_.events(GST_EVENT_FLUSH_STOP) > 0; }));
    ASSERT_TRUE(out_.reach(GST_STATE_PLAYING)) << out_.error();
    EXPECT_TRUE(rendered_.keeps_pace(15, 45)) << passed_.order();
    EXPECT_EQ(gst_element_get_base_time(out_.get()), base_);
  }

  const TemporaryFolder folder_;
  const std::string where_ =
      GetParam() ? "socket-path=" + (folder_.path() / "link").string() : "channel=" + new_channel();
  Watch rendered_, passed_;
  FirstFrames first_;
  Pipeline in_{"videotestsrc ! video/x-raw,format=I420,width=64,height=48,framerate=30/1 ! gpumapsink " + where_};
  // The sink of the gpumapsrc seeks first.
  Pipeline out_{"gpumapsrc " + where_ +
                " ! fakesink name=out sync=true "
                "videotestsrc ! video/x-raw,width=16,height=16,framerate=30/1 ! fakesink sync=true"};
  GstClockTime base_ = 0;
};
INSTANTIATE_TEST_SUITE_P(By, OtherBranch, testing::Bool(),
                         [](const auto& test) { return test.param ? "Socket" : "Channel"; });

TEST_P(OtherBranch, KeepsItsTimeWhenTheProducerBeginsAnew) {
  if (GetParam()) GTEST_SKIP() << "at a socket the end of a stream is the end of the connection";
  play();
  ASSERT_TRUE(gst_element_send_event(in_.get(), gst_event_new_eos()));
  ASSERT_TRUE(eventually([&] { return passed_.events(GST_EVENT_EOS) == 1; }));
  ASSERT_TRUE(in_.reach(GST_STATE_NULL));
  ASSERT_NE(in_.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  expect_goes_on();
}

TEST_P(OtherBranch, KeepsItsTimeWhenTheProducerSeeks) {
  play();
  ASSERT_TRUE(gst_element_seek_simple(in_.get(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 100 * GST_SECOND));
  expect_goes_on();
}

TEST_P(OtherBranch, KeepsItsTimeWhenItsOwnSideSeeks) {
  play();
  ASSERT_TRUE(gst_element_seek_simple(out_.element("out"), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 100 * GST_SECOND));
  expect_goes_on();
}

// The local branch resets the running time of all: a frame in the old one is due after as long as the pipeline has
// played.
TEST_P(OtherBranch, GoesOnAtOnceWhenTheWholePipelineSeeks) {
  first_.watch(out_.element("out"));
  play();
  for (int round = 1; round <= 3; ++round) {
    const std::size_t before = rendered_.count();
    ASSERT_TRUE(eventually([&] { return rendered_.count() > before + 30; }));
    ASSERT_TRUE(gst_element_seek_simple(out_.get(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 100 * GST_SECOND));
    ASSERT_TRUE(eventually([&] { return first_.count == round; }));
    EXPECT_LT(first_.last, 700 * GST_MSECOND) << "round " << round;  // the ring's frames are ahead
    ASSERT_TRUE(out_.reach(GST_STATE_PLAYING)) << out_.error();
  }
}

class Consumer : public testing::Test {
 protected:
  void SetUp() override {
    const std::string channel = new_channel();
    in_ = gst_harness_new_parse(("gpumapsink slots=16 channel=" + channel).c_str());
    out_ = std::make_unique<Pipeline>("gpumapsrc channel=" + channel + " ! fakesink name=out sync=false async=false");
    watch_.on(out_->element("out"));
  }
  void TearDown() override {
    out_.reset();
    gst_harness_teardown(in_);
  }
  void stream_start() {
    ASSERT_TRUE(
        gst_harness_push_event(in_, gst_event_new_stream_start(("stream" + std::to_string(++streams_)).c_str())));
  }
  void caps() { ASSERT_TRUE(gst_harness_push_event(in_, gst_event_new_caps(video_caps("GRAY8", 8, 8).get()))); }
  void segment() {
    GstSegment time;
    gst_segment_init(&time, GST_FORMAT_TIME);
    ASSERT_TRUE(gst_harness_push_event(in_, gst_event_new_segment(&time)));
  }
  void frame() { ASSERT_EQ(gst_harness_push(in_, new_buffer(random_data(64, 1), 0).release()), GST_FLOW_OK); }
  void restart() {
    ASSERT_TRUE(out_->reach(GST_STATE_NULL));
    watch_.forget();
    ASSERT_NE(out_->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  void begin_and_restart() {
    stream_start();
    caps();
    segment();
    frame();
    restart();
    expect_begins_well();
  }
  void end_stream() {
    ASSERT_TRUE(gst_harness_push_event(in_, gst_event_new_eos()));
    EXPECT_TRUE(eventually([&] { return watch_.events(GST_EVENT_EOS) == 1; }));
  }
  /// Stream-start, caps and segment come in this order, before the frame, and the caps are those of the stream.
  void expect_begins_well() {
    ASSERT_TRUE(eventually([&] { return watch_.count() > 0; })) << watch_.order() << out_->wait(1ms);
    EXPECT_EQ(watch_.order().find("stream-start caps segment "), 0U) << watch_.order();
    const Pad pad(gst_element_get_static_pad(out_->element("out"), "sink"));
    const Caps got(gst_pad_get_current_caps(pad.get()));
    ASSERT_NE(got, nullptr);
    EXPECT_STREQ(gst_structure_get_name(gst_caps_get_structure(got.get(), 0)), "video/x-raw");
  }

  Watch watch_;
  GstHarness* in_ = nullptr;
  std::unique_ptr<Pipeline> out_;
  int streams_ = 0;
};

TEST_F(Consumer, ComesAgainInTheMiddle) {
  begin_and_restart();
  for (int round = 0; round < 5; ++round) {
    restart();
    frame();
    frame();
    expect_begins_well();
  }
}

// Upstream begins anew and sends no caps, since they stay: what sticks on a pad sticks in the ring.
TEST_F(Consumer, ComesAgainAfterAStreamStartWithoutCaps) {
  begin_and_restart();
  stream_start();
  segment();
  frame();
  restart();
  frame();
  expect_begins_well();
  ASSERT_TRUE(out_->reach(GST_STATE_NULL));
  stream_start();  // and no segment: the last one is good
  frame();
  restart();
  frame();
  expect_begins_well();
}

// What sticks on a pad outlives EOS, whether the new stream begins before the src leaves, or while it is away.
TEST_F(Consumer, IsAwayWhileAStreamWithoutCapsFollowsEos) {
  begin_and_restart();
  end_stream();
  ASSERT_TRUE(out_->reach(GST_STATE_NULL));
  stream_start();
  segment();
  restart();
  frame();
  expect_begins_well();
}

TEST_F(Consumer, IsThereAgainBeforeAStreamWithoutCapsFollowsEos) {
  begin_and_restart();
  end_stream();
  restart();
  ASSERT_TRUE(out_->reach(GST_STATE_PLAYING));
  stream_start();
  frame();  // the segment holds, too
  expect_begins_well();
}

TEST_F(Consumer, ComesAgainAfterEos) {
  begin_and_restart();
  end_stream();
  stream_start();
  segment();
  restart();
  frame();
  expect_begins_well();
}

TEST_F(Consumer, ComesAgainAfterAFlush) {
  begin_and_restart();
  ASSERT_TRUE(out_->reach(GST_STATE_NULL));
  ASSERT_TRUE(gst_harness_push_event(in_, gst_event_new_flush_start()));
  ASSERT_TRUE(gst_harness_push_event(in_, gst_event_new_flush_stop(TRUE)));
  segment();
  restart();
  frame();
  expect_begins_well();
}

/// As GLib's thread pool where no thread is to be had: it says so, and keeps the work for a thread that comes later.
struct PoorPool {
  GstTaskPool base;
  GstTaskPoolFunction work;
  gpointer data;
};
struct PoorPoolClass {
  GstTaskPoolClass base;
};
G_DEFINE_TYPE(PoorPool, poor_pool, GST_TYPE_TASK_POOL)
void poor_pool_init(PoorPool* /*self*/) {}
void poor_pool_class_init(PoorPoolClass* klass) {
  klass->base.prepare = [](GstTaskPool*, GError**) {};
  klass->base.push = [](GstTaskPool* pool, GstTaskPoolFunction work, gpointer data, GError** error) -> gpointer {
    auto* self = reinterpret_cast<PoorPool*>(pool);
    self->work = work;
    self->data = data;
    g_set_error(error, G_THREAD_ERROR, G_THREAD_ERROR_AGAIN, "no thread");
    return nullptr;
  };
}

// A gpumapsrc that gets no thread says so, and a thread that comes later finds nothing to do. Then there is one.
TEST(NoThread, IsAnErrorAndLeavesNothingBehind) {
  const Ptr<GstTaskPool> pool(GST_TASK_POOL(g_object_new(poor_pool_get_type(), nullptr)));
  const auto give_pool = [](GstBus*, GstMessage* message, gpointer poor) {
    GstStreamStatusType type{};
    if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_STREAM_STATUS) return GST_BUS_PASS;
    gst_message_parse_stream_status(message, &type, nullptr);
    if (type != GST_STREAM_STATUS_TYPE_CREATE) return GST_BUS_PASS;
    gst_task_set_pool(GST_TASK(g_value_get_object(gst_message_get_stream_status_object(message))),
                      static_cast<GstTaskPool*>(poor));
    return GST_BUS_PASS;
  };
  auto* poor = reinterpret_cast<PoorPool*>(pool.get());
  const std::string channel = new_channel();
  {
    Pipeline out("gpumapsrc channel=" + channel + " ! fakesink name=out sync=false");
    const Ptr<GstBus> bus(gst_element_get_bus(out.get()));
    gst_bus_set_sync_handler(bus.get(), give_pool, pool.get(), nullptr);
    EXPECT_EQ(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    EXPECT_NE(out.wait().find("raise the limit of processes"), std::string::npos) << out.error();
    ASSERT_NE(poor->work, nullptr);
    gst_bus_set_sync_handler(bus.get(), nullptr, nullptr, nullptr);
    ASSERT_TRUE(out.reach(GST_STATE_NULL));
    Pipeline in(film + "gpumapsink channel=" + channel);
    ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_EQ(in.run(), "eos");
    EXPECT_EQ(out.wait(), "eos");
  }
  poor->work(poor->data);
}

// The end of a pipeline: EOS sent to all of it drains what is queued, as behind a queue; and a stop in the middle is no
// error, whichever element holds gpumapsink's buffers at that moment.

const std::string caps = "video/x-raw,format=I420,width=64,height=48,framerate=100/1";

// What `gst-launch-1.0 -e` does at Ctrl-C. Downstream is slow, so that most frames are in the ring by then.
class Eos : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    To, Eos,
    testing::Values("queue", "gpumapsink slots=64 $CHANNEL gpumapsrc $CHANNEL",
                    "gpumapsink slots=64 transport=pinned $CHANNEL gpumapsrc $CHANNEL",
                    "gpumapsink slots=64 $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=identity",
                    "gpumapsink slots=64 $CHANNEL gpumapsrc is-live=true $CHANNEL"),
    [](const auto& test) { return std::to_string(test.index) + "_" + as_name(test.param); });

TEST_P(Eos, DrainsTheWholePipeline) {
  Watch watch;
  Pipeline pipeline(on_new_channel("appsrc name=in format=time caps=" + caps + " ! " + GetParam() +
                                   " ! identity sleep-time=20000 ! fakesink name=out sync=false"));
  watch.on(pipeline.element("out"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(push(pipeline.appsrc(),
                     new_buffer(random_data(64 * 48 * 3 / 2, 1), static_cast<GstClockTime>(i) * 10 * GST_MSECOND)));
  }
  ASSERT_TRUE(eventually([&] { return gst_app_src_get_current_level_bytes(pipeline.appsrc()) == 0; }));
  g_usleep(50000);
  ASSERT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
  ASSERT_EQ(pipeline.wait(), "eos");
  EXPECT_EQ(watch.count(), 40U);
}

// Alone, with no sink on its channel, a gpumapsrc ends at once.
TEST(EosAlone, EndsTheSrc) {
  Pipeline pipeline("gpumapsrc channel=" + new_channel() + " ! fakesink async=false");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
  EXPECT_EQ(pipeline.wait(), "eos");
}

// The consumer's EOS alone ends the consumer, while a producer in another pipeline goes on.
TEST(EosOfTheConsumer, EndsIt) {
  Watch watch;
  const std::string channel = new_channel();
  Pipeline in("videotestsrc is-live=true ! " + caps + " ! gpumapsink leaky=oldest channel=" + channel);
  Pipeline out("gpumapsrc channel=" + channel + " ! fakesink name=out");
  watch.on(out.element("out"));
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return watch.count() > 5; }));
  ASSERT_TRUE(gst_element_send_event(out.get(), gst_event_new_eos()));
  // Its EOS comes through the ring or at once: a person decides with EOS that it ends.
  EXPECT_EQ(out.wait(), "eos");
}

/// Upstreams that ask for buffers while the pipeline stops.
class Stop : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    Of, Stop,
    testing::Values("x264enc speed-preset=ultrafast ! h264parse ! avdec_h264", "vp8enc deadline=1 ! vp8dec",
                    "theoraenc ! theoradec", "jpegenc ! jpegdec", "videoconvert ! pngenc snapshot=false ! pngdec",
                    "x264enc speed-preset=ultrafast ! h264parse ! avdec_h264 ! videoconvert ! video/x-raw,format=RGB",
                    "videoscale ! video/x-raw,width=100", "textoverlay text=hello", "identity"),
    [](const auto& test) { return as_name(test.param); });

TEST_P(Stop, IsNoError) {
  for (const GstState to : {GST_STATE_READY, GST_STATE_NULL}) {
    Pipeline pipeline(on_new_channel("videotestsrc ! video/x-raw,format=I420,width=96,height=64,framerate=100/1 ! " +
                                     std::string(GetParam()) +
                                     " ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! fakesink sync=true"));
    for (int round = 0; round < 8; ++round) {
      ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
      g_usleep(20000UL + 7000UL * static_cast<gulong>(round));
      // A bin throws away what its bus has on the way to NULL: READY is where an error would be seen.
      ASSERT_TRUE(pipeline.reach(GST_STATE_READY)) << pipeline.error();
      EXPECT_EQ(pipeline.wait(1ms), "timeout") << "stop " << round;
      if (to == GST_STATE_NULL) pipeline.stop();
    }
  }
}

// Upstream takes caps that are refused for an error, but here the sink has closed while they were on their way.
TEST(StopOfASink, RefusesNoCaps) {
  GstHarness* in = gst_harness_new_with_padnames("gpumapsink", "sink", nullptr);
  g_object_set(in->element, "channel", new_channel().c_str(), nullptr);
  gst_harness_play(in);
  gst_harness_set_src_caps(in, new_caps("application/octet-stream").release());
  EXPECT_EQ(gst_harness_push(in, new_buffer(random_data(101, 1)).release()), GST_FLOW_OK);
  struct Closing {
    GstBaseSink* sink;
    std::thread thread;
  } closing{GST_BASE_SINK(in->element), {}};
  const auto close = [](GstPad*, GstPadProbeInfo* info, gpointer data) {
    auto* const now = static_cast<Closing*>(data);
    if (GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) != GST_EVENT_CAPS) return GST_PAD_PROBE_OK;
    now->thread = std::thread([now] { gst_element_set_state(GST_ELEMENT(now->sink), GST_STATE_READY); });
    EXPECT_TRUE(eventually([&] {
      GST_BASE_SINK_PREROLL_LOCK(now->sink);
      const bool closed = now->sink->flushing != 0;
      GST_BASE_SINK_PREROLL_UNLOCK(now->sink);
      return closed;
    }));
    return GST_PAD_PROBE_REMOVE;
  };
  gst_pad_add_probe(GST_BASE_SINK_PAD(closing.sink), GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, close, &closing, nullptr);
  const Ptr<GstEvent> other(gst_event_new_caps(new_caps("application/x-other").get()));
  ASSERT_EQ(gst_pad_store_sticky_event(in->srcpad, other.get()), GST_FLOW_OK);
  EXPECT_EQ(gst_harness_push(in, new_buffer(random_data(101, 2)).release()), GST_FLOW_FLUSHING);
  closing.thread.join();
  gst_harness_teardown(in);
}

// A start that fails while a flush asks for another one: what answers GStreamer's messages of threads may read a
// property, from another thread, too. No lock of ours is held over them.
TEST(NoThread, IsToldWithoutALock) {
  const Ptr<GstTaskPool> pool(GST_TASK_POOL(g_object_new(poor_pool_get_type(), nullptr)));
  struct Told {
    GstElement* src;
    GstTaskPool* pool;
    unsigned created = 0;
    bool answered = true;
    std::vector<std::future<void>> late;
    void flush() const {
      gst_element_send_event(src, gst_event_new_flush_start());
      gst_element_send_event(src, gst_event_new_flush_stop(TRUE));
    }
  };
  Pipeline out("gpumapsrc name=src channel=" + new_channel() + " ! fakesink name=out sync=false");
  Told told{out.element("src"), pool.get()};
  const auto on_message = [](GstBus*, GstMessage* message, gpointer user) {
    auto& heard = *static_cast<Told*>(user);
    GstStreamStatusType type{};
    if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_STREAM_STATUS) return GST_BUS_PASS;
    gst_message_parse_stream_status(message, &type, nullptr);
    if (type != GST_STREAM_STATUS_TYPE_CREATE) return GST_BUS_PASS;
    gst_task_set_pool(GST_TASK(g_value_get_object(gst_message_get_stream_status_object(message))), heard.pool);
    // The first time the pad is being activated: this start fails, and leaves an active pad without a task.
    if (++heard.created == 1) {
      heard.flush();
      return GST_BUS_PASS;
    }
    auto reading = std::async(std::launch::async, [src = heard.src] {
      GstStructure* stats = nullptr;
      g_object_get(src, "stats", &stats, nullptr);
      gst_structure_free(stats);
    });
    heard.answered = reading.wait_for(5s) == std::future_status::ready;
    heard.late.push_back(std::move(reading));
    return GST_BUS_PASS;
  };
  const Ptr<GstBus> bus(gst_element_get_bus(out.get()));
  gst_bus_set_sync_handler(bus.get(), on_message, &told, nullptr);
  (void)out.set_state(GST_STATE_PAUSED);
  EXPECT_NE(out.wait().find("raise the limit of processes"), std::string::npos) << out.error();
  told.flush();
  EXPECT_TRUE(told.answered) << "stats waited for a lock";
  gst_bus_set_sync_handler(bus.get(), nullptr, nullptr, nullptr);
  EXPECT_TRUE(out.reach(GST_STATE_NULL));
}

}  // namespace
}  // namespace gpumap::gst::test
