// SPDX-License-Identifier: MIT
// Read fences: GPU work that keeps a slot from its next writer.
#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "ring_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

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

}  // namespace
}  // namespace gpumap
