// SPDX-License-Identifier: MIT
// Another process scribbles over the control block: errors and skipped frames, never a wrong address. What random bytes
// do is the fuzzer's business (control_block_fuzz.cpp); here is what a user of Ring sees.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "ring/bell.hpp"
#include "ring/ring_state.hpp"
#include "ring/slot_queue.hpp"
#include "ring_foreign.hpp"
#include "ring_helpers.hpp"

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

}  // namespace
}  // namespace gpumap
