// SPDX-License-Identifier: MIT
// The way of a frame as its slot keeps it: in order, of the right frame, and where another process may read it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "gpumap/latency.hpp"
#include "ring/slot_ops.hpp"
#include "ring_foreign.hpp"
#include "ring_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

std::shared_ptr<Ring> stamping_ring(std::uint32_t slots) {
  auto ring = make_ring(slots);
  ring->set_stamping(true);
  return ring;
}

TEST(RingStamps, OffAtFirst) {
  const auto ring = make_ring(2);
  EXPECT_FALSE(ring->stamping());
  WriteLease lease = must_acquire(*ring);
  lease.stamp(Stamp::first_store, 5);
  ring->publish(lease, {});
  const ReadLease read = must_receive(*ring);
  EXPECT_EQ(read.stamps(), std::nullopt);
  read.stamp(Stamp::launched, 7);
  ring::ControlBlock& block = foreign_view();
  for (std::size_t i = 0; i < stamp_count; ++i) {
    EXPECT_EQ(ring::stamp_of(block, read.slot(), static_cast<Stamp>(i)).load(), 0) << to_string(static_cast<Stamp>(i));
  }
}

TEST(RingStamps, AreOfTheFrameAndInOrder) {
  const auto ring = stamping_ring(3);
  for (std::uint64_t n = 0; n < 10; ++n) {
    const std::int64_t before = monotonic_ns();
    WriteLease lease = must_acquire(*ring);
    const std::int64_t first = monotonic_ns();
    lease.stamp(Stamp::first_store, first);
    lease.stamp(Stamp::first_store, first + 1);  // a second map
    lease.stamp(Stamp::last_store, first + 1);
    const std::int64_t last = monotonic_ns();
    lease.stamp(Stamp::last_store, last);
    lease.stamp_source(first - 500, first - 900);
    ring->publish(lease, {.bytes = 100 + n});
    const std::int64_t between = monotonic_ns();
    const ReadLease read = must_receive(*ring);
    const std::int64_t after = monotonic_ns();
    const auto got = read.stamps();
    ASSERT_TRUE(got);
    EXPECT_EQ(got->sequence, n);
    EXPECT_EQ(got->bytes, 100 + n);
    EXPECT_EQ(got->due_ns, first - 500);
    EXPECT_EQ(got->captured_ns, first - 900);
    EXPECT_EQ(got->at(Stamp::first_store), first);
    EXPECT_EQ(got->at(Stamp::last_store), last);
    const std::vector<std::int64_t> order{before,  got->at(Stamp::acquired), first, last, got->at(Stamp::published),
                                          between, got->at(Stamp::received), after};
    EXPECT_TRUE(std::ranges::is_sorted(order)) << testing::PrintToString(order);
    for (const Stamp later : {Stamp::launched, Stamp::kernel_started, Stamp::visible, Stamp::released}) {
      EXPECT_EQ(got->at(later), 0);
    }
  }
}

TEST(RingStamps, NothingStaysFromTheFrameBefore) {
  const auto ring = stamping_ring(2);
  for (int turn = 0; turn < 4; ++turn) {
    WriteLease lease = must_acquire(*ring);
    if (turn < 2) {
      lease.stamp(Stamp::first_store, 1);
      lease.stamp(Stamp::last_store, 2);
      lease.stamp_source(3, 4);
    }
    ring->publish(lease, {});
    const auto got = must_receive(*ring).stamps();
    ASSERT_TRUE(got);
    EXPECT_EQ(got->at(Stamp::first_store), turn < 2 ? 1 : 0);
    EXPECT_EQ(got->at(Stamp::last_store), turn < 2 ? 2 : 0);
    EXPECT_EQ(got->due_ns, turn < 2 ? 3 : 0);
    EXPECT_EQ(got->captured_ns, turn < 2 ? 4 : 0);
  }
}

TEST(RingStamps, AFrameOfBeforeHasNone) {
  const auto ring = make_ring(2);
  send(*ring);
  ring->set_stamping(true);
  EXPECT_EQ(must_receive(*ring).stamps(), std::nullopt);
}

TEST(RingStamps, AFrameThatMakesRoomLeavesNone) {
  const auto ring = stamping_ring(2);
  for (int n = 0; n < 5; ++n) {
    WriteLease lease;
    ASSERT_EQ(ring->acquire(lease, WhenFull::drop_oldest, at_once()), RingStatus::ok);
    lease.stamp(Stamp::first_store, 10 + n);
    ring->publish(lease, {});
  }
  EXPECT_EQ(must_receive(*ring).stamps()->at(Stamp::first_store), 13);
  EXPECT_EQ(must_receive(*ring).stamps()->at(Stamp::first_store), 14);
}

TEST(RingStamps, APublishedFrameTakesNoMore) {
  const auto ring = stamping_ring(2);
  WriteLease lease = must_acquire(*ring);
  lease.stamp(Stamp::last_store, 2);
  ring->publish(lease, {});
  lease.stamp(Stamp::last_store, 3);
  lease.stamp_source(4, 5);
  const auto got = must_receive(*ring).stamps();
  EXPECT_EQ(got->at(Stamp::last_store), 2);
  EXPECT_EQ(got->due_ns, 0);
}

TEST(RingStamps, AnotherProcessSeesThem) {
  const auto ring = stamping_ring(2);
  ring::ControlBlock& block = foreign_view();
  send(*ring);
  std::uint32_t slot = 0;
  {
    const ReadLease read = must_receive(*ring);
    slot = read.slot();
    read.stamp(Stamp::launched, 70);
    read.stamp(Stamp::published, 71);  // not the reader's
    EXPECT_EQ(ring::stamp_of(block, slot, Stamp::launched).load(), 70);
    EXPECT_EQ(ring::stamp_of(block, slot, Stamp::published).load(), read.info().publish_ns);
    EXPECT_GE(ring::stamp_of(block, slot, Stamp::received).load(), read.info().publish_ns);
  }
  EXPECT_GE(ring::stamp_of(block, slot, Stamp::released).load(), ring::stamp_of(block, slot, Stamp::received).load());
}

TEST(RingStamps, ForeignStampsAreNoneOfThisFrame) {
  const auto ring = stamping_ring(2);
  send(*ring);
  const ReadLease read = must_receive(*ring);
  ring::ControlBlock& block = foreign_view();
  ring::stamp_of(block, read.slot(), Stamp::acquired).store(std::numeric_limits<std::int64_t>::min());
  block.stamps[read.slot()].producer.due_ns.store(-1);
  ASSERT_TRUE(read.stamps());
  EXPECT_EQ(read.stamps()->at(Stamp::acquired), 0);
  EXPECT_EQ(read.stamps()->due_ns, 0);
  ring::stamp_of(block, read.slot(), Stamp::published).store(12345);
  EXPECT_EQ(read.stamps(), std::nullopt);
}

TEST(RingStamps, EmptyLeasesTakeThem) {
  WriteLease write;
  write.stamp(Stamp::first_store, 1);
  write.stamp_source(1, 2);
  const ReadLease read;
  read.stamp(Stamp::launched, 1);
  EXPECT_EQ(read.stamps(), std::nullopt);
}

}  // namespace
}  // namespace gpumap
