// SPDX-License-Identifier: MIT
// Another process scribbles over the control block: errors and skipped frames, never a wrong address. What random bytes
// do is the fuzzer's business (control_block_fuzz.cpp); here is what a user of Ring sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpumap/latency.hpp"
#include "ring/control_block.hpp"
#include "ring/ring_state.hpp"
#include "ring/slot_ops.hpp"
#include "ring/slot_queue.hpp"
#include "ring_helpers.hpp"

namespace gpumap::test {

/// The block as a peer has it: found among this process's mappings, not through the ring.
inline ring::ControlBlock& foreign_view() {
  std::ifstream maps("/proc/self/maps");
  ring::ControlBlock* found = nullptr;
  int blocks = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:gpumap-ring") == std::string::npos) continue;
    found = reinterpret_cast<ring::ControlBlock*>(std::stoull(line, nullptr, 16));
    ++blocks;
  }
  EXPECT_EQ(blocks, 1);
  EXPECT_EQ(found->magic, ring::control_magic);
  EXPECT_EQ(found->version, ring::control_version);
  EXPECT_EQ(found->block_bytes, sizeof(ring::ControlBlock));
  return *found;
}

}  // namespace gpumap::test

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

TEST(RingForeign, BlockTellsItsSizes) {
  const auto ring = make_ring(3, 5000);
  const ring::ControlBlock& block = foreign_view();
  EXPECT_EQ(block.slots, 3U);
  EXPECT_EQ(block.slot_bytes, 5000U);
  EXPECT_EQ(block.slot_stride, 8192U);
}

TEST(RingForeign, SizesInTheBlockAreNotBelieved) {
  const auto ring = make_ring(3, 100);
  ring::ControlBlock& block = foreign_view();
  block.slots = 200;
  block.slot_bytes = block.slot_stride = 1U << 30U;
  EXPECT_EQ(ring->slots(), 3U);
  EXPECT_EQ(ring->slot_bytes(), 100U);
  WriteLease lease = must_acquire(*ring);
  expect_invalid([&] { ring->publish(lease, {.bytes = 101}); }, "101 bytes");
}

TEST(RingForeign, FrameLargerThanItsSlotIsSkipped) {
  const auto ring = make_ring(4, 100);
  for (std::uint64_t n = 0; n < 3; ++n) send(*ring, n);
  foreign_view().slot[1].info.bytes = 101;
  EXPECT_EQ(must_receive(*ring).info().offset, 0U);
  EXPECT_EQ(must_receive(*ring).info().offset, 2U);
  EXPECT_EQ(ring->counters().dropped, 1U);
  // Its slot is not lost.
  std::vector<WriteLease> all;
  for (int n = 0; n < 4; ++n) all.push_back(must_acquire(*ring));
}

TEST(RingForeign, SlotOutOfRangeIsSkipped) {
  const auto ring = make_ring(3, 100);
  send(*ring, 1);
  send(*ring, 2);
  ring::ControlBlock& block = foreign_view();
  block.slot[0].entry = ring::entry::pack(0, 3);
  // All else fits: only the index tells that the slot lies behind the mapping's end.
  block.slot[3].word.value = ring::pack({0, ring::Phase::published});
  EXPECT_EQ(must_receive(*ring).info().offset, 2U);
  EXPECT_EQ(ring->counters().dropped, 1U);
}

TEST(RingForeign, EntryOfAFreeSlotIsSkipped) {
  const auto ring = make_ring(3, 100);
  send(*ring, 1);
  send(*ring, 2);
  foreign_view().slot[0].entry = ring::entry::pack(0, 2);
  EXPECT_EQ(must_receive(*ring).info().offset, 2U);
}

TEST(RingForeign, SlotInUseIsNotHandedOutTwice) {
  const auto ring = make_ring(2, 100);
  const WriteLease lease = must_acquire(*ring);
  send(*ring);
  must_receive(*ring);
  ring::ControlBlock& block = foreign_view();
  block.freed_entries[block.freed.popped.value & 1U] = ring::entry::pack(block.freed.popped.value, lease.slot());
  WriteLease other;
  EXPECT_EQ(ring->acquire(other, WhenFull::drop_newest), RingStatus::full);
}

TEST(RingForeign, CursorsOutOfStepAreAnError) {
  const auto ring = make_ring(2, 100);
  ring::ControlBlock& block = foreign_view();
  WriteLease lease = must_acquire(*ring);
  const WriteLease last = must_acquire(*ring);
  for (auto& entry : block.freed_entries) entry = ~std::uint64_t{0};
  WriteLease other;
  expect_invalid([&] { (void)ring->acquire(other); }, "corrupt");
  for (auto& slot : block.slot) slot.entry = ~std::uint64_t{0};
  expect_invalid([&] { ring->publish(lease, {}); }, "corrupt");
  EXPECT_FALSE(lease.published());
  ReadLease read;
  expect_invalid([&] { (void)ring->receive(read); }, "corrupt");
  EXPECT_LE(ring->queued(), 2U);
}

TEST(RingForeign, SlotWordChangedUnderALeaseIsNotBelieved) {
  const auto ring = make_ring(2, 100);
  WriteLease lease = must_acquire(*ring);
  foreign_view().slot[lease.slot()].word.value = 0;
  lease = WriteLease();
  const WriteLease one = must_acquire(*ring);
  const WriteLease two = must_acquire(*ring);
  EXPECT_NE(one.slot(), two.slot());
  WriteLease three;
  EXPECT_EQ(ring->acquire(three, WhenFull::drop_newest), RingStatus::full);
}

TEST(RingForeign, ReadersWordChangedUnderALeaseIsNotFreedTwice) {
  const auto ring = make_ring(2, 100);
  send(*ring);
  ReadLease lease = must_receive(*ring);
  foreign_view().reading[lease.slot()].value = 0;
  lease = ReadLease();
  const WriteLease one = must_acquire(*ring);
  WriteLease two;
  EXPECT_EQ(ring->acquire(two, WhenFull::drop_newest), RingStatus::full) << "that slot is lost, and that is all";
}

TEST(RingForeign, CursorSetBackGivesNoFrameTwice) {
  const auto ring = make_ring(4, 100);
  send(*ring, 1);
  send(*ring, 2);
  ReadLease held = must_receive(*ring);
  ring::ControlBlock& block = foreign_view();
  block.published.popped.value = 0;
  EXPECT_EQ(must_receive(*ring).info().offset, 2U) << "held already";
  held = ReadLease();
  block.published.popped.value = 0;
  ReadLease none;
  EXPECT_EQ(ring->receive(none, at_once()), RingStatus::timeout) << "read already";
}

TEST(RingForeign, SlotFreedTwiceIsLeasedOnce) {
  const auto ring = make_ring(2, 100);
  const WriteLease one = must_acquire(*ring);
  WriteLease kept = must_acquire(*ring);
  ring->publish(kept, {});
  ring::ControlBlock& block = foreign_view();
  const std::uint64_t ticket = block.freed.pushed.value;
  block.freed_entries[ticket & 1U] = ring::entry::pack(ticket, kept.slot());
  block.freed_entries[(ticket + 1) & 1U] = ring::entry::pack(ticket + 1, kept.slot());
  WriteLease other;
  EXPECT_EQ(ring->acquire(other, WhenFull::drop_newest), RingStatus::full) << "its lease lives";
  kept = WriteLease();
  const WriteLease two = must_acquire(*ring);
  EXPECT_NE(two.slot(), one.slot());
  EXPECT_EQ(ring->acquire(other, WhenFull::drop_newest), RingStatus::full);
}

TEST(RingForeign, SlotFreedTwiceIsLeasedByOneOfTwoThreads) {
  constexpr std::uint32_t rounds = 20'000;
  ring::Writers writers;
  std::atomic<std::uint32_t> arrived{0};
  std::atomic<std::uint32_t> leases{0};
  // Both leave the meeting within some ns of each other, where each has a core.
  const auto meet = [&](std::uint32_t meeting) {
    ++arrived;
    for (int turn = 0; arrived.load() < 2 * meeting; ++turn) {
      if (turn > 1000) std::this_thread::yield();
    }
  };
  const auto lease_all = [&] {
    for (std::uint32_t round = 0; round < rounds; ++round) {
      meet(2 * round + 1);
      const bool leased = writers.lease(0);
      if (leased) ++leases;
      meet(2 * round + 2);
      if (leased) (void)writers.end(0);
    }
  };
  std::thread other(lease_all);
  lease_all();
  other.join();
  EXPECT_EQ(leases.load(), rounds) << "one in each round";
}

// A peer that dies between taking the sleepers' word and waking them, or that lies, leaves a sleeper whom no publish
// wakes: it looks again by itself.
TEST(RingForeign, SleeperWhomNobodyWakesLooksAgain) {
  const auto ring = make_ring(2, 100);
  auto consumer = asleep(*ring, [ring] {
    ReadLease lease;
    return ring->receive(lease, in(10min));
  });
  foreign_view().consumer_bell.sleepers = static_cast<std::uint32_t>(ring::Sleepers::none);
  send(*ring);
  ASSERT_EQ(consumer.wait_for(long_enough), std::future_status::ready);
  EXPECT_EQ(consumer.get(), RingStatus::ok);
}

TEST(RingForeign, SleepingProducerWhomNobodyWakesLooksAgain) {
  const auto full = full_ring();
  ReadLease lease = must_receive(*full);
  auto producer = asleep(*full, [full] {
    WriteLease write;
    return full->acquire(write, WhenFull::block, in(10min));
  });
  foreign_view().producer_bell.sleepers = static_cast<std::uint32_t>(ring::Sleepers::none);
  lease = ReadLease();
  ASSERT_EQ(producer.wait_for(long_enough), std::future_status::ready);
  EXPECT_EQ(producer.get(), RingStatus::ok);
}

// What this process wants of its own sleepers does not hang on a word that a peer may write.
TEST(RingForeign, CommandsWakeWhateverThePeerSays) {
  const auto ring = make_ring(2, 100);
  const auto wakes = [&](auto command) {
    const std::uint64_t calls = ring::futex_calls();
    command(*ring);
    return ring::futex_calls() - calls;
  };
  EXPECT_EQ(wakes([](Ring& one) { one.set_producer_flushing(true); }), 1U);
  EXPECT_EQ(wakes([](Ring& one) { one.set_consumer_flushing(true); }), 1U);
  EXPECT_EQ(wakes([](Ring& one) { one.nudge_consumer(); }), 1U);
  EXPECT_EQ(wakes([](Ring& one) { one.drop_queued(); }), 1U);
  EXPECT_EQ(wakes([](Ring& one) { one.close_producer(); }), 2U) << "both sides";
  EXPECT_EQ(wakes([](Ring& one) { one.close_consumer(); }), 2U) << "both sides";
}

// The way of a frame as its slot keeps it: in order, of the right frame, and where another process may read it.

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
