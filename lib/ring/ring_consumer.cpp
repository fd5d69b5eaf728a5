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
  State::Hold hold(*this, state.read_leases, lease);
  if (!state.process.here()) [[unlikely]]
    return RingStatus::closed;
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
  if (status != RingStatus::ok) return status;
  if (ring::stamps(state.block)) {
    ring::stamp_of(state.block, slot, Stamp::received).store(monotonic_ns(), std::memory_order_relaxed);
  }
  hold.pass_to(lease);
  lease.slot_ = slot;
  lease.info_ = info;
  lease.written_ = state.written[slot];
  return status;
}

std::int64_t ReadLease::give_back() noexcept {
  Ring::State& state = *ring_->state_;
  std::int64_t released_ns = 0;
  if (!state.process.here()) [[unlikely]]
    return released_ns;
  if (ring::stamps(state.block)) {
    released_ns = monotonic_ns();
    ring::stamp_of(state.block, slot_, Stamp::released).store(released_ns, std::memory_order_relaxed);
  }
  ring::release_reader(state.block, state.limits, slot_);
  written_ = Fence();
  return released_ns;
}

std::int64_t ReadLease::end() noexcept {
  if (ring_ == nullptr) return 0;
  const std::int64_t released_ns = give_back();
  Ring* const ring = std::exchange(ring_, nullptr);
  if (ring->state_->let_go(ring->state_->read_leases)) delete ring;
  return released_ns;
}

ReadLease::ReadLease(ReadLease&& other) noexcept
    : ring_(std::exchange(other.ring_, nullptr)),
      slot_(other.slot_),
      info_(other.info_),
      written_(std::move(other.written_)) {}

ReadLease& ReadLease::operator=(ReadLease&& other) noexcept {
  if (this == &other) return *this;
  end();
  ring_ = std::exchange(other.ring_, nullptr);
  slot_ = other.slot_;
  info_ = other.info_;
  written_ = std::move(other.written_);
  return *this;
}

ReadLease::~ReadLease() {
  end();
}

std::size_t ReadLease::offset() const noexcept {
  return ring_ != nullptr ? slot_ * ring_->state_->slot_stride : 0;
}

std::optional<FrameRecord> ReadLease::stamps() const noexcept {
  if (ring_ == nullptr || !ring_->stamping()) return std::nullopt;
  return ring::read_stamps(ring_->state_->block, slot_, info_);
}

void ReadLease::stamp(Stamp stamp, std::int64_t at_ns) const noexcept {
  if (ring_ == nullptr || stamp <= Stamp::received || stamp >= Stamp::released || !ring_->stamping()) return;
  ring::stamp_of(ring_->state_->block, slot_, stamp).store(at_ns, std::memory_order_relaxed);
}

void ReadLease::add_read_fence(const Fence& fence) const {
  if (ring_ == nullptr) throw Error(ErrorCode::invalid, "a read fence for an empty lease: receive a frame first");
  ring_->state_->pending.fences(slot_).add(fence);
}

}  // namespace gpumap
