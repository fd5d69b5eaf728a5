// SPDX-License-Identifier: MIT
// The time of frames between two pipelines that meet at a socket: base times, clocks, segments, and instant rates.
#include <gst/base/gstbasesink.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
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
  const Pad pad(gst_element_get_static_pad(consumer.element("out"), "sink"));
  Ptr<GstEvent> rate;
  EXPECT_TRUE(eventually([&] {
    rate.reset(gst_pad_get_sticky_event(pad.get(), GST_EVENT_INSTANT_RATE_CHANGE, 0));
    return rate != nullptr;
  }));
  gdouble last = 0;
  gst_event_parse_instant_rate_change(rate.get(), &last, nullptr);
  EXPECT_EQ(last, 0.5) << "of both together a sink would make 0, and assert that they are more";
}

// The answer of a sink takes the lock that a thread has which stops the pipeline, and that one waits for the streaming
// thread.
TEST_F(LinkSides, TheStreamingThreadDoesNotWaitForAnInstantRate) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer(to_appsink());
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  push_frame(producer, 1);
  ASSERT_TRUE(pull(consumer.appsink()));
  ASSERT_TRUE(consumer.reach(GST_STATE_PLAYING));
  const Pad pad(gst_element_get_static_pad(producer.element("sink"), "sink"));
  GST_STATE_LOCK(consumer.get());
  gst_pad_send_event(pad.get(), gst_event_new_instant_rate_change(4, GST_SEGMENT_FLAG_NONE));
  for (const std::uint64_t n : {2, 3}) {
    push_frame(producer, n);
    EXPECT_TRUE(pull(consumer.appsink(), at_once)) << n;
  }
  GST_STATE_UNLOCK(consumer.get());
}

// A sink plays what follows at an instant rate until a flush resets the time. A flush from another pipeline does not,
// nor does another producer.
TEST_F(LinkSides, AnInstantRateEndsWhereItEndsAtTheProducer) {
  auto producer = std::make_unique<Pipeline>(from_appsrc());
  start(*producer);
  push_frame(*producer, 0);
  const std::string to_sink = "gpumapsrc name=src " + socket() + " ! fakesink name=out sync=true async=false";
  const auto plays_at = [](const Pipeline& pipeline, gdouble rate) {
    GstBaseSink* const sink = GST_BASE_SINK(pipeline.element("out"));
    return eventually([&] {
      GST_OBJECT_LOCK(sink);
      const bool equal = sink->have_newsegment != 0 && sink->segment.rate == rate;
      GST_OBJECT_UNLOCK(sink);
      return equal;
    });
  };
  const auto change = [&](gdouble rate) {
    const Pad pad(gst_element_get_static_pad(producer->element("sink"), "sink"));
    gst_pad_send_event(pad.get(), gst_event_new_instant_rate_change(rate, GST_SEGMENT_FLAG_NONE));
  };
  Pipeline consumer(to_sink);
  start(consumer);
  ASSERT_TRUE(plays_at(consumer, 1));
  change(4);
  ASSERT_TRUE(plays_at(consumer, 4));
  Pipeline late(to_sink);
  start(late);
  ASSERT_TRUE(plays_at(late, 4));
  gst_element_send_event(producer->element("in"), gst_event_new_flush_start());
  gst_element_send_event(producer->element("in"), gst_event_new_flush_stop(TRUE));
  push_frame(*producer, 1);
  EXPECT_TRUE(plays_at(consumer, 1));
  Pipeline later(to_sink);
  start(later);
  ASSERT_TRUE(eventually([&] { return clients(*producer) == 3; }));
  push_frame(*producer, 2);
  EXPECT_TRUE(eventually([&] { return stat(later.element("src"), "frames") > 0; }));
  EXPECT_TRUE(plays_at(later, 1));
  change(2);
  ASSERT_TRUE(plays_at(consumer, 2));
  producer = std::make_unique<Pipeline>(from_appsrc());
  start(*producer);
  push_frame(*producer, 0);
  EXPECT_TRUE(plays_at(consumer, 1));
}

}  // namespace
}  // namespace gpumap::gst::test
