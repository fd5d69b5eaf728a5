// SPDX-License-Identifier: MIT
// The time of frames between two pipelines that meet at a socket: base times, clocks, segments, and instant rates.
#include <gst/base/gstbasesink.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <string>

#include "gst/channel/channel.hpp"
#include "link_sides.hpp"

namespace gpumap::gst::test {
namespace {

// What is due at a moment there is due at that moment here, whenever either began, and by whatever clock: one by NTP
// counts from 1900.
TEST_F(LinkSides, TwoBaseTimesAreOneMoment) {
  for (const guint64 years : {0, 127}) {
    SCOPED_TRACE(years);
    const Ptr<GstClock> clock(GST_CLOCK(gst_object_ref_sink(g_object_new(GST_TYPE_SYSTEM_CLOCK, nullptr))));
    gst_clock_set_calibration(clock.get(), 0, years * 365 * 24 * 3600 * GST_SECOND, 1, 1);
    Pipeline producer(
        "videotestsrc is-live=true ! video/x-raw,width=16,height=16,framerate=50/1 ! gpumapsink name=sink " + socket());
    gst_pipeline_use_clock(GST_PIPELINE(producer.get()), clock.get());
    start(producer);
    ASSERT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") > 75; }));
    Pipeline consumer(to_appsink("is-live=true leaky=oldest"));
    start(consumer);
    const auto lateness = [&] {
      const Sample sample = pull(consumer.appsink());
      if (!sample) return GST_CLOCK_STIME_NONE;
      const GstClockTime due = gst_segment_to_running_time(gst_sample_get_segment(sample.get()), GST_FORMAT_TIME,
                                                           GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())));
      const Ptr<GstClock> here(gst_element_get_clock(consumer.element("src")));
      const GstClockTime now = gst_clock_get_time(here.get()) - gst_element_get_base_time(consumer.element("src"));
      return GST_CLOCK_DIFF(due, now);
    };
    // A busy machine is late, too, but not with every frame.
    const auto comes_in_time = [&] {
      return eventually([&] { return std::llabs(lateness()) < 500 * static_cast<GstClockTimeDiff>(GST_MSECOND); });
    };
    for (int n = 0; n < 10; ++n) (void)lateness();
    EXPECT_TRUE(comes_in_time());
    // A pause there moves its base time.
    ASSERT_TRUE(producer.reach(GST_STATE_PAUSED));
    g_usleep(1'500'000);
    start(producer);
    for (int n = 0; n < 20; ++n) (void)lateness();
    EXPECT_TRUE(comes_in_time());
  }
}

// An encoder takes many frames before its pipeline plays, and gives them in another order: a muxer would leave out
// those that go back in time.
TEST_F(LinkSides, ARecordingHasAllFramesAtTheirDistances) {
  constexpr GstClockTime one = 20 * GST_MSECOND;
  constexpr std::uint64_t frames = 90;
  Pipeline producer(
      "videotestsrc is-live=true ! video/x-raw,format=I420,width=64,height=48,framerate=50/1 ! gpumapsink name=sink " +
      socket());
  start(producer);
  ASSERT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") > 50; }));
  for (const std::string sound : {"", "audiotestsrc ! fakesink sync=true "}) {
    SCOPED_TRACE(sound);
    Pipeline consumer(sound + "gpumapsrc name=src num-buffers=" + std::to_string(frames) + " " + socket() +
                      (sound.empty() ? " ! x264enc" : " ! jpegenc") + " ! appsink name=out sync=false");
    start(consumer);
    std::set<GstClockTime> times;
    GstClockTime last = 0, last_due = 0;
    bool valid = true;
    for (Sample sample = pull(consumer.appsink()); sample; sample = pull(consumer.appsink())) {
      const GstClockTime due = gst_segment_to_running_time(gst_sample_get_segment(sample.get()), GST_FORMAT_TIME,
                                                           GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())));
      valid = valid && GST_CLOCK_TIME_IS_VALID(due);
      if (GST_CLOCK_TIME_IS_VALID(due)) times.insert(due);
      if (const GstClockTime pts = GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())); pts > last) {
        last = pts;
        last_due = due;
      }
      if (times.size() == frames) break;
    }
    const GstClockTime base = gst_element_get_base_time(consumer.get());
    if (sound.empty()) {
      EXPECT_TRUE(valid);
      ASSERT_EQ(times.size(), frames);
      EXPECT_LT(*times.begin(), GST_SECOND);
      EXPECT_EQ(*times.rbegin() - *times.begin(), (frames - 1) * one);
    } else {  // which has a time of its own: what is due there at a moment is due here then
      EXPECT_EQ(base + last_due, gst_element_get_base_time(producer.get()) + last);
    }
  }
}

GstClockTime running_time_at(GstPad* pad, GstClockTime time) {
  const Ptr<GstEvent> event(gst_pad_get_sticky_event(pad, GST_EVENT_SEGMENT, 0));
  const GstSegment* segment = nullptr;
  gst_event_parse_segment(event.get(), &segment);
  return gst_segment_to_running_time(segment, GST_FORMAT_TIME, time);
}

/// How far ahead of its time a frame comes to a pad, at most.
struct Ahead {
  std::atomic<GstClockTimeDiff> most{G_MININT64};
  std::atomic<GstClockTime> last{0};  ///< PTS

  void watch(GstElement* element) {
    const Pad pad(gst_element_get_static_pad(element, "src"));
    gst_pad_add_probe(pad.get(), GST_PAD_PROBE_TYPE_BUFFER, note, this, nullptr);
  }
  static GstPadProbeReturn note(GstPad* pad, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<Ahead*>(user);
    const GstClockTime time = GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info));
    const GstClockTime running = running_time_at(pad, time);
    const Element element(gst_pad_get_parent_element(pad));
    const Ptr<GstClock> clock(gst_element_get_clock(element.get()));
    if (clock && GST_CLOCK_TIME_IS_VALID(running)) {
      const GstClockTime due = gst_element_get_base_time(element.get()) + running;
      self->most = std::max<GstClockTimeDiff>(self->most, GST_CLOCK_DIFF(gst_clock_get_time(clock.get()), due));
    }
    self->last = time;
    return GST_PAD_PROBE_OK;
  }
};

// By the time of the next producer they would be due as much later as theirs had run.
TEST_F(LinkSides, FramesOfAProducerThatIsGoneAreDueWhenTheyWere) {
  Ahead ahead;
  Pipeline producer(
      "videotestsrc is-live=true ! video/x-raw,width=16,height=16,framerate=50/1 ! gpumapsink name=sink " + socket());
  start(producer);
  Pipeline consumer("gpumapsrc name=src leaky=oldest " + socket() + " ! fakesink name=out sync=true");
  ahead.watch(consumer.element("src"));
  start(consumer);
  ASSERT_TRUE(eventually([&] { return ahead.last > 4 * GST_SECOND; }));
  ASSERT_TRUE(consumer.reach(GST_STATE_PAUSED));
  g_usleep(500'000);
  ASSERT_TRUE(producer.reach(GST_STATE_NULL));
  start(producer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1 && stat(producer.element("sink"), "frames") > 10; }));
  start(consumer);
  ASSERT_TRUE(eventually([&] { return ahead.last < 4 * GST_SECOND; })) << "of the next producer";
  EXPECT_LT(ahead.most, 2 * static_cast<GstClockTimeDiff>(GST_SECOND));
}

// The first frame comes while the producer is paused, and is due as time begins there.
TEST_F(LinkSides, ARecordingHasNoGapWhereItsProducerBeginsLater) {
  constexpr GstClockTimeDiff one = 20 * GST_MSECOND;
  Pipeline producer(
      "videotestsrc num-buffers=90 ! video/x-raw,format=I420,width=64,height=48,framerate=50/1 ! gpumapsink "
      "wait-for-connection=true sync=true " +
      socket());
  ASSERT_NE(producer.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! x264enc ! appsink name=out sync=false");
  start(consumer);
  ASSERT_TRUE(eventually([&] { return stat(consumer.element("src"), "frames") > 0; }));
  g_usleep(500'000);
  start(producer);
  std::set<GstClockTime> times;
  for (Sample sample = pull(consumer.appsink()); sample; sample = pull(consumer.appsink())) {
    times.insert(gst_segment_to_running_time(gst_sample_get_segment(sample.get()), GST_FORMAT_TIME,
                                             GST_BUFFER_PTS(gst_sample_get_buffer(sample.get()))));
  }
  ASSERT_EQ(times.size(), 90U);
  for (auto time = std::next(times.begin()); time != times.end(); ++time) {
    EXPECT_LT(std::llabs(GST_CLOCK_DIFF(*std::prev(time), *time) - one), GST_MSECOND);
  }
}

/// By what the running time of the last frame at a pad is more than its time.
struct LastShift {
  std::atomic<GstClockTimeDiff> value{0};
  std::atomic<std::uint64_t> frames{0}, without{0};  ///< without: those that are due never

  void watch(GstElement* element) {
    const Pad pad(gst_element_get_static_pad(element, "src"));
    gst_pad_add_probe(pad.get(), GST_PAD_PROBE_TYPE_BUFFER, note, this, nullptr);
  }
  static GstPadProbeReturn note(GstPad* pad, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<LastShift*>(user);
    const GstClockTime time = GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info));
    const GstClockTime running = running_time_at(pad, time);
    if (GST_CLOCK_TIME_IS_VALID(running)) {
      self->value = GST_CLOCK_DIFF(time, running);
    } else {
      ++self->without;
    }
    ++self->frames;
    return GST_PAD_PROBE_OK;
  }
};

// All sources of a pipeline wait for its encoder together, whichever comes first.
TEST_F(LinkSides, ARecordingOfPictureAndSoundHasAllFramesInTime) {
  constexpr GstClockTime one = 20 * GST_MSECOND;
  constexpr std::uint64_t frames = 90;
  for (const bool far : {true, false}) {
    for (const bool picture_first : {true, false}) {
      SCOPED_TRACE(testing::Message() << (far ? "sockets" : "channels") << ", picture first: " << picture_first);
      const auto way = [&, channel = new_channel()](const char* what) {
        return far ? "socket-path=" + path + what : "channel=" + channel + what;
      };
      LastShift picture, sound;
      Pipeline producer("videotestsrc is-live=true ! video/x-raw,format=I420,width=64,height=48,framerate=50/1 ! " +
                        ("gpumapsink name=sink " + way("picture")) +
                        " audiotestsrc is-live=true ! audio/x-raw,rate=48000 ! gpumapsink " + way("sound"));
      start(producer);
      // Without a client frames pass by; in a channel they wait.
      ASSERT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") > (far ? 50U : 1U); }));
      const std::string seen = "gpumapsrc name=seen num-buffers=" + std::to_string(frames) + " " + way("picture") +
                               " ! x264enc ! appsink name=out sync=false ";
      const std::string heard = "gpumapsrc name=heard " + way("sound") + " ! queue ! appsink name=other sync=false ";
      Pipeline consumer(picture_first ? seen + heard : heard + seen);
      picture.watch(consumer.element("seen"));
      sound.watch(consumer.element("heard"));
      start(consumer);
      std::set<GstClockTime> times;
      for (Sample sample = pull(consumer.appsink()); sample; sample = pull(consumer.appsink())) {
        const GstClockTime due = gst_segment_to_running_time(gst_sample_get_segment(sample.get()), GST_FORMAT_TIME,
                                                             GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())));
        EXPECT_TRUE(GST_CLOCK_TIME_IS_VALID(due)) << times.size() << " frames before";
        times.insert(due);
      }
      ASSERT_EQ(times.size(), frames);
      EXPECT_LT(*times.begin(), GST_SECOND);
      EXPECT_EQ(*times.rbegin() - *times.begin(), (frames - 1) * one);
      EXPECT_EQ(picture.value, sound.value);
      EXPECT_EQ(picture.without, 0U);
    }
  }
}

// Who connects late gets no frames for the time before: videorate fills a segment from its start on.
TEST_F(LinkSides, ALateClientIsFilledWithNoFrames) {
  Pipeline producer(
      "appsrc name=in format=time caps=video/x-raw,format=GRAY8,width=8,height=8,framerate=25/1 ! "
      "gpumapsink name=sink sync=false " +
      socket());
  start(producer);
  constexpr std::uint64_t before = 100;
  constexpr GstClockTime one = 40 * GST_MSECOND;
  const auto push_one = [&](std::uint64_t n) {
    EXPECT_TRUE(push(producer.appsrc(), new_buffer(random_data(64, n), n * one)));
  };
  for (std::uint64_t n = 0; n < before; ++n) push_one(n);
  ASSERT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") == before; }));
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! videorate ! appsink name=out sync=false");
  EXPECT_NE(consumer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  for (std::uint64_t n = before; n < before + 5; ++n) push_one(n);
  ASSERT_EQ(gst_app_src_end_of_stream(producer.appsrc()), GST_FLOW_OK);
  std::size_t received = 0;
  for (Sample sample = pull(consumer.appsink()); sample; sample = pull(consumer.appsink())) {
    EXPECT_GE(GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())), before * one);
    ++received;
  }
  EXPECT_GE(received, 5U);
}

// The clock of an audio sink stands still in a pause, of which nobody needs to hear at each look.
TEST_F(LinkSides, AProducerThatIsPausedSaysItsTimeOnce) {
  const Ptr<GstClock> clock(GST_CLOCK(gst_object_ref_sink(g_object_new(GST_TYPE_SYSTEM_CLOCK, nullptr))));
  const GstClockTime now = gst_clock_get_internal_time(clock.get());
  gst_clock_set_calibration(clock.get(), now, now, 2, 1);
  Pipeline producer(from_appsrc());
  gst_pipeline_use_clock(GST_PIPELINE(producer.get()), clock.get());
  start(producer);
  push_frame(producer, 0);
  ASSERT_TRUE(producer.reach(GST_STATE_PLAYING));
  const auto client = LinkConsumer::connect(client_options());
  EXPECT_NE(producer.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  g_usleep(300'000);  // some thirty looks
  const Pad pad(gst_element_get_static_pad(producer.element("sink"), "sink"));
  gst_pad_send_event(pad.get(), gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new_empty("mark")));
  ReadLease lease;
  LinkFrame frame;
  int stands = 0;
  LinkNext next = LinkNext::message;
  while (next == LinkNext::message || next == LinkNext::frame) {
    next = client->next(lease, frame, Clock::now() + patience);
    Channel::FarTime time;
    if (next == LinkNext::message && read_time(frame.message, time) && !time.playing) ++stands;
    if (next == LinkNext::message && type_of_event(frame.message) == GST_EVENT_CUSTOM_DOWNSTREAM) break;
  }
  EXPECT_EQ(next, LinkNext::message);
  EXPECT_GE(stands, 1);
  EXPECT_LE(stands, 2);
}

// A flush that does not reset the time takes the sink out of PLAYING until it has a frame, and the time goes on.
TEST_F(LinkSides, AFlushThatKeepsTheTimeStopsNoClock) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  ASSERT_TRUE(producer.reach(GST_STATE_PLAYING));
  const auto client = LinkConsumer::connect(client_options());
  const Pad pad(gst_element_get_static_pad(producer.element("sink"), "sink"));
  ReadLease lease;
  LinkFrame frame;
  const auto times_until = [&](GstEventType last) {
    std::string times;
    for (LinkNext next = LinkNext::message; next == LinkNext::message || next == LinkNext::frame;) {
      next = client->next(lease, frame, Clock::now() + patience);
      if (Channel::FarTime now; next == LinkNext::message && read_time(frame.message, now)) {
        times += now.playing ? "plays " : "stands ";
      }
      if (next == LinkNext::message && type_of_event(frame.message) == last) return times;
    }
    return times + "and no end";
  };
  const auto mark = [&] {
    return gst_pad_send_event(pad.get(),
                              gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new_empty("mark"))) != 0;
  };
  EXPECT_TRUE(mark());
  EXPECT_TRUE(times_until(GST_EVENT_CUSTOM_DOWNSTREAM).ends_with("plays "));
  gst_pad_send_event(pad.get(), gst_event_new_flush_start());
  gst_pad_send_event(pad.get(), gst_event_new_flush_stop(FALSE));
  g_usleep(100'000);  // the producer looks at its time every 10 ms
  EXPECT_TRUE(mark());
  EXPECT_EQ(times_until(GST_EVENT_CUSTOM_DOWNSTREAM), "");
}

// What cannot be counted is cut off, backwards as well: all that lies before this pipeline's time.
TEST_F(LinkSides, NoSegmentIsFasterThanNumbersReach) {
  OwnProducer producer(path);
  producer.server->send(text_of(Channel::FarTime{.playing = true}), ++producer.key);  // since the machine started
  producer.send(gst_event_new_stream_start("mine"));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  segment.rate = -1e300;
  segment.stop = 10 * GST_SECOND;
  producer.send(gst_event_new_segment(&segment));
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! fakesink name=out async=false sync=false");
  start(consumer);
  producer.show();
  const Pad pad(gst_element_get_static_pad(consumer.element("out"), "sink"));
  Ptr<GstEvent> event;
  ASSERT_TRUE(eventually([&] {
    event.reset(gst_pad_get_sticky_event(pad.get(), GST_EVENT_SEGMENT, 0));
    return event != nullptr;
  }));
  gst_event_copy_segment(event.get(), &segment);
  EXPECT_EQ(segment.offset, segment.stop);
}

// A sink whose clock waits for what is due in 292 years or more does not stop any more: a producer must not bring a
// consumer there.
TEST_F(LinkSides, WhatIsNeverDueHasNoTime) {
  OwnProducer producer(path);
  producer.send(gst_event_new_stream_start("mine"));
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max() - GST_SECOND;
  constexpr std::int64_t now = 3 * GST_SECOND;
  const auto send_segment = [&](gdouble rate, GstClockTime base) {
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_TIME);
    segment.rate = rate;
    segment.base = base;
    segment.stop = rate < 0 ? 10 * GST_SECOND : GST_CLOCK_TIME_NONE;
    producer.send(gst_event_new_segment(&segment));
  };
  Pipeline consumer(to_appsink());
  start(consumer);
  ASSERT_TRUE(producer.server->wait_for_client(Clock::now() + patience));
  const auto time_of = [&](std::int64_t pts, std::int64_t dts, std::int64_t duration) {
    producer.show({}, {.pts = pts, .dts = dts, .duration = duration});
    const Sample sample = pull(consumer.appsink());
    return sample ? GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())) : 0;
  };
  send_segment(1, 0);
  EXPECT_EQ(time_of(now, no_time, GST_SECOND), now);
  EXPECT_EQ(time_of(never, no_time, no_time), GST_CLOCK_TIME_NONE);
  EXPECT_EQ(time_of(now, never, no_time), GST_CLOCK_TIME_NONE);
  EXPECT_EQ(time_of(now, no_time, never), GST_CLOCK_TIME_NONE);
  EXPECT_EQ(time_of(now + 1, now, GST_SECOND), now + 1);
  for (const double slow : {1e-300, -1e-300}) {
    send_segment(slow, 0);
    EXPECT_EQ(time_of(now, no_time, no_time), GST_CLOCK_TIME_NONE) << slow;
  }
  send_segment(1, never);
  EXPECT_EQ(time_of(now, no_time, no_time), GST_CLOCK_TIME_NONE);
  send_segment(-1, GST_SECOND);
  EXPECT_EQ(time_of(now, no_time, no_time), now);
  send_segment(1, 0);
  constexpr std::int64_t soon_enough = std::int64_t{150} * 366 * 24 * 3600 * GST_SECOND;
  EXPECT_EQ(time_of(soon_enough, no_time, no_time), soon_enough);
  producer.send(gst_event_new_instant_rate_change(0.5, GST_SEGMENT_FLAG_NONE));
  EXPECT_EQ(time_of(soon_enough, no_time, no_time), GST_CLOCK_TIME_NONE) << "due in 300 years";
  send_segment(1e-300, 0);
  producer.send(gst_event_new_instant_rate_change(1e-6, GST_SEGMENT_FLAG_NONE));
  EXPECT_EQ(time_of(now, no_time, no_time), GST_CLOCK_TIME_NONE);
}

/// Of the producer's pipeline.
void change_rate(const Pipeline& producer, gdouble rate) {
  const Pad pad(gst_element_get_static_pad(producer.element("sink"), "sink"));
  gst_pad_send_event(pad.get(), gst_event_new_instant_rate_change(rate, GST_SEGMENT_FLAG_NONE));
}

GstSegment segment_of(const Pipeline& consumer) {
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_UNDEFINED);
  GstBaseSink* const sink = GST_BASE_SINK(consumer.element("out"));
  GST_OBJECT_LOCK(sink);
  if (sink->have_newsegment != 0) gst_segment_copy_into(&sink->segment, &segment);
  GST_OBJECT_UNLOCK(sink);
  return segment;
}
bool plays_at(const Pipeline& consumer, gdouble rate) {
  return eventually([&] {
    const GstSegment segment = segment_of(consumer);
    return segment.format == GST_FORMAT_TIME && segment.rate == rate;
  });
}

// A sink that receives an instant rate answers with the lock of its pipeline's state, once it has rendered: one that
// renders until the application takes its frame would keep that lock from who stops the pipeline.
TEST_F(LinkSides, AnInstantRateKeepsNobodyFromStopping) {
  Pipeline producer(from_appsrc("slots=8"));
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! queue ! appsink name=out sync=false max-buffers=1");
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  for (std::uint64_t n = 1; n < 5; ++n) push_frame(producer, n);
  ASSERT_TRUE(consumer.reach(GST_STATE_PLAYING));
  const auto frames = [&] { return stat(consumer.element("src"), "frames"); };
  ASSERT_TRUE(eventually([&] { return frames() >= 4; }));
  const std::uint64_t before = frames();
  change_rate(producer, 4);
  push_frame(producer, 5);
  ASSERT_TRUE(eventually([&] { return frames() > before; }));
  g_usleep(100'000);
  EXPECT_LT(consumer.stop(), at_once);
}

// A sink plays what follows at an instant rate until a flush resets the time there, or another producer comes. Nothing
// of that resets the time of this pipeline.
TEST_F(LinkSides, AnInstantRateEndsWhereItEndsAtTheProducer) {
  auto producer = std::make_unique<Pipeline>(from_appsrc());
  start(*producer);
  push_frame(*producer, 0);
  const auto flush = [&](gboolean resets) {
    gst_element_send_event(producer->element("in"), gst_event_new_flush_start());
    gst_element_send_event(producer->element("in"), gst_event_new_flush_stop(resets));
  };
  const std::string to_sink = "gpumapsrc name=src " + socket() + " ! fakesink name=out sync=true async=false";
  Pipeline consumer(to_sink);
  start(consumer);
  ASSERT_TRUE(plays_at(consumer, 1));
  const Ptr<GstBus> bus(gst_element_get_bus(consumer.get()));
  change_rate(*producer, 4);
  ASSERT_TRUE(plays_at(consumer, 4));
  Pipeline late(to_sink);
  start(late);
  ASSERT_TRUE(plays_at(late, 4));
  flush(FALSE);
  change_rate(*producer, 3);
  push_frame(*producer, 1);
  EXPECT_TRUE(plays_at(consumer, 3));
  flush(TRUE);
  push_frame(*producer, 2);
  EXPECT_TRUE(plays_at(consumer, 1));
  Pipeline later(to_sink);
  start(later);
  ASSERT_TRUE(eventually([&] { return clients(*producer) == 3; }));
  push_frame(*producer, 3);
  EXPECT_TRUE(eventually([&] { return stat(later.element("src"), "frames") > 0; }));
  EXPECT_TRUE(plays_at(later, 1));
  change_rate(*producer, 2);
  ASSERT_TRUE(plays_at(consumer, 2));
  producer = std::make_unique<Pipeline>(from_appsrc());
  start(*producer);
  push_frame(*producer, 0);
  EXPECT_TRUE(plays_at(consumer, 1));
  EXPECT_FALSE(Ptr<GstMessage>(gst_bus_pop_filtered(bus.get(), GST_MESSAGE_RESET_TIME)));
}

// The flush overtakes what a src that is busy has yet to take.
TEST_F(LinkSides, AFlushEndsAnInstantRateThatIsStillOnItsWay) {
  OwnProducer producer(path);
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  producer.send(gst_event_new_stream_start("mine"));
  producer.send(gst_event_new_segment(&segment));
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! appsink name=out sync=false max-buffers=1");
  start(consumer);
  ASSERT_TRUE(producer.server->wait_for_client(Clock::now() + patience));
  for (int n = 0; n < 3; ++n) producer.show();
  ASSERT_TRUE(eventually([&] { return stat(consumer.element("src"), "frames") == 2; }));
  producer.send(gst_event_new_instant_rate_change(4, GST_SEGMENT_FLAG_NONE));
  producer.server->send_at_once(text_of(Ptr<GstEvent>(gst_event_new_flush_start()).get()));
  producer.server->withdraw_all();
  producer.server->send(text_of(Ptr<GstEvent>(gst_event_new_flush_stop(TRUE)).get()));
  producer.send(gst_event_new_segment(&segment));
  producer.show({}, {.pts = GST_SECOND});
  Sample sample;
  do sample = pull(consumer.appsink());
  while (sample && GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())) != GST_SECOND);
  ASSERT_TRUE(sample);
  EXPECT_EQ(gst_sample_get_segment(sample.get())->rate, 1);
}

// Upstream counts running times as if nothing had changed: what comes later is due earlier. Who comes when that has
// added up learns from when on.
TEST_F(LinkSides, ItIsDueAtOneMomentHoweverLateOneHearsOfARate) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  const std::string to_sink = "gpumapsrc name=src " + socket() + " ! fakesink name=out sync=true async=false";
  Pipeline consumer(to_sink);
  start(consumer);
  ASSERT_TRUE(plays_at(consumer, 1));
  change_rate(producer, 4);
  ASSERT_TRUE(plays_at(consumer, 4));
  g_usleep(1'000'000);
  Pipeline late(to_sink);
  start(late);
  ASSERT_TRUE(plays_at(late, 4));
  push_frame(producer, 20'000);  // not due before the time of any
  ASSERT_TRUE(eventually([&] { return stat(late.element("src"), "frames") > 0; }));
  const auto due = [](const Pipeline& pipeline) {
    const GstSegment segment = segment_of(pipeline);
    const GstClockTime running = gst_segment_to_running_time(&segment, GST_FORMAT_TIME, 20 * GST_SECOND);
    return running + gst_element_get_base_time(pipeline.element("out"));
  };
  const auto apart = [&] { return std::llabs(GST_CLOCK_DIFF(due(consumer), due(late))); };
  EXPECT_TRUE(eventually([&] { return apart() < 20 * GST_MSECOND; })) << apart();
  change_rate(producer, 1);
  ASSERT_TRUE(plays_at(consumer, 1));
  ASSERT_TRUE(plays_at(late, 1));
  EXPECT_TRUE(eventually([&] { return apart() < 20 * GST_MSECOND; })) << apart();
}

// Within a process, too, what comes then is due earlier: at the old rate it would wait, and upstream with it.
TEST_F(LinkSides, ARateReachesWhoComesLaterThroughAChannel) {
  Pipeline producer(
      "appsrc name=in format=time caps=application/octet-stream ! gpumapsink name=sink channel=late-rate");
  start(producer);
  push_frame(producer, 0);
  ASSERT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") == 1; }));
  change_rate(producer, 4);
  Pipeline consumer("gpumapsrc name=src channel=late-rate ! fakesink name=out sync=true async=false");
  start(consumer);
  EXPECT_TRUE(plays_at(consumer, 4));
  consumer.stop();
  start(consumer);
  push_frame(producer, 1);
  EXPECT_TRUE(plays_at(consumer, 4));
}

// Its own gpumapsrc brings the frames and no rate, which the pipeline gives all its sinks.
TEST_F(LinkSides, ARateComesOnceToAPipelineWithBothSides) {
  Pipeline both("gpumapsrc name=src " + socket() + " ! fakesink name=out sync=true async=false " +
                from_appsrc("async=false"));
  start(both);
  push_frame(both, 0);
  ASSERT_TRUE(eventually([&] { return clients(both) == 1; }));
  const auto frames = [&] { return stat(both.element("src"), "frames"); };
  push_frame(both, 1);
  ASSERT_TRUE(eventually([&] { return frames() > 0; }));
  ASSERT_TRUE(plays_at(both, 1));
  const std::uint64_t before = frames();
  change_rate(both, 2);
  push_frame(both, 2);
  ASSERT_TRUE(eventually([&] { return frames() > before; }));
  EXPECT_TRUE(plays_at(both, 2));
}

// While the running time stands still, the first rate and the last are of one moment, and nothing has changed.
TEST_F(LinkSides, ARateThatAPausedProducerTakesBackIsTakenBack) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! fakesink name=out sync=true async=false");
  start(consumer);
  ASSERT_TRUE(plays_at(consumer, 1));
  ASSERT_NE(producer.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  g_usleep(100'000);
  change_rate(producer, 4);
  ASSERT_TRUE(plays_at(consumer, 4));
  change_rate(producer, 1);
  EXPECT_TRUE(plays_at(consumer, 1));
}

}  // namespace
}  // namespace gpumap::gst::test
