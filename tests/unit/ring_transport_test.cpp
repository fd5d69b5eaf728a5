// SPDX-License-Identifier: MIT
// Transports as the ring sees them: which one, and the fences of uploads that take their time.
#include <gtest/gtest.h>

#include <cstdint>

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

}  // namespace
}  // namespace gpumap
