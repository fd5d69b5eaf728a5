// SPDX-License-Identifier: MIT
// The producer's side of a ring: acquire, publish, WriteLease.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "gpumap/copy.hpp"
#include "gpumap/error.hpp"
#include "gpumap/ring.hpp"
#include "ring/bell.hpp"
#include "ring/slot_ops.hpp"
#include "ring/state.hpp"

namespace gpumap {
namespace {

using std::chrono::nanoseconds;

bool closed(const std::atomic<std::uint32_t>& side) noexcept {
  return side.load() != static_cast<std::uint32_t>(ring::Side::open);
}

constexpr nanoseconds shortest_slice{20'000};
constexpr nanoseconds longest_slice{200'000};

}  // namespace

RingStatus Ring::acquire(WriteLease& lease, WhenFull when_full, Deadline deadline) {
  State& state = *state_;
  State::Hold hold(*this, state.write_leases, lease);
  if (!state.process.here()) [[unlikely]]
    return RingStatus::closed;
  std::uint32_t slot = 0;
  const auto attempt = [&]() -> std::optional<RingStatus> {
    if (state.producer_flushing.load()) return RingStatus::flushing;
    if (closed(state.block.consumer_side) || closed(state.block.producer_side)) return RingStatus::closed;
    if (state.take_free(slot)) return RingStatus::ok;
    return std::nullopt;
  };
  // How long to sleep without looking at fences, which ring no bell.
  auto slice = [&state, next = shortest_slice]() mutable {
    if (!state.pending.any()) return nanoseconds(0);
    state.check_pending();
    return std::exchange(next, std::min(next * 2, longest_slice));
  };
  RingStatus status = RingStatus::full;
  if (when_full == WhenFull::block) {
    status =
        ring::wait_on(state.block.producer_bell, deadline, nanoseconds(state.spin_ns.load(std::memory_order_relaxed)),
                      state.producer_waits, attempt, slice);
  } else if (const auto now = attempt()) {
    status = *now;
  } else if (when_full == WhenFull::drop_oldest && (state.take_back(slot) || state.take_free(slot))) {
    // Free ones are asked again: the consumer may have taken and released what we were about to take back.
    status = RingStatus::ok;
  } else {
    state.check_pending();
    state.block.dropped_refused.fetch_add(1, std::memory_order_relaxed);
  }
  if (status != RingStatus::ok) return status;
  if (ring::stamps(state.block)) ring::begin_stamps(state.block, slot, monotonic_ns());
  hold.pass_to(lease);
  lease.slot_ = slot;
  lease.published_ = false;
  return status;
}

void Ring::publish(WriteLease& lease, const FrameInfo& info) {
  State& state = *state_;
  if (lease.ring_ != this) {
    throw Error(ErrorCode::invalid, lease.ring_ != nullptr
                                        ? "publish of a lease of another ring: publish it where it was acquired"
                                        : "publish of an empty lease: acquire a slot first");
  }
  if (!state.process.here()) [[unlikely]] {
    throw Error(ErrorCode::invalid, "publish after fork(): a ring serves the process that made it, not its children");
  }
  if (lease.published_) {
    throw Error(ErrorCode::invalid,
                fmt::format("slot {} is published already: acquire a new lease for each frame", lease.slot_));
  }
  if (info.bytes > state.limits.slot_bytes) {
    throw Error(ErrorCode::invalid, fmt::format("publish of {} bytes from a slot of {}: make slot_bytes larger",
                                                info.bytes, state.limits.slot_bytes));
  }
  ring::expect_publish(state.block, state.limits, lease.slot_);
  store_fence();
  if (state.uploads) {
    Fence written = info.bytes == 0 ? Fence() : state.mapping->upload(lease.offset(), info.bytes);
    // It reads the slot, as a kernel does: a slot that nobody receives must wait for it all the same.
    state.pending.fences(lease.slot_).add(written);
    state.written[lease.slot_] = std::move(written);
  }
  state.writers.publish(lease.slot_);
  const std::int64_t now = monotonic_ns();
  if (ring::stamps(state.block)) {
    ring::stamp_of(state.block, lease.slot_, Stamp::published).store(now, std::memory_order_relaxed);
  }
  if (!ring::publish(state.block, state.limits, lease.slot_, info, now)) {
    state.writers.publish_failed(lease.slot_);
    throw Error(
        ErrorCode::invalid,
        fmt::format("the ring's control block is corrupt: slot {} cannot be queued; another process wrote to it: "
                    "restart both sides",
                    lease.slot_));
  }
  lease.published_ = true;
  // The consumer may have closed while we queued, and then nobody else empties the queue.
  if (closed(state.block.consumer_side)) [[unlikely]]
    ring::drop_published(state.block, state.limits);
}

void WriteLease::give_back() noexcept {
  if (ring_->state_->process.here()) ring_->state_->end_lease(slot_, published_);
}

void WriteLease::end() noexcept {
  if (ring_ == nullptr) return;
  give_back();
  Ring* const ring = std::exchange(ring_, nullptr);
  if (ring->state_->let_go(ring->state_->write_leases)) delete ring;
}

WriteLease::WriteLease(WriteLease&& other) noexcept
    : ring_(std::exchange(other.ring_, nullptr)),
      slot_(other.slot_),
      published_(std::exchange(other.published_, false)) {}

WriteLease& WriteLease::operator=(WriteLease&& other) noexcept {
  if (this == &other) return *this;
  end();
  ring_ = std::exchange(other.ring_, nullptr);
  slot_ = other.slot_;
  published_ = std::exchange(other.published_, false);
  return *this;
}

WriteLease::~WriteLease() {
  end();
}

void WriteLease::stamp(Stamp stamp, std::int64_t at_ns) noexcept {
  if (ring_ == nullptr || published_ || !ring_->stamping()) return;
  auto& at = ring::stamp_of(ring_->state_->block, slot_, stamp);
  if (stamp == Stamp::first_store && at.load(std::memory_order_relaxed) != 0) return;
  at.store(at_ns, std::memory_order_relaxed);
}

void WriteLease::stamp_source(std::int64_t due_ns, std::int64_t captured_ns) noexcept {
  if (ring_ == nullptr || published_ || !ring_->stamping()) return;
  auto& source = ring_->state_->block.stamps[slot_].producer;
  source.due_ns.store(due_ns, std::memory_order_relaxed);
  source.captured_ns.store(captured_ns, std::memory_order_relaxed);
}

std::byte* WriteLease::host() const noexcept {
  return ring_ != nullptr ? ring_->state_->host + offset() : nullptr;
}
std::size_t WriteLease::bytes() const noexcept {
  return ring_ != nullptr ? ring_->slot_bytes() : 0;
}
std::size_t WriteLease::offset() const noexcept {
  return ring_ != nullptr ? slot_ * ring_->state_->slot_stride : 0;
}

}  // namespace gpumap
