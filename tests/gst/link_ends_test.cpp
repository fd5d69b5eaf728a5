// SPDX-License-Identifier: MIT
// How two sides that meet at a socket end, and begin again: what was sent comes out, and nothing is left behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "gst/channel/channel.hpp"
#include "link_sides.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

TEST_F(LinkSides, ASlowClientGetsAllOfAStreamThatEnded) {
  auto producer = std::make_unique<Pipeline>(from_appsrc());
  start(*producer);
  push_frame(*producer, 0);
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! appsink name=out sync=false max-buffers=1");
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(*producer) == 1; }));
  for (std::uint64_t n = 1; n < 8; ++n) push_frame(*producer, n);
  push_eos(*producer);
  EXPECT_EQ(producer->wait(), "eos");
  producer.reset();  // longer ago than any linger
  g_usleep(1'500'000);
  for (std::uint64_t n = 1; n < 8; ++n) {
    Sample sample = pull(consumer.appsink());
    ASSERT_TRUE(sample) << "frame " << n;
    // The producer may have shown its first frame only when the client was there.
    if (n == 1 && GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())) == 0) sample = pull(consumer.appsink());
    ASSERT_TRUE(sample) << "frame " << n;
    EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), random_data(frame_size, n)) << "frame " << n;
  }
  EXPECT_FALSE(pull(consumer.appsink()));
  EXPECT_EQ(consumer.wait(), "eos");
}

TEST_F(LinkSides, AStreamThatWaitsForItsFirstClientDoesNotEndBefore) {
  Pipeline producer(from_appsrc("wait-for-connection=true"));
  start(producer);
  for (std::uint64_t n = 0; n < 3; ++n) push_frame(producer, n);
  push_eos(producer);
  EXPECT_EQ(producer.wait(500ms), "timeout");
  Pipeline consumer(to_appsink());
  start(consumer);
  for (std::uint64_t n = 0; n < 3; ++n) EXPECT_TRUE(pull(consumer.appsink())) << n;
  EXPECT_EQ(producer.wait(), "eos");

  // A busy machine takes its time now and then, but not each time.
  Time least = Time::max();
  for (int turn = 0; turn < 3 && least >= 4s; ++turn) {
    Pipeline stopped(from_appsrc("wait-for-connection=true", path + "-2"));
    start(stopped);
    push_frame(stopped, 0);
    push_eos(stopped);
    EXPECT_EQ(stopped.wait(100ms), "timeout");
    least = std::min(least, stopped.stop());
  }
  EXPECT_LT(least, 4s) << "5 s: it drained";
}

// The first stream's end, which a client that has gone was told of, is not that of the second.
TEST_F(LinkSides, NeitherDoesAStreamBehindOneThatEnded) {
  Pipeline producer("identity name=in ! gpumapsink name=sink sync=false wait-for-connection=true " + socket());
  start(producer);
  const Pad pad(gst_element_get_static_pad(producer.element("in"), "sink"));
  for (const char* const id : {"first", "second"}) {
    gst_pad_send_event(pad.get(), gst_event_new_stream_start(id));
    gst_pad_send_event(pad.get(), gst_event_new_caps(new_caps("application/octet-stream").get()));
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_TIME);
    gst_pad_send_event(pad.get(), gst_event_new_segment(&segment));
    EXPECT_EQ(gst_pad_chain(pad.get(), new_buffer(random_data(frame_size, 0), 0).release()), GST_FLOW_OK);
    std::thread end([&] { gst_pad_send_event(pad.get(), gst_event_new_eos()); });
    EXPECT_EQ(producer.wait(200ms), "timeout") << id;
    {
      Pipeline consumer(to_appsink());
      start(consumer);
      EXPECT_TRUE(pull(consumer.appsink())) << id;
      EXPECT_EQ(consumer.wait(), "eos") << id;
    }
    end.join();
    EXPECT_EQ(producer.wait(), "eos") << id;
    EXPECT_TRUE(eventually([&] { return clients(producer) == 0; }));
  }
}

// Nothing but its end, of a producer that plays or waits for its first client: a client that waits at the path is told,
// and so is a client that comes later.
TEST_F(LinkSides, AStreamWithoutAFrameEnds) {
  for (const bool waits : {false, true}) {
    SCOPED_TRACE(waits);
    Pipeline first(to_appsink("on-lost=error"));
    Pipeline producer(from_appsrc(waits ? "wait-for-connection=true" : ""));
    start(producer);
    if (!waits) start(first);
    push_eos(producer);
    EXPECT_EQ(producer.wait(waits ? 500ms : patience), waits ? "timeout" : "eos");
    if (waits) start(first);
    EXPECT_EQ(first.wait(), "eos");
    for (const char* on_lost : {"wait", "eos", "error"}) {
      Pipeline later(to_appsink(std::string("on-lost=") + on_lost));
      start(later);
      EXPECT_EQ(later.wait(), "eos") << on_lost;
    }
    EXPECT_EQ(producer.wait(waits ? patience : 1ms), waits ? "eos" : "timeout");
  }
}

// At the end of a stream, who comes gets what holds, and the end; not once the stream begins anew.
TEST_F(LinkSides, WhoComesAtTheEndIsToldOfIt) {
  Pipeline producer(from_appsrc());
  start(producer);
  for (std::uint64_t n = 0; n < 3; ++n) push_frame(producer, n);
  push_eos(producer);
  EXPECT_EQ(producer.wait(), "eos");
  ASSERT_TRUE(handed_on(3));
  {
    Watch watch;
    Pipeline consumer(to_appsink());
    watch.on(consumer.element("out"));
    start(consumer);
    EXPECT_EQ(consumer.wait(), "eos");
    EXPECT_EQ(watch.order(), "stream-start caps segment eos ");
  }
  ASSERT_TRUE(eventually([&] { return clients(producer) == 0; }));
  const Pad pad(gst_element_get_static_pad(producer.element("in"), "src"));
  gst_pad_push_event(pad.get(), gst_event_new_flush_start());
  gst_pad_push_event(pad.get(), gst_event_new_flush_stop(TRUE));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_push_event(pad.get(), gst_event_new_segment(&segment));
  Pipeline consumer(to_appsink());
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  EXPECT_EQ(gst_pad_push(pad.get(), new_buffer(random_data(frame_size, 7), 7 * GST_MSECOND).release()), GST_FLOW_OK);
  const Sample sample = pull(consumer.appsink());
  ASSERT_TRUE(sample) << consumer.wait(1ms);
  EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), random_data(frame_size, 7));
}

// As EOS, it is the last of a segment: a client that comes later would wait for frames that do not come.
TEST_F(LinkSides, WhoComesBehindSegmentDoneIsToldOfIt) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  ASSERT_TRUE(handed_on(1));
  const Pad pad(gst_element_get_static_pad(producer.element("sink"), "sink"));
  gst_pad_send_event(pad.get(), gst_event_new_segment_done(GST_FORMAT_TIME, 17 * GST_MSECOND));
  for (const bool begins_anew : {false, true}) {
    Watch watch;
    Pipeline consumer(to_appsink());
    watch.on(consumer.element("out"));
    if (begins_anew) {
      GstSegment segment;
      gst_segment_init(&segment, GST_FORMAT_TIME);
      gst_pad_send_event(pad.get(), gst_event_new_segment(&segment));
      push_frame(producer, 1);
      ASSERT_TRUE(handed_on(2));  // who comes before gets the end of the last segment, too
    }
    start(consumer);
    ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
    if (begins_anew) push_frame(producer, 2);
    EXPECT_TRUE(eventually([&] {
      return watch.order().find(begins_anew ? "segment frame" : "segment segment-done") != std::string::npos;
    })) << watch.order();
    EXPECT_EQ(watch.events(GST_EVENT_SEGMENT_DONE), begins_anew ? 0U : 1U);
    consumer.stop();
    ASSERT_TRUE(eventually([&] { return clients(producer) == 0; }));
  }
}

// As on a pad: the segment that comes next says what holds.
TEST_F(LinkSides, WhoComesBehindAFlushGetsTheNextSegmentAlone) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  ASSERT_TRUE(handed_on(1));
  const Pad pad(gst_element_get_static_pad(producer.element("in"), "src"));
  gst_pad_push_event(pad.get(), gst_event_new_flush_start());
  gst_pad_push_event(pad.get(), gst_event_new_flush_stop(TRUE));
  Watch watch;
  Pipeline consumer(to_appsink());
  watch.on(consumer.element("out"));
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  segment.start = 7 * GST_MSECOND;
  gst_pad_push_event(pad.get(), gst_event_new_segment(&segment));
  EXPECT_EQ(gst_pad_push(pad.get(), new_buffer(random_data(frame_size, 7), 7 * GST_MSECOND).release()), GST_FLOW_OK);
  ASSERT_TRUE(eventually([&] { return watch.count() == 1; }));
  EXPECT_EQ(watch.segments(), 1U) << watch.order();
}

// What is not kept for who comes later waits for the first client, as frames do.
TEST_F(LinkSides, AGapBeforeTheFirstFrameArrives) {
  Watch watch;
  Pipeline producer(from_appsrc("wait-for-connection=true"));
  start(producer);
  const Pad pad(gst_element_get_static_pad(producer.element("in"), "src"));
  ASSERT_TRUE(
      eventually([&] { return Ptr<GstEvent>(gst_pad_get_sticky_event(pad.get(), GST_EVENT_STREAM_START, 0)); }));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_push_event(pad.get(), gst_event_new_caps(new_caps("application/octet-stream").get()));
  gst_pad_push_event(pad.get(), gst_event_new_segment(&segment));
  gst_pad_push_event(pad.get(), gst_event_new_gap(0, 7 * GST_MSECOND));
  Pipeline consumer(to_appsink());
  watch.on(consumer.element("out"));
  start(consumer);
  EXPECT_TRUE(eventually([&] { return watch.events(GST_EVENT_GAP) == 1; })) << watch.order();
  push_frame(producer, 7);
  EXPECT_TRUE(pull(consumer.appsink()));
  EXPECT_LT(watch.order().find("gap"), watch.order().find("frame")) << watch.order();
}

TEST_F(LinkSides, WhoSpinsAllTheTimeHearsOfTheEndToo) {
  auto producer = std::make_unique<Pipeline>(from_appsrc());
  start(*producer);
  push_frame(*producer, 0);
  Pipeline consumer(to_appsink("busy-poll=1000000 on-lost=eos"));
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(*producer) == 1; }));
  push_frame(*producer, 1);
  ASSERT_TRUE(pull(consumer.appsink()));
  producer.reset();
  while (pull(consumer.appsink())) {
  }
  EXPECT_EQ(consumer.wait(), "eos");
}

// The flush takes the end that waits here, and its producer goes within it.
TEST_F(LinkSides, AnEndThatAFlushTookIsNotTheEnd) {
  auto producer = std::make_unique<OwnProducer>(path);
  producer->send(gst_event_new_stream_start("mine"));
  producer->send(gst_event_new_caps(new_caps("application/octet-stream").get()));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  producer->send(gst_event_new_segment(&segment));
  Pipeline consumer(to_appsink("on-lost=eos"));
  ASSERT_NE(consumer.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return producer->server->clients().size() == 1; }));
  producer->show();
  ASSERT_TRUE(consumer.reach(GST_STATE_PAUSED));
  const Ptr<GstEvent> eos(gst_event_new_eos());
  producer->server->send(text_of(eos.get()));
  const Ptr<GstEvent> start(gst_event_new_flush_start());
  producer->server->send_at_once(text_of(start.get()));
  producer.reset();
  LinkSides::start(consumer);
  EXPECT_EQ(consumer.wait(), "eos");
}

TEST_F(LinkSides, SidesThatComeAndGoInALoop) {
  const std::size_t before = open_descriptors();
  for (int round = 0; round < 10; ++round) {
    Pipeline producer(from_appsrc());
    Pipeline consumer(to_appsink());
    start(round % 2 == 0 ? producer : consumer);
    start(round % 2 == 0 ? consumer : producer);
    push_frame(producer, 0);
    ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
    push_frame(producer, 1);
    push_eos(producer);
    std::size_t frames = 0;
    while (pull(consumer.appsink())) ++frames;
    EXPECT_GE(frames, 1U);
    EXPECT_EQ(producer.wait(), "eos");
    EXPECT_EQ(consumer.wait(), "eos");
    EXPECT_LT(producer.stop(), 10s);
    EXPECT_LT(consumer.stop(), 10s);
  }
  EXPECT_TRUE(no_more_descriptors_than(before + 8)) << open_descriptors() << " after " << before;
}

// A paused one has the memory of those that it has not come to.
TEST_F(LinkSides, APausedConsumerKeepsFewOfTheProducersThatComeAndGo) {
  Pipeline consumer(to_appsink("is-live=true"));
  ASSERT_TRUE(consumer.reach(GST_STATE_PAUSED));
  std::size_t before = 0;
  std::uint64_t frames = 0;
  const auto come_and_go = [&](Time limit) {
    Pipeline producer(from_appsrc());
    start(producer);
    push_frame(producer, ++frames);
    if (!eventually([&] { return clients(producer) == 1; }, limit)) return false;
    push_frame(producer, ++frames);
    return eventually([&] { return stat(producer.element("sink"), "frames") == 2; });
  };
  int kept = 0;
  while (kept < 20 && come_and_go(kept < 4 ? patience : 300ms)) ++kept;
  EXPECT_GE(kept, 4);
  EXPECT_LT(kept, 20);
  before = open_descriptors();
  for (int round = 0; round < 5; ++round) EXPECT_FALSE(come_and_go(50ms));
  EXPECT_TRUE(no_more_descriptors_than(before)) << open_descriptors() << " after " << before;
  start(consumer);
  for (int n = 0; n < kept; ++n) EXPECT_TRUE(pull(consumer.appsink())) << n;
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  EXPECT_TRUE(eventually([&] { return clients(producer) == 1; })) << "it goes on";
}

// The sink's side may end within a flush, and its channel live on.
TEST_F(LinkSides, WhatEndedWithinAFlushBeginsAnew) {
  const auto channel = Channel::open("socket " + path);
  Pipeline producer(from_appsrc());
  for (int round = 0; round < 2; ++round) {
    start(producer);
    push_frame(producer, 0);
    Pipeline consumer(to_appsink());
    start(consumer);
    ASSERT_TRUE(eventually([&] { return clients(producer) == 1; })) << round;
    push_frame(producer, 1);
    ASSERT_TRUE(pull(consumer.appsink())) << round;
    channel->pass(gst_event_new_flush_start());
    producer.stop();
  }
}

// Flushes, and who makes room, come from any thread; one may be inside when the sink's side ends.
TEST_F(LinkSides, CallsThatComeWhileItEndsDoNoHarm) {
  const auto channel = Channel::open("socket " + path);
  std::atomic<bool> done{false};
  std::thread caller([&] {
    while (!done) {
      channel->pass(gst_event_new_flush_start());
      if (const auto far = channel->far_src()) (void)far->make_room();
      channel->hand_on();
      channel->pass(gst_event_new_flush_stop(TRUE));
    }
  });
  Pipeline producer(from_appsrc());
  for (int round = 0; round < 40; ++round) {
    start(producer);
    if (round % 4 == 0) push_frame(producer, 0);
    EXPECT_LT(producer.stop(), 10s);
  }
  done = true;
  caller.join();
}

}  // namespace
}  // namespace gpumap::gst::test
