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
      (void)channel->make_room();
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
