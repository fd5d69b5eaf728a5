// SPDX-License-Identifier: MIT
// The consumer's side of a ring: receive, ReadLease.
#include <optional>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/ring.hpp"
#include "ring/bell.hpp"
#include "ring/slot_ops.hpp"
#include "ring/state.hpp"

namespace gpumap {

RingStatus Ring::receive(ReadLease& lease, Deadline deadline) {
  State& state = *state_;
  lease = ReadLease();
  std::uint32_t slot = 0;
  FrameInfo info;
  const auto closed = [](const std::atomic<std::uint32_t>& side) {
    return side.load() != static_cast<std::uint32_t>(ring::Side::open);
  };
  const auto attempt = [&]() -> std::optional<RingStatus> {
    if (state.consumer_flushing.load()) return RingStatus::flushing;
    if (closed(state.block.consumer_side)) return RingStatus::closed;
    if (state.take_published(slot, info)) return RingStatus::ok;
    // Closed is said after the last publish, so who sees it looks once more before believing in an empty queue.
    if (closed(state.block.producer_side))
      return state.take_published(slot, info) ? RingStatus::ok : RingStatus::closed;
    if (state.take_nudge()) return RingStatus::timeout;
    return std::nullopt;
  };
  const RingStatus status = ring::wait_on(state.block.consumer_bell, deadline,
                                          std::chrono::nanoseconds(state.spin_ns.load(std::memory_order_relaxed)),
                                          state.consumer_waits, attempt, [] { return std::chrono::nanoseconds(0); });
  if (status == RingStatus::ok) lease = ReadLease(shared_from_this(), slot, info, state.written[slot]);
  return status;
}

ReadLease::ReadLease(ReadLease&& other) noexcept
    : ring_(std::move(other.ring_)), slot_(other.slot_), info_(other.info_), written_(std::move(other.written_)) {}

ReadLease& ReadLease::operator=(ReadLease&& other) noexcept {
  if (this == &other) return *this;
  if (ring_) ring::release_reader(ring_->state_->block, ring_->state_->limits, slot_);
  ring_ = std::move(other.ring_);
  slot_ = other.slot_;
  info_ = other.info_;
  written_ = std::move(other.written_);
  return *this;
}

ReadLease::~ReadLease() {
  if (ring_) ring::release_reader(ring_->state_->block, ring_->state_->limits, slot_);
}

std::size_t ReadLease::offset() const noexcept {
  return ring_ ? slot_ * ring_->state_->slot_stride : 0;
}

void ReadLease::add_read_fence(const Fence& fence) const {
  if (!ring_) throw Error(ErrorCode::invalid, "a read fence for an empty lease: receive a frame first");
  ring_->state_->pending.fences(slot_).add(fence);
}

}  // namespace gpumap
