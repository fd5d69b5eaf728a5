// SPDX-License-Identifier: MIT
// Everything that ends a wait: frames, slots, flush, close, nudge, deadlines.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ring_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

TEST(RingWait, FrameWakesTheConsumer) {
  const auto ring = make_ring(2);
  auto result = asleep(*ring, receiving(ring));
  send(*ring);
  expect_soon(result, RingStatus::ok);
}

TEST(RingWait, ReleaseWakesTheProducer) {
  const auto ring = full_ring();
  ReadLease lease = must_receive(*ring);
  auto result = asleep(*ring, acquiring(ring));
  lease = ReadLease();
  expect_soon(result, RingStatus::ok);
}

TEST(RingWait, DroppedWriteLeaseWakesTheProducer) {
  const auto ring = make_ring(2);
  WriteLease kept = must_acquire(*ring);
  const WriteLease other = must_acquire(*ring);
  auto result = asleep(*ring, acquiring(ring));
  kept = WriteLease();
  expect_soon(result, RingStatus::ok);
}

TEST(RingWait, EveryFrameWakesOneOfManySleepers) {
  const auto ring = make_ring(8);
  std::vector<std::future<RingStatus>> results;
  for (int n = 0; n < 6; ++n) results.push_back(asleep(*ring, receiving(ring)));
  for (int n = 0; n < 6; ++n) send(*ring);
  for (auto& result : results) expect_soon(result, RingStatus::ok);
}

TEST(RingWait, FlushEndsBothSides) {
  const auto ring = full_ring();
  auto producer = asleep(*ring, acquiring(ring));
  ring->set_consumer_flushing(true);  // the other side's flush does not concern it
  EXPECT_EQ(producer.wait_for(20ms), std::future_status::timeout);
  ring->set_producer_flushing(true);
  expect_soon(producer, RingStatus::flushing);
  WriteLease write;
  EXPECT_EQ(ring->acquire(write, WhenFull::drop_newest), RingStatus::flushing);
  ReadLease read;
  EXPECT_EQ(ring->receive(read), RingStatus::flushing);
  ring->set_consumer_flushing(false);
  EXPECT_EQ(ring->receive(read), RingStatus::ok);
  read = ReadLease();
  EXPECT_EQ(ring->acquire(write), RingStatus::flushing);
  ring->set_producer_flushing(false);
  EXPECT_EQ(ring->acquire(write), RingStatus::ok);
  ring->drop_queued();
  auto consumer = asleep(*ring, receiving(ring));
  ring->set_consumer_flushing(true);
  expect_soon(consumer, RingStatus::flushing);
}

TEST(RingWait, FlushEndsSpinning) {
  const auto ring = make_ring(2, 1000, std::chrono::minutes(1));
  auto consumer = std::async(std::launch::async, receiving(ring));
  std::this_thread::sleep_for(5ms);
  ring->set_consumer_flushing(true);
  expect_soon(consumer, RingStatus::flushing);
}

TEST(RingWait, CloseProducerLetsTheQueueRunDry) {
  const auto ring = full_ring();
  WriteLease lease;
  auto producer = asleep(*ring, acquiring(ring));
  ring->close_producer();
  expect_soon(producer, RingStatus::closed);
  EXPECT_EQ(must_receive(*ring).info().sequence, 0U);
  EXPECT_EQ(must_receive(*ring).info().sequence, 1U);
  ReadLease read;
  EXPECT_EQ(ring->receive(read), RingStatus::closed);
  EXPECT_EQ(ring->acquire(lease), RingStatus::closed);
}

TEST(RingWait, CloseProducerWakesTheConsumer) {
  const auto ring = make_ring(2);
  auto result = asleep(*ring, receiving(ring));
  ring->close_producer();
  expect_soon(result, RingStatus::closed);
}

TEST(RingWait, CloseConsumerDropsAndEndsBothSides) {
  const auto ring = full_ring();
  auto producer = asleep(*ring, acquiring(ring));
  ring->close_consumer();
  expect_soon(producer, RingStatus::closed);
  EXPECT_EQ(ring->queued(), 0U);
  EXPECT_EQ(ring->counters().dropped, 2U);
  ReadLease read;
  EXPECT_EQ(ring->receive(read), RingStatus::closed);
  for (const WhenFull when : {WhenFull::block, WhenFull::drop_newest, WhenFull::drop_oldest}) {
    WriteLease write;
    EXPECT_EQ(ring->acquire(write, when), RingStatus::closed);
  }
  const auto idle = make_ring(2);
  auto consumer = asleep(*idle, receiving(idle));
  idle->close_consumer();
  expect_soon(consumer, RingStatus::closed);
}

TEST(RingWait, PublishAfterCloseConsumerLeavesNothingQueued) {
  const auto ring = make_ring(2);
  WriteLease lease = must_acquire(*ring);
  ring->close_consumer();
  ring->publish(lease, {});
  EXPECT_TRUE(lease.published());
  EXPECT_EQ(ring->queued(), 0U);
  EXPECT_EQ(ring->counters().dropped, 1U);
}

TEST(RingWait, NudgeGivesOneTimeout) {
  const auto ring = make_ring(2);
  auto result = asleep(*ring, receiving(ring));
  ring->nudge_consumer();
  expect_soon(result, RingStatus::timeout);
  auto again = asleep(*ring, receiving(ring));
  EXPECT_EQ(again.wait_for(20ms), std::future_status::timeout) << "once is once";
  send(*ring);
  expect_soon(again, RingStatus::ok);
}

TEST(RingWait, NudgeBeforeTheSleepIsNotLost) {
  const auto ring = make_ring(2);
  send(*ring);
  ring->nudge_consumer();
  ReadLease lease;
  EXPECT_EQ(ring->receive(lease, in(10min)), RingStatus::ok) << "a frame comes first";
  const Deadline start = Clock::now();
  EXPECT_EQ(ring->receive(lease, in(10min)), RingStatus::timeout);
  EXPECT_LT(Clock::now() - start, long_enough);
}

/// From `wake` until the call of a sleeper whom `sleep` makes has ended. The shortest of some: others use this machine,
/// too.
template <typename Sleep, typename Wake>
Clock::duration shortest_wake(Sleep sleep, Wake wake) {
  auto shortest = Clock::duration::max();
  for (int turn = 0; turn < 100 && shortest >= 50ms; ++turn) {
    auto [ring, result] = sleep();
    const Deadline start = Clock::now();
    wake(*ring);
    if (result.wait_for(long_enough) != std::future_status::ready) ADD_FAILURE() << "it sleeps on";
    shortest = std::min(shortest, Clock::now() - start);
    ring->set_producer_flushing(true);
    ring->set_consumer_flushing(true);
  }
  return shortest;
}

// A sleeper looks by itself after 100 ms at the latest. Who is woken does not wait for that.
TEST(RingWait, WakesComeAtOnce) {
  const auto consumer = [] {
    auto ring = make_ring(2);
    auto result = asleep(*ring, receiving(ring));
    return std::pair(std::move(ring), std::move(result));
  };
  const auto producer = [] {
    auto ring = full_ring();
    auto result = asleep(*ring, acquiring(ring));
    return std::pair(std::move(ring), std::move(result));
  };
  EXPECT_LT(shortest_wake(consumer, [](Ring& ring) { send(ring); }), 50ms);
  EXPECT_LT(shortest_wake(consumer, [](Ring& ring) { ring.nudge_consumer(); }), 50ms);
  EXPECT_LT(shortest_wake(consumer, [](Ring& ring) { ring.set_consumer_flushing(true); }), 50ms);
  EXPECT_LT(shortest_wake(consumer, [](Ring& ring) { ring.close_producer(); }), 50ms);
  EXPECT_LT(shortest_wake(producer, [](Ring& ring) { must_receive(ring); }), 50ms);
  EXPECT_LT(shortest_wake(producer, [](Ring& ring) { ring.drop_queued(); }), 50ms);
  EXPECT_LT(shortest_wake(producer, [](Ring& ring) { ring.set_producer_flushing(true); }), 50ms);
  EXPECT_LT(shortest_wake(producer, [](Ring& ring) { ring.close_consumer(); }), 50ms);
}

TEST(RingWait, TimeoutsAreAccurate) {
  const auto ring = full_ring();
  const auto idle = make_ring(2);
  for (const std::chrono::nanoseconds spin : {0ns, std::chrono::nanoseconds(100us), std::chrono::nanoseconds(1s)}) {
    ring->set_spin(spin);
    idle->set_spin(spin);
    for (const auto span : {1ms, 20ms}) {
      // The best of some: others use this machine, too. Never early is meant for all of them.
      auto late = Clock::duration::max();
      for (int turn = 0; turn < 5 || (turn < 100 && late >= 2ms); ++turn) {
        const Deadline write_end = in(span);
        WriteLease write;
        ASSERT_EQ(ring->acquire(write, WhenFull::block, write_end), RingStatus::timeout);
        const Deadline read_end = in(span);
        ASSERT_GE(read_end - span, write_end);
        ReadLease read;
        ASSERT_EQ(idle->receive(read, read_end), RingStatus::timeout);
        ASSERT_GE(Clock::now(), read_end);
        late = std::min(late, Clock::now() - read_end);
      }
      EXPECT_LT(late, 2ms);
    }
  }
}

TEST(RingWait, PastDeadlinesTakeWhatIsThere) {
  const auto ring = make_ring(2);
  WriteLease write;
  ReadLease read;
  for (const Deadline deadline : {Deadline::min(), Deadline{}, Deadline{} - 1h, at_once()}) {
    EXPECT_EQ(ring->receive(read, deadline), RingStatus::timeout);
    ASSERT_EQ(ring->acquire(write, WhenFull::block, deadline), RingStatus::ok);
    ring->publish(write, {});
    EXPECT_EQ(ring->receive(read, deadline), RingStatus::ok);
  }
  EXPECT_EQ(ring->counters().consumer_waits, 0U);
}

// What a full ring does, and what the counters say of it.

TEST(RingDrop, NewestGivesUpAtOnce) {
  const auto ring = make_ring(2);
  send(*ring, 1);
  send(*ring, 2);
  WriteLease lease;
  EXPECT_EQ(ring->acquire(lease, WhenFull::drop_newest), RingStatus::full);
  EXPECT_FALSE(lease);
  EXPECT_EQ(ring->counters().refused, 1U);
  EXPECT_EQ(ring->counters().dropped, 0U);
  EXPECT_EQ(must_receive(*ring).info().offset, 1U);
  EXPECT_EQ(ring->acquire(lease, WhenFull::drop_newest), RingStatus::ok);
  EXPECT_EQ(must_receive(*ring).info().offset, 2U);
}

TEST(RingDrop, OldestTakesBackTheOldest) {
  const auto ring = make_ring(3);
  send(*ring, 1);
  const ReadLease held = must_receive(*ring);
  for (std::uint64_t n = 2; n < 10; ++n) {
    WriteLease lease;
    ASSERT_EQ(ring->acquire(lease, WhenFull::drop_oldest), RingStatus::ok);
    EXPECT_NE(lease.slot(), held.slot());
    FrameInfo info;
    info.offset = n;
    ring->publish(lease, info);
  }
  EXPECT_EQ(ring->counters().dropped, 6U);
  EXPECT_EQ(ring->counters().overtaken, 6U);
  const ReadLease eight = must_receive(*ring);
  EXPECT_EQ(eight.info().offset, 8U);
  EXPECT_EQ(eight.info().sequence, 7U);
  const ReadLease nine = must_receive(*ring);
  EXPECT_EQ(nine.info().offset, 9U);
  WriteLease lease;
  EXPECT_EQ(ring->acquire(lease, WhenFull::drop_oldest), RingStatus::full) << "the consumer holds them all";
  EXPECT_EQ(ring->counters().dropped, 6U);
  EXPECT_EQ(ring->counters().refused, 1U);
  EXPECT_EQ(ring->counters().received, 3U);
}

TEST(RingDrop, OldestPassesOverSlotsWhoseWriterLives) {
  const auto ring = make_ring(2);
  WriteLease kept = must_acquire(*ring);
  ring->publish(kept, {});
  send(*ring, 5);
  WriteLease lease;
  ASSERT_EQ(ring->acquire(lease, WhenFull::drop_oldest), RingStatus::ok);
  EXPECT_NE(lease.slot(), kept.slot());
  EXPECT_EQ(ring->counters().dropped, 2U);
  WriteLease none;
  EXPECT_EQ(ring->acquire(none, WhenFull::drop_oldest), RingStatus::full);
}

TEST(RingDrop, QueuedEmptiesAndFrees) {
  const auto ring = make_ring(4);
  for (std::uint64_t n = 0; n < 4; ++n) send(*ring, n);
  auto blocked = asleep(*ring, acquiring(ring));
  ring->drop_queued();
  expect_soon(blocked, RingStatus::ok);
  EXPECT_EQ(ring->queued(), 0U);
  EXPECT_EQ(ring->counters().dropped, 4U);
  EXPECT_EQ(ring->counters().overtaken, 0U);
  EXPECT_EQ(ring->counters().received, 0U);
  ReadLease lease;
  EXPECT_EQ(ring->receive(lease, at_once()), RingStatus::timeout);
  send(*ring, 9);
  EXPECT_EQ(must_receive(*ring).info().sequence, 4U);
}

}  // namespace
}  // namespace gpumap
