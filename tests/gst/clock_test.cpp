// SPDX-License-Identifier: MIT
// Time: two pipelines with two base times agree about when a frame is due; sync=true keeps a sink to the clock; latency
// is what upstream says. Time is simulated where it is more than a moment.
#include <algorithm>
#include <atomic>
#include <mutex>

#include "due.hpp"
#include "temporary_folder.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

void expect_same_moments(bool src_first) {
  const std::string channel = new_channel();
  SimulatedTime time;
  GstClock* const clock = time.clock(1'000 * GST_SECOND);
  Due sent, received;
  Pipeline in(
      "videotestsrc is-live=true ! video/x-raw,format=NV12,width=64,height=48,framerate=25/1 ! "
      "gpumapsink name=sink channel=" +
      channel);
  Pipeline out("gpumapsrc is-live=true channel=" + channel + " ! fakesink name=out sync=true");
  sent.watch(in.element("sink"), "sink");
  received.watch(out.element("out"), "sink");
  for (Pipeline* one : {&in, &out}) use(*one, clock);
  Pipeline& first = src_first ? out : in;
  Pipeline& second = src_first ? in : out;
  ASSERT_NE(first.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  time.pass(150ms);
  ASSERT_NE(second.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(in.reach(GST_STATE_PLAYING));
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING));
  // A frame is due at one moment of the clock, wherever it is looked at, unless that lies before a pipeline's time.
  const GstClockTime begin = std::max(gst_element_get_base_time(in.get()), gst_element_get_base_time(out.get()));
  ASSERT_TRUE(eventually([&] {
    time.pass(40ms);
    return received.count() >= 25;
  }));
  ASSERT_TRUE(gst_element_send_event(in.get(), gst_event_new_eos()));
  time.pass(1s);  // until the last frame is over
  ASSERT_EQ(in.wait(), "eos");
  ASSERT_EQ(out.wait(), "eos");
  ASSERT_EQ(sent.times.size(), received.times.size());
  std::size_t compared = 0;
  for (std::size_t i = 0; i < sent.times.size(); ++i) {
    if (sent.times[i] < begin) continue;
    EXPECT_EQ(sent.times[i], received.times[i]) << i;
    ++compared;
  }
  EXPECT_GE(compared, 20U);
}

TEST(TwoPipelines, SrcPlaysFirst) {
  expect_same_moments(true);
}
TEST(TwoPipelines, SinkPlaysFirst) {
  expect_same_moments(false);
}

// Without a clock a pipeline has no running time: its producer begins now, and a consumer takes times as they are.
TEST(TwoPipelines, OneWithoutAClockMovesNoFrame) {
  const TemporaryFolder folder;
  const std::vector<std::string> cases{"near, none there", "near, none here", "near, none there and here",
                                       "far, none there",  "far, none here",  "far, none there and here"};
  side_by_side(cases, [&folder](const std::string& where) {
    const bool far = where.starts_with("far");
    const std::string meeting =
        far ? "socket-path=" + (folder.path() / std::to_string(where.size())).string() : "channel=" + new_channel();
    const bool here = where.find(" here") != where.npos;
    Pipeline in("appsrc name=in format=time caps=application/x-frame ! gpumapsink name=sink sync=false " + meeting +
                (far ? " wait-for-connection=true" : ""));
    Pipeline out("gpumapsrc " + meeting + " ! fakesink name=out sync=false async=false");
    if (where.find("there") != where.npos) use(in, nullptr);
    if (here) use(out, nullptr);
    Due due;
    due.watch(out.element("out"), "sink");
    ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (std::size_t n = 0; n < 3; ++n) {
      ASSERT_TRUE(push(in.appsrc(), new_buffer(random_data(64, n), n * GST_SECOND)));
      ASSERT_TRUE(eventually([&] { return due.count() == n + 1; }));
      ASSERT_TRUE(in.reach(GST_STATE_PLAYING));
      ASSERT_TRUE(out.reach(GST_STATE_PAUSED) && out.reach(GST_STATE_PLAYING));
    }
    EXPECT_LT(due.running[0], GST_SECOND * 40);
    EXPECT_EQ(due.running[1] - due.running[0], GST_SECOND);
    EXPECT_EQ(due.running[2] - due.running[1], GST_SECOND);
  });
}

// A sink loses its step at a segment, and then takes all that comes.
TEST(TwoPipelines, AStepThroughThePausedOneEnds) {
  const std::string channel = new_channel();
  Watch watch;
  Pipeline in(
      "videotestsrc ! video/x-raw,format=GRAY8,width=16,height=16,framerate=50/1 ! gpumapsink name=sink channel=" +
      channel);
  Pipeline out("gpumapsrc channel=" + channel + " ! fakesink name=out sync=true");
  watch.on(out.element("out"));
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return stat(in.element("sink"), "frames") > 5; }));
  g_usleep(100'000);  // what has come so far was due before time can begin here
  ASSERT_TRUE(out.reach(GST_STATE_PAUSED));
  for (std::size_t steps = 1; steps < 5; ++steps) {
    ASSERT_TRUE(gst_element_send_event(out.element("out"), gst_event_new_step(GST_FORMAT_BUFFERS, 2, 1, TRUE, FALSE)));
    ASSERT_EQ(gst_element_get_state(out.get(), nullptr, nullptr, 10 * GST_SECOND), GST_STATE_CHANGE_SUCCESS);
    EXPECT_EQ(watch.count(), 1 + 2 * steps);
  }
}

/// Frames of any pace, from before time begins at the other side.
struct EarlyProducer {
  std::string channel = new_channel();
  Pipeline in{
      "videotestsrc ! video/x-raw,format=I420,width=16,height=16,framerate=50/1 ! gpumapsink name=sink channel=" +
      channel};
  void run() {
    ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(eventually([&] { return stat(in.element("sink"), "frames") > 5; }));
    g_usleep(200'000);
  }
};

TEST(TwoPipelines, NoFrameGoesBackBehindThoseOfAPreroll) {
  Due due;
  EarlyProducer early;
  early.run();
  Pipeline out("gpumapsrc channel=" + early.channel + " ! queue name=out max-size-buffers=30 ! fakesink sync=true");
  due.watch(out.element("out"), "sink");
  ASSERT_TRUE(out.reach(GST_STATE_PAUSED));
  ASSERT_TRUE(eventually([&] { return due.count() >= 5; }));
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING));
  ASSERT_TRUE(eventually([&] { return due.count() >= 60; }));
  const std::lock_guard lock(due.mutex);
  EXPECT_TRUE(std::ranges::is_sorted(due.running));
}

// What an encoder's frames are late by is of one stretch of time.
TEST(TwoPipelines, ASeekOfARecordingBeginsItAnew) {
  Due due;
  EarlyProducer early;
  early.run();
  g_usleep(1'000'000);
  Pipeline out("gpumapsrc channel=" + early.channel + " ! jpegenc name=out ! fakesink sync=false");
  due.watch(out.element("out"), "sink");
  ASSERT_TRUE(out.reach(GST_STATE_PAUSED));
  ASSERT_TRUE(gst_element_seek_simple(out.get(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 2 * GST_SECOND));
  ASSERT_TRUE(out.reach(GST_STATE_PAUSED));
  const std::size_t before = due.count();
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING));
  ASSERT_TRUE(eventually([&] { return due.count() >= before + 5; }));
  const std::lock_guard lock(due.mutex);
  EXPECT_LT(due.running[before], GST_SECOND / 2);
  for (std::size_t n = 1; n < 5; ++n) {
    EXPECT_EQ(due.running[before + n] - due.running[before], n * 20 * GST_MSECOND);
  }
}

// A pause of the consumer moves gaps as it does frames, also where no frame comes first.
TEST(TwoPipelines, AGapBehindAPauseIsDueInItsTime) {
  const std::string channel = new_channel();
  SimulatedTime time;
  GstClock* const clock = time.clock(1'000 * GST_SECOND);
  Pipeline in("appsrc name=in format=time caps=application/x-frame ! gpumapsink sync=false channel=" + channel);
  Pipeline out("gpumapsrc channel=" + channel + " ! fakesink name=out sync=false async=false");
  for (Pipeline* one : {&in, &out}) use(*one, clock);
  Due gaps;
  gaps.watch(out.element("out"), "sink", GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(push(in.appsrc(), new_buffer(random_data(64, 1), 0)));
  ASSERT_TRUE(in.reach(GST_STATE_PLAYING) && out.reach(GST_STATE_PLAYING));
  ASSERT_TRUE(out.reach(GST_STATE_PAUSED));
  time.pass(100s);
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING));
  const Pad pad(gst_element_get_static_pad(in.element("in"), "src"));
  EXPECT_TRUE(gst_pad_push_event(pad.get(), gst_event_new_gap(101 * GST_SECOND, GST_SECOND)));
  ASSERT_TRUE(eventually([&] { return gaps.count() == 1; }));
  EXPECT_EQ(gaps.times[0], gst_element_get_base_time(in.get()) + 101 * GST_SECOND);
}

/// Timestamps of the QoS events that leave a sink pad for upstream. Filled by a probe.
struct Qos {
  std::mutex mutex;
  std::vector<GstClockTime> times;

  void watch(GstElement* element) {
    const Pad pad(gst_element_get_static_pad(element, "sink"));
    gst_pad_add_probe(pad.get(), GST_PAD_PROBE_TYPE_EVENT_UPSTREAM, note, this, nullptr);
  }
  static GstPadProbeReturn note(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<Qos*>(user);
    GstEvent* event = GST_PAD_PROBE_INFO_EVENT(info);
    if (GST_EVENT_TYPE(event) != GST_EVENT_QOS) return GST_PAD_PROBE_OK;
    GstClockTime time = 0;
    gst_event_parse_qos(event, nullptr, nullptr, nullptr, &time);
    const std::lock_guard lock(self->mutex);
    self->times.push_back(time);
    return GST_PAD_PROBE_OK;
  }
};

/// Frames that are in the ring when `stop` has come to the producer are due when they always were.
void expect_due_as_ever(void (*stop)(Pipeline& producer)) {
  const std::string channel = new_channel();
  SimulatedTime time;
  GstClock* const clock = time.clock(1'000 * GST_SECOND);
  Due received;
  Pipeline in("appsrc name=in format=time caps=application/x-frame ! gpumapsink name=sink slots=6 channel=" + channel);
  Pipeline out("gpumapsrc channel=" + channel + " ! appsink name=out sync=false max-buffers=1");
  received.watch(out.element("out"), "sink");
  for (Pipeline* one : {&in, &out}) use(*one, clock);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  constexpr std::uint64_t frames = 6;
  // So far ahead that they are due after the beginning of the pipeline that plays later, which may be late.
  constexpr GstClockTime ahead = 100 * GST_SECOND;
  const auto push_some = [&](std::uint64_t from, std::uint64_t until) {
    for (std::uint64_t n = from; n < until; ++n) {
      ASSERT_TRUE(push(in.appsrc(), new_buffer(random_data(65, n), ahead + n * GST_MSECOND)));
    }
  };
  push_some(0, 1);
  ASSERT_NE(pull(out.appsink()), nullptr);
  ASSERT_TRUE(in.reach(GST_STATE_PLAYING));
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING));
  push_some(1, 2);  // from here on both base times are known
  ASSERT_NE(pull(out.appsink()), nullptr);
  time.pass(400ms);
  push_some(2, frames);
  ASSERT_TRUE(eventually([&] { return stat(in.element("sink"), "frames") == frames; }));
  const GstClockTime base = gst_element_get_base_time(in.get());
  stop(in);
  for (std::uint64_t n = 2; n < frames; ++n) ASSERT_NE(pull(out.appsink()), nullptr) << n;
  const std::lock_guard lock(received.mutex);
  ASSERT_EQ(received.times.size(), frames);
  for (std::uint64_t n = 1; n < frames; ++n) EXPECT_EQ(received.times[n], base + ahead + n * GST_MSECOND) << n;
}

// A pipeline on its way down stops its sink first, and only at the end writes down when it stopped.
TEST(TwoPipelines, ASinkThatStopsFirstMovesNoFrame) {
  expect_due_as_ever([](Pipeline& producer) { gst_element_set_state(producer.element("sink"), GST_STATE_PAUSED); });
}

// On the way below PAUSED it forgets when it stopped.
TEST(TwoPipelines, ASinkThatStopsForGoodMovesNoFrame) {
  expect_due_as_ever([](Pipeline& producer) {
    ASSERT_TRUE(producer.reach(GST_STATE_PAUSED));
    GST_STATE_TARGET(producer.get()) = GST_STATE_NULL;
    gst_element_set_start_time(producer.get(), 0);
  });
}

// As where the producer's frames come from a third pipeline, whose flushes do not reset its time. The sink is out of
// PLAYING until it has a frame, and the time goes on.
TEST(TwoPipelines, AFlushThatKeepsTheTimeMovesNoSegment) {
  const std::string channel = new_channel();
  SimulatedTime time;
  GstClock* const clock = time.clock(1'000 * GST_SECOND);
  Pipeline in("appsrc name=in format=time caps=application/x-frame ! gpumapsink name=sink channel=" + channel);
  Pipeline out("gpumapsrc channel=" + channel + " ! appsink name=out sync=false");
  for (Pipeline* one : {&in, &out}) use(*one, clock);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Pad entry(gst_element_get_static_pad(in.element("sink"), "sink"));
  const Pad exit(gst_element_get_static_pad(out.element("out"), "sink"));
  const auto segment_behind = [&](std::uint64_t n) {
    EXPECT_TRUE(push(in.appsrc(), new_buffer(random_data(65, n), n * GST_MSECOND)));
    EXPECT_NE(pull(out.appsink()), nullptr);
    EXPECT_TRUE(in.reach(GST_STATE_PLAYING) && out.reach(GST_STATE_PLAYING));
    return Ptr<GstEvent>(gst_pad_get_sticky_event(exit.get(), GST_EVENT_SEGMENT, 0));
  };
  static_cast<void>(segment_behind(0));
  Ptr<GstEvent> event = segment_behind(1);  // both base times are known
  GstSegment before, behind;
  gst_event_copy_segment(event.get(), &before);
  time.pass(100s);
  GstEvent* const sent =
      gst_event_copy(Ptr<GstEvent>(gst_pad_get_sticky_event(entry.get(), GST_EVENT_SEGMENT, 0)).get());
  const guint32 number = gst_util_seqnum_next();
  gst_event_set_seqnum(sent, number);
  EXPECT_TRUE(gst_pad_send_event(entry.get(), gst_event_new_flush_start()));
  EXPECT_TRUE(gst_pad_send_event(entry.get(), gst_event_new_flush_stop(FALSE)));
  EXPECT_TRUE(gst_pad_send_event(entry.get(), sent));
  ASSERT_TRUE(eventually([&] {
    event.reset(gst_pad_get_sticky_event(exit.get(), GST_EVENT_SEGMENT, 0));
    return event && gst_event_get_seqnum(event.get()) == number;
  }));
  gst_event_copy_segment(event.get(), &behind);
  EXPECT_TRUE(gst_segment_is_equal(&behind, &before)) << behind.base << " " << before.base;
}

// A pause moves the running time, which a segment says. videorate fills each segment from its start on.
TEST(TwoPipelines, APauseIsNotFilledWithFrames) {
  const std::string channel = new_channel();
  SimulatedTime time;
  GstClock* const clock = time.clock(1'000 * GST_SECOND);
  Pipeline in(
      "appsrc name=in format=time caps=video/x-raw,format=GRAY8,width=8,height=8,framerate=25/1 ! "
      "gpumapsink channel=" +
      channel);
  Pipeline out("gpumapsrc channel=" + channel + " ! videorate ! appsink name=out sync=false");
  for (Pipeline* one : {&in, &out}) use(*one, clock);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  constexpr GstClockTime one = 40 * GST_MSECOND;
  const auto push_some = [&](std::uint64_t from, std::uint64_t until) {
    for (std::uint64_t n = from; n < until; ++n)
      EXPECT_TRUE(push(in.appsrc(), new_buffer(random_data(64, n), n * one)));
  };
  push_some(0, 10);
  ASSERT_TRUE(in.reach(GST_STATE_PLAYING) && out.reach(GST_STATE_PLAYING));
  push_some(10, 20);
  EXPECT_NE(out.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  push_some(20, 30);
  ASSERT_TRUE(out.reach(GST_STATE_PAUSED));
  time.pass(100s);
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING));
  push_some(30, 40);
  ASSERT_EQ(gst_app_src_end_of_stream(in.appsrc()), GST_FLOW_OK);
  std::vector<GstClockTime> times;
  while (const Ptr<GstSample> sample{pull(out.appsink())})
    times.push_back(GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())));
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  EXPECT_GE(times.size(), 40U);
  EXPECT_LE(times.size(), 45U);  // videorate gives the frame before a segment once more
}

// One that comes late to a stream gets no frames for the time before.
TEST(TwoPipelines, ALateConsumerIsFilledWithNoFrames) {
  const std::string channel = new_channel();
  Pipeline in(
      "appsrc name=in format=time caps=video/x-raw,format=GRAY8,width=8,height=8,framerate=25/1 ! "
      "gpumapsink name=sink leaky=oldest slots=4 channel=" +
      channel);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  constexpr std::uint64_t frames = 100;
  constexpr GstClockTime one = 40 * GST_MSECOND;
  for (std::uint64_t n = 0; n < frames; ++n) ASSERT_TRUE(push(in.appsrc(), new_buffer(random_data(64, n), n * one)));
  ASSERT_EQ(gst_app_src_end_of_stream(in.appsrc()), GST_FLOW_OK);
  ASSERT_TRUE(eventually([&] { return stat(in.element("sink"), "frames") == frames; }));
  Pipeline out("gpumapsrc channel=" + channel + " ! videorate ! appsink name=out sync=false");
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::size_t received = 0;
  for (Sample sample = pull(out.appsink()); sample; sample = pull(out.appsink())) {
    EXPECT_GE(GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())), (frames - 4) * one);
    ++received;
  }
  EXPECT_GE(received, 4U);
}

/// A consumer whose time begins 400 ms after its producer's, so that ten of fifteen frames were due before.
class LateConsumer {
 public:
  LateConsumer(const std::string& caps, const std::string& behind)
      : in_("appsrc name=in format=time caps=" + caps + " ! gpumapsink name=sink slots=20 channel=" + channel_),
        out_("gpumapsrc channel=" + channel_ + " ! " + behind) {
    GstClock* const clock = time_.clock(1'000 * GST_SECOND);
    for (Pipeline* one : {&in_, &out_}) use(*one, clock);
  }
  [[nodiscard]] GstElement* element(const char* name) { return out_.element(name); }
  void run() {
    ASSERT_NE(in_.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    push_some(0, 5);
    ASSERT_TRUE(in_.reach(GST_STATE_PLAYING));
    time_.pass(400ms);
    ASSERT_TRUE(out_.reach(GST_STATE_PLAYING));
    push_some(5, 15);
    ASSERT_EQ(gst_app_src_end_of_stream(in_.appsrc()), GST_FLOW_OK);
    ASSERT_EQ(out_.wait(), "eos");
  }

 private:
  void push_some(std::uint64_t from, std::uint64_t until) {
    for (std::uint64_t n = from; n < until; ++n) {
      EXPECT_TRUE(push(in_.appsrc(), new_buffer(random_data(64, n), n * 40 * GST_MSECOND)));
    }
  }

  const std::string channel_ = new_channel();
  SimulatedTime time_;
  Pipeline in_, out_;
};
constexpr const char* pictures = "video/x-raw,format=GRAY8,width=8,height=8,framerate=25/1";
constexpr const char* samples = "audio/x-raw,format=U8,rate=1600,channels=1,layout=interleaved";

// Frames that were due before the consumer's time began are due as it begins: GStreamer's mixers take no running time
// below 0.
TEST(TwoPipelines, NoFrameIsDueBeforeTheTimeBegins) {
  Due received;
  LateConsumer consumer(pictures, "compositor ! fakesink name=out sync=false");
  received.watch(consumer.element("out"), "sink");
  consumer.run();
  EXPECT_GE(received.count(), 2U);
}

/// Segments before frames, and how many of them end with the frame behind.
struct Segments {
  std::atomic<int> all{0}, of_one_frame{0};
  GstSegment last{};

  void watch(GstElement* sink) {
    const Pad pad(gst_element_get_static_pad(sink, "sink"));
    const auto types = GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM;
    gst_pad_add_probe(pad.get(), static_cast<GstPadProbeType>(types), note, this, nullptr);
  }
  static GstPadProbeReturn note(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<Segments*>(user);
    if ((info->type & GST_PAD_PROBE_TYPE_BUFFER) != 0) {
      const GstBuffer* frame = GST_PAD_PROBE_INFO_BUFFER(info);
      if (self->last.stop == GST_BUFFER_PTS(frame) + 1) ++self->of_one_frame;
    } else if (GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_SEGMENT) {
      gst_event_copy_segment(GST_PAD_PROBE_INFO_EVENT(info), &self->last);
      ++self->all;
    }
    return GST_PAD_PROBE_OK;
  }
};

// videorate fills a segment up to its end, and encoders of audio begin anew at each.
TEST(TwoPipelines, ASegmentForAPictureEndsWithItAndSamplesGetNone) {
  Segments of_pictures, of_samples;
  LateConsumer sees(pictures, "fakesink name=out sync=false");
  of_pictures.watch(sees.element("out"));
  sees.run();
  EXPECT_GT(of_pictures.of_one_frame, 1);
  LateConsumer hears(samples, "fakesink name=out sync=false");
  of_samples.watch(hears.element("out"));
  hears.run();
  EXPECT_EQ(of_samples.of_one_frame, 0);
  EXPECT_LE(of_samples.all, 3) << "one, and one for each move of the running time";
}

// "Late at 10 s" is said in the running time of the element that hears it: else an upstream that skips what is late
// skips all.
TEST(TwoPipelines, QosSpeaksOfTheSameMoment) {
  const std::string channel = new_channel();
  SimulatedTime time;
  GstClock* const clock = time.clock(1'000 * GST_SECOND);
  Due received;
  Qos qos;
  Pipeline out("gpumapsrc is-live=true channel=" + channel + " ! fakesink name=out qos=false");
  use(out, clock);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  time.pass(300ms);
  Pipeline in(
      "videotestsrc is-live=true ! video/x-raw,format=NV12,width=64,height=48,framerate=25/1 ! "
      "gpumapsink name=sink channel=" +
      channel);
  use(in, clock);
  received.watch(out.element("out"), "sink");
  qos.watch(in.element("sink"));
  ASSERT_TRUE(in.reach(GST_STATE_PLAYING));
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING));
  // Frames that were taken when both base times were known.
  ASSERT_TRUE(eventually([&, before = received.count()] {
    time.pass(40ms);
    return received.count() > before + 5;
  }));
  const GstClockTime earlier = gst_element_get_base_time(in.get()) - gst_element_get_base_time(out.get());
  ASSERT_GE(earlier, 300 * GST_MSECOND);
  const Pad pad(gst_element_get_static_pad(out.element("out"), "sink"));
  EXPECT_TRUE(gst_pad_push_event(pad.get(), gst_event_new_qos(GST_QOS_TYPE_UNDERFLOW, 1.5, 7, 10 * GST_SECOND)));
  // Before the other side's time began there is nothing to skip.
  gst_pad_push_event(pad.get(), gst_event_new_qos(GST_QOS_TYPE_UNDERFLOW, 1.5, 7, 0));
  // So early that it would be before that time, too. GStreamer's functions assert that it is not.
  const auto little = static_cast<GstClockTimeDiff>(earlier + 1);
  EXPECT_TRUE(gst_pad_push_event(
      pad.get(), gst_event_new_qos(GST_QOS_TYPE_OVERFLOW, 0.5, -little, static_cast<GstClockTime>(little))));
  const std::lock_guard lock(qos.mutex);
  ASSERT_EQ(qos.times.size(), 2U);
  EXPECT_EQ(qos.times[0], 10 * GST_SECOND - earlier);
  EXPECT_EQ(qos.times[1], 1U);
}

TEST(Latency, IsUpstreams) {
  const std::string channel = new_channel();
  Pipeline in(
      "videotestsrc is-live=true ! video/x-raw,format=NV12,width=64,height=48,framerate=25/1 ! "
      "gpumapsink channel=" +
      channel);
  Pipeline out("gpumapsrc name=src channel=" + channel + " ! fakesink");
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING));
  GstQuery* query = gst_query_new_latency();
  const Pad pad(gst_element_get_static_pad(out.element("src"), "src"));
  ASSERT_TRUE(gst_pad_query(pad.get(), query));
  gboolean live = FALSE;
  GstClockTime least = 0, most = 0;
  gst_query_parse_latency(query, &live, &least, &most);
  gst_query_unref(query);
  EXPECT_TRUE(live);
  EXPECT_EQ(least, 40 * GST_MSECOND);
}

TEST(Pacing, SyncedSinkKeepsToTheClock) {
  SimulatedTime time;
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=26 ! video/x-raw,width=64,height=48,framerate=25/1 ! "
                     "gpumapsink name=sink sync=true $CHANNEL gpumapsrc $CHANNEL ! fakesink sync=false"));
  use(pipeline, time.clock(1'000 * GST_SECOND));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  // One of 26 frames is due at once, and 25 in the second that follows.
  for (std::uint64_t due = 1; due <= 26; ++due, time.pass(40ms)) {
    EXPECT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "frames") >= due; })) << due;
    EXPECT_EQ(stat(pipeline.element("sink"), "frames"), due);
  }
  EXPECT_EQ(pipeline.wait(), "eos");
}

TEST(Pacing, UnsyncedSinkDoesNot) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=20 ! video/x-raw,width=64,height=48,framerate=1/10 ! "
                     "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! fakesink sync=false"));
  ASSERT_EQ(pipeline.run(), "eos");  // 200 s by the clock
}

// Asleep until a frame's time in 100 s, or paused for good: stop, flush and pause wake it.
TEST(Pacing, SleepingSinkStopsAtOnce) {
  for (const GstState state : {GST_STATE_PLAYING, GST_STATE_PAUSED}) {
    const auto problem = best_of_three([state]() -> std::string {
      Pipeline pipeline(
          on_new_channel("videotestsrc ! video/x-raw,width=64,height=48,framerate=1/100 ! "
                         "gpumapsink name=sink sync=true $CHANNEL gpumapsrc $CHANNEL ! fakesink sync=false"));
      if (!pipeline.reach(GST_STATE_PLAYING)) return "no PLAYING: " + pipeline.error();
      EXPECT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "frames") == 1; }));
      g_usleep(100000);
      if (state == GST_STATE_PAUSED && !pipeline.reach(GST_STATE_PAUSED)) return "no PAUSED: " + pipeline.error();
      // Paused, one more: what follows gpumapsrc has to preroll.
      const auto wanted = state == GST_STATE_PAUSED ? 2U : 1U;
      EXPECT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "frames") == wanted; }));
      const Time took = pipeline.stop();
      return took < 1s ? "" : "stopped after " + std::to_string(took.count()) + " ms";
    });
    EXPECT_EQ(problem, "");
  }
}

// Paused, what follows gpumapsrc prerolls and no more: frames that pass before their time are missing afterwards. The
// slots hold three seconds, less than the four that pass.
TEST(Pacing, PauseLosesNothing) {
  SimulatedTime time;
  Watch rendered;
  Pipeline pipeline(
      on_new_channel("videotestsrc ! video/x-raw,width=64,height=48,framerate=25/1 ! gpumapsink name=sink slots=75 "
                     "sync=true leaky=oldest $CHANNEL gpumapsrc $CHANNEL ! queue max-size-buffers=2 ! "
                     "fakesink name=out sync=true"));
  use(pipeline, time.clock(1'000 * GST_SECOND));
  rendered.on_rendered(pipeline.element("out"));
  GstElement* sink = pipeline.element("sink");
  // The time of a frame passes, and one is shown.
  const auto step = [&] {
    const std::size_t before = rendered.count();
    time.pass(40ms);
    return eventually([&] { return rendered.count() > before; });
  };
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(step()) << i;
  ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED));
  const std::uint64_t frames = stat(sink, "frames");
  for (int i = 0; i < 100; ++i) {
    time.pass(40ms);
    g_usleep(4000);
  }
  EXPECT_LE(stat(sink, "frames"), frames + 2);
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(step()) << i;
  EXPECT_EQ(stat(sink, "drops"), 0U);
}

TEST(Pacing, SleepingSinkIsFlushedAtOnce) {
  Pipeline pipeline(
      on_new_channel("videotestsrc ! video/x-raw,width=64,height=48,framerate=1/100 ! "
                     "gpumapsink name=sink sync=true $CHANNEL gpumapsrc $CHANNEL ! fakesink sync=false"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  ASSERT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "frames") == 1; }));
  g_usleep(100000);
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(gst_element_seek_simple(pipeline.get(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 0));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
  EXPECT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "frames") >= 2; }));
  EXPECT_LT(pipeline.stop(), at_once);
}

}  // namespace
}  // namespace gpumap::gst::test
