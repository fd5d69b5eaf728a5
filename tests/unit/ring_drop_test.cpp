// SPDX-License-Identifier: MIT
// What a full ring does, and what the counters say of it.
#include <gtest/gtest.h>

#include <cstdint>

#include "ring_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

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
