// SPDX-License-Identifier: MIT
// Transports as the ring sees them: which one, and the fences of uploads that take their time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "gpumap/block_pool.hpp"
#include "gpumap/slot_copier.hpp"
#include "ring_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

TEST(RingTransport, TakesPinnedMemoryWhereTheWindowIsFull) {
  const auto device = std::make_shared<FakeDevice>(1U << 20U);
  const auto small = Ring::create(device, {.slots = 4, .slot_bytes = 4096});
  EXPECT_EQ(small->transport(), Transport::bar);
  EXPECT_EQ(small->fallback_reason(), "");
  const auto large = Ring::create(device, {.slots = 4, .slot_bytes = 3U << 20U});
  EXPECT_EQ(large->transport(), Transport::pinned);
  EXPECT_EQ(device->last_options.placement, Placement::mirrored);
  EXPECT_EQ(large->fallback_reason(), "4 slots of 3 MiB: fake window exhausted; taking transport=pinned");
  for (const Transport asked : {Transport::pinned, Transport::zero_copy, Transport::pageable}) {
    const auto ring = Ring::create(device, {.slots = 4, .slot_bytes = 3U << 20U, .transport = asked});
    EXPECT_EQ(ring->transport(), asked);
    EXPECT_EQ(device->last_options.placement, placement_of(asked));
  }
}

/// A ring of two over DMA that the test finishes: both slots published, their uploads at 1 and 2.
struct Uploading {
  std::shared_ptr<Ring> ring =
      Ring::create(std::make_shared<FakeDevice>(), {.slots = 2, .slot_bytes = 1000, .transport = Transport::pinned});
  std::shared_ptr<FakeTimeline> timeline = std::make_shared<FakeTimeline>();

  Uploading() {
    for (const std::uint64_t value : {1U, 2U}) publish(value);
  }
  ~Uploading() { timeline->reached = 9; }
  Uploading(const Uploading&) = delete;
  Uploading& operator=(const Uploading&) = delete;

  void publish(std::uint64_t value) const {
    dynamic_cast<const FakeMapping&>(*ring->mapping()).next_upload = Fence(timeline, value);
    WriteLease lease = must_acquire(*ring);
    ring->publish(lease, {.bytes = 1000});
  }
};

TEST(RingTransport, ReaderIsGivenTheUpload) {
  const Uploading uploading;
  for (const std::uint64_t value : {1U, 2U}) {
    const ReadLease lease = must_receive(*uploading.ring);
    EXPECT_EQ(lease.written().timeline(), uploading.timeline);
    EXPECT_EQ(lease.written().value(), value);
  }
}

// Nobody read them: the upload itself keeps the slots.
TEST(RingTransport, UploadKeepsASlotFromReuse) {
  const Uploading uploading;
  uploading.ring->drop_queued();
  WriteLease lease;
  EXPECT_EQ(uploading.ring->acquire(lease, WhenFull::drop_newest), RingStatus::full);
  uploading.timeline->reached = 1;
  EXPECT_EQ(uploading.ring->acquire(lease, WhenFull::drop_newest), RingStatus::ok);
  WriteLease other;
  EXPECT_EQ(uploading.ring->acquire(other, WhenFull::drop_newest), RingStatus::full);
  uploading.timeline->reached = 2;
  EXPECT_EQ(uploading.ring->acquire(other, WhenFull::drop_newest), RingStatus::ok);
}

// The oldest frame's upload still reads its slot, and those of the others come later.
TEST(RingTransport, DropOldestPassesOverASlotWhoseUploadRuns) {
  const Uploading uploading;
  auto refused = std::async(std::launch::async, [&] {
    WriteLease lease;
    return uploading.ring->acquire(lease, WhenFull::drop_oldest);
  });
  ASSERT_EQ(refused.wait_for(long_enough), std::future_status::ready) << "it waits for the upload";
  EXPECT_EQ(refused.get(), RingStatus::full);
  EXPECT_EQ(uploading.ring->queued(), 2U) << "a frame was dropped, and nobody got its slot";
  EXPECT_EQ(uploading.ring->counters().refused, 1U);
  uploading.timeline->reached = 1;
  WriteLease lease;
  ASSERT_EQ(uploading.ring->acquire(lease, WhenFull::drop_oldest), RingStatus::ok);
  EXPECT_EQ(uploading.ring->counters().overtaken, 1U);
  EXPECT_EQ(must_receive(*uploading.ring).info().sequence, 1U);
}

TEST(RingTransport, DropOldestTellsOfALostDeviceAndLosesNoSlot) {
  const Uploading uploading;
  uploading.timeline->lost = true;
  WriteLease lease;
  try {
    (void)uploading.ring->acquire(lease, WhenFull::drop_oldest);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device_lost);
  }
  EXPECT_EQ(uploading.ring->queued(), 2U);
  uploading.timeline->lost = false;
  uploading.timeline->reached = 2;
  WriteLease other;
  EXPECT_EQ(uploading.ring->acquire(lease, WhenFull::drop_oldest), RingStatus::ok);
  EXPECT_EQ(uploading.ring->acquire(other, WhenFull::drop_oldest), RingStatus::ok);
}

TEST(RingTransport, EmptyFramesUploadNothing) {
  const Uploading uploading;
  (void)must_receive(*uploading.ring);
  uploading.timeline->reached = 1;
  send(*uploading.ring);
  (void)must_receive(*uploading.ring);
  EXPECT_EQ(must_receive(*uploading.ring).written().timeline(), nullptr);
}

// Read fences: GPU work that keeps a slot from its next writer.

TEST(RingFence, KeepsASlotFromReuse) {
  const auto ring = make_ring(2);
  const auto timeline = std::make_shared<FakeTimeline>();
  std::uint32_t fenced = 0;
  send(*ring);
  {
    const ReadLease lease = must_receive(*ring);
    fenced = lease.slot();
    lease.add_read_fence(Fence(timeline, 3));
    lease.add_read_fence(Fence(timeline, 7));
    lease.add_read_fence(Fence(timeline, 5));
    lease.add_read_fence(Fence());
  }
  for (const std::uint64_t reached : {0U, 3U, 6U}) {
    timeline->reached = reached;
    const WriteLease other = must_acquire(*ring);
    EXPECT_NE(other.slot(), fenced);
    WriteLease none;
    EXPECT_EQ(ring->acquire(none, WhenFull::drop_newest), RingStatus::full);
    EXPECT_EQ(ring->acquire(none, WhenFull::drop_oldest), RingStatus::full);
    EXPECT_EQ(ring->acquire(none, WhenFull::block, in(1ms)), RingStatus::timeout);
  }
  timeline->reached = 7;
  EXPECT_EQ(must_acquire(*ring).slot(), fenced) << "the slot released longest ago comes first";
}

TEST(RingFence, WaitsForEveryTimeline) {
  const auto ring = make_ring(2);
  const auto one = std::make_shared<FakeTimeline>();
  const auto two = std::make_shared<FakeTimeline>();
  const WriteLease other = must_acquire(*ring);
  send(*ring);
  {
    const ReadLease lease = must_receive(*ring);
    lease.add_read_fence(Fence(one, 1));
    lease.add_read_fence(Fence(two, 1));
  }
  WriteLease write;
  one->reached = 1;
  EXPECT_EQ(ring->acquire(write, WhenFull::drop_newest), RingStatus::full);
  two->reached = 1;
  EXPECT_EQ(ring->acquire(write, WhenFull::drop_newest), RingStatus::ok);
}

// A frame that is held and read for hours, each time on a timeline of its own.
TEST(RingFence, ThoseThatHaveSignalledAreForgottenAsOthersCome) {
  const auto ring = full_ring();
  const auto goes_on = std::make_shared<FakeTimeline>();
  {
    const ReadLease lease = must_receive(*ring);
    lease.add_read_fence(Fence(goes_on, 1));
    std::vector<std::weak_ptr<FakeTimeline>> ended;
    for (int i = 0; i < 1000; ++i) {
      const auto once = std::make_shared<FakeTimeline>();
      lease.add_read_fence(Fence(once, 1));
      once->reached = 1;
      ended.push_back(once);
    }
    EXPECT_LE(std::ranges::count_if(ended, [](const auto& one) { return !one.expired(); }), 20);
  }
  WriteLease write;
  EXPECT_EQ(ring->acquire(write, WhenFull::drop_newest), RingStatus::full);
  goes_on->reached = 1;
  EXPECT_EQ(ring->acquire(write, WhenFull::drop_newest), RingStatus::ok);
}

/// A ring of two whose slots are both free but for a fence at 1 and one at 2.
std::shared_ptr<Ring> fenced_ring(const std::shared_ptr<FakeTimeline>& timeline) {
  auto ring = full_ring();
  for (const std::uint64_t value : {1U, 2U}) must_receive(*ring).add_read_fence(Fence(timeline, value));
  return ring;
}

/// Its end asks for a slot from another thread, and waits for the answer.
class AsksAtItsEnd final : public FakeTimeline {
 public:
  explicit AsksAtItsEnd(Ring& ring) : ring_(ring) {}
  AsksAtItsEnd(const AsksAtItsEnd&) = delete;
  AsksAtItsEnd& operator=(const AsksAtItsEnd&) = delete;
  ~AsksAtItsEnd() override {
    auto answer = std::async(std::launch::async, [this] {
      WriteLease lease;
      return ring_.acquire(lease, WhenFull::drop_newest);
    });
    EXPECT_EQ(answer.get(), RingStatus::full);
  }

 private:
  Ring& ring_;
};

TEST(RingFence, TimelinesEndWithoutTheRingsLocks) {
  const auto ring = full_ring();
  const auto other = std::make_shared<FakeTimeline>();
  std::vector<std::shared_ptr<FakeTimeline>> timelines;
  {
    const ReadLease lease = must_receive(*ring);
    lease.add_read_fence(Fence(other, 1));
    for (int i = 0; i < 20; ++i) {
      timelines.push_back(std::make_shared<AsksAtItsEnd>(*ring));
      lease.add_read_fence(Fence(timelines.back(), 1));
      timelines.back()->reached = 1;
    }
  }
  timelines.clear();
  WriteLease write;
  EXPECT_EQ(ring->acquire(write, WhenFull::drop_newest), RingStatus::full);
  other->reached = 1;
  EXPECT_EQ(ring->acquire(write, WhenFull::drop_newest), RingStatus::ok);
}

// A stream of others that stands still is known by nothing but an event, which is the frame's.
TEST(RingFence, WhatReadsAFrameWithoutEndStaysKnown) {
  auto ring = full_ring();
  auto pool = std::make_shared<BlockPool>(std::make_shared<FakeDevice>(), Backend::vulkan, Placement::device, 1000);
  std::weak_ptr<FakeTimeline> of_ring, of_pool;
  const auto endless = [](std::weak_ptr<FakeTimeline>& known) {
    const auto made = std::make_shared<FakeTimeline>();
    known = made;
    return Fence(made, 1);
  };
  must_receive(*ring).add_read_fence(endless(of_ring));
  auto block = pool->take(std::atomic<bool>(false));
  ASSERT_TRUE(block);
  block->add_reader(endless(of_pool));
  pool->give_back(*std::move(block));
  const auto ends = std::async(std::launch::async, [&pool] { pool.reset(); });
  ring.reset();
  ends.wait();
  EXPECT_FALSE(of_ring.expired());
  EXPECT_FALSE(of_pool.expired());
}

TEST(RingFence, SignalEndsTheWait) {
  const auto timeline = std::make_shared<FakeTimeline>();
  const auto ring = fenced_ring(timeline);
  auto first = asleep(*ring, acquiring(ring));
  auto second = asleep(*ring, acquiring(ring));
  timeline->reached = 1;
  while (first.wait_for(0s) != std::future_status::ready && second.wait_for(0s) != std::future_status::ready) {
    std::this_thread::sleep_for(1ms);
  }
  timeline->reached = 2;
  expect_soon(first, RingStatus::ok);
  expect_soon(second, RingStatus::ok);
}

TEST(RingFence, FlushAndCloseEndTheWait) {
  const auto timeline = std::make_shared<FakeTimeline>();
  const auto ring = fenced_ring(timeline);
  auto result = asleep(*ring, acquiring(ring));
  ring->set_producer_flushing(true);
  expect_soon(result, RingStatus::flushing);
  ring->set_producer_flushing(false);
  result = asleep(*ring, acquiring(ring));
  ring->close_consumer();
  expect_soon(result, RingStatus::closed);
  timeline->reached = 9;
}

TEST(RingFence, LostDeviceIsAnErrorAndNotAHang) {
  const auto timeline = std::make_shared<FakeTimeline>();
  const auto ring = fenced_ring(timeline);
  timeline->lost = true;
  for (const WhenFull when : {WhenFull::block, WhenFull::drop_newest, WhenFull::drop_oldest}) {
    std::this_thread::sleep_for(25ms);  // the driver is asked every 20 ms at most
    WriteLease lease;
    try {
      (void)ring->acquire(lease, when, in(5s));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::device_lost);
    }
  }
}

TEST(RingFence, EndOfTheRingWaitsForTheGpu) {
  const auto timeline = std::make_shared<FakeTimeline>();
  auto ring = fenced_ring(timeline);
  const std::weak_ptr<Mapping> memory = ring->mapping();
  auto gone = std::async(std::launch::async, [held = std::move(ring)]() mutable { held.reset(); });
  EXPECT_EQ(gone.wait_for(30ms), std::future_status::timeout);
  EXPECT_FALSE(memory.expired());
  timeline->reached = 2;
  ASSERT_EQ(gone.wait_for(long_enough), std::future_status::ready);
  EXPECT_TRUE(memory.expired());
}

TEST(RingFence, EmptyLeaseRefusesAFence) {
  const ReadLease lease;
  expect_invalid([&] { lease.add_read_fence(Fence()); }, "empty lease");
}

// When a sink gives an upstream host memory, because it reads what it wrote, and when it must not.

using namespace std::chrono_literals;
using Next = SlowSlots::Next;

constexpr std::size_t frame = 3'110'401;
constexpr auto through_the_bar = 380ms;  // 8 MB/s
constexpr auto in_host_memory = 2ms;

TEST(SlowSlots, SendsAnUpstreamThatReadsToHostMemory) {
  SlowSlots slots;
  EXPECT_EQ(slots.next(frame), Next::slot);
  EXPECT_FALSE(slots.filled(Next::slot, frame, through_the_bar));
  EXPECT_EQ(slots.next(frame), Next::timed_slot);
  EXPECT_FALSE(slots.times_host(frame));
  EXPECT_FALSE(slots.filled(Next::timed_slot, frame, through_the_bar));
  EXPECT_EQ(slots.next(frame), Next::host);
  EXPECT_TRUE(slots.times_host(frame));
  EXPECT_TRUE(slots.filled(Next::host, frame, in_host_memory));
  EXPECT_EQ(slots.next(frame), Next::host);
  EXPECT_FALSE(slots.times_host(frame)) << "nothing is left to be timed";
  EXPECT_FALSE(slots.filled(Next::host, frame, through_the_bar)) << "said once";
  EXPECT_EQ(slots.next(frame), Next::host);
  slots.reset();
  EXPECT_EQ(slots.next(frame), Next::slot);
}

// Frames that become so small just then would all go to host memory, and never be timed.
TEST(SlowSlots, SendsNoFrameToHostMemoryThatTellsNothing) {
  SlowSlots slots;
  EXPECT_FALSE(slots.filled(Next::slot, frame, through_the_bar));
  EXPECT_FALSE(slots.filled(Next::timed_slot, frame, through_the_bar));
  constexpr std::size_t small = 65535;
  EXPECT_EQ(slots.next(small), Next::slot);
  EXPECT_FALSE(slots.filled(Next::slot, small, 1s));
  EXPECT_EQ(slots.next(small + 1), Next::host);
  EXPECT_TRUE(slots.filled(Next::host, small + 1, 1us));
  EXPECT_EQ(slots.next(small), Next::host);
}

TEST(SlowSlots, LeavesAnUpstreamThatIsSlowEverywhereItsSlots) {
  SlowSlots slots;
  EXPECT_FALSE(slots.filled(Next::slot, frame, through_the_bar));
  EXPECT_FALSE(slots.filled(Next::timed_slot, frame, through_the_bar));
  EXPECT_FALSE(slots.filled(Next::host, frame, through_the_bar / 2));
  EXPECT_EQ(slots.next(frame), Next::slot);
  EXPECT_FALSE(slots.filled(Next::slot, frame, through_the_bar));
  EXPECT_EQ(slots.next(frame), Next::slot) << "one try is enough";
}

TEST(SlowSlots, IsNotMisledByABusyMachine) {
  SlowSlots slots;
  EXPECT_FALSE(slots.filled(Next::slot, frame, 100ms)) << "preempted";
  EXPECT_EQ(slots.next(frame), Next::timed_slot);
  EXPECT_FALSE(slots.filled(Next::timed_slot, frame, in_host_memory)) << "of CPU time";
  EXPECT_EQ(slots.next(frame), Next::slot);
}

TEST(SlowSlots, IgnoresSmallFramesAndFramesFromBeforeItsQuestion) {
  SlowSlots slots;
  EXPECT_FALSE(slots.filled(Next::slot, 4096, 5ms));
  EXPECT_EQ(slots.next(frame), Next::slot);
  EXPECT_FALSE(slots.filled(Next::slot, frame, through_the_bar));
  EXPECT_FALSE(slots.filled(Next::slot, frame, in_host_memory)) << "was in a queue already";
  EXPECT_EQ(slots.next(frame), Next::timed_slot);
}

}  // namespace
}  // namespace gpumap
