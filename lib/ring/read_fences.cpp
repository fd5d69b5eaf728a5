// SPDX-License-Identifier: MIT
#include "ring/ring_state.hpp"

#include <algorithm>
#include <utility>

namespace gpumap::ring {

namespace {

/// From so many on, a fence that comes sees which have signalled: a frame may be read for hours, each time on a
/// timeline of its own.
constexpr std::size_t many = 8;

}  // namespace

void ReadFences::add(const Fence& fence) {
  if (!fence.timeline()) return;
  SpentFences spent;  // outlives the guard
  const std::lock_guard guard(lock_);
  // A timeline only grows: its latest point stands for the earlier ones.
  for (Fence& known : fences_) {
    if (known.timeline() != fence.timeline()) continue;
    if (known.value() < fence.value()) known = fence;
    return;
  }
  fences_.push_back(fence);
  count_.store(static_cast<std::uint32_t>(fences_.size()), std::memory_order_release);
  if (fences_.size() > many) take_out(spent);
}

bool ReadFences::drain() {
  for (;;) {
    SpentFences spent;
    if (drain(spent)) return true;
    if (!spent.full()) return false;
  }
}

bool ReadFences::drain(SpentFences& spent) {
  const std::lock_guard guard(lock_);
  take_out(spent);
  return fences_.empty();
}

void ReadFences::take_out(SpentFences& spent) {
  // Not erase_if: signalled() may throw, and a fence must not be lost half-way.
  for (std::size_t at = fences_.size(); at-- > 0 && !spent.full();) {
    if (!fences_[at].signalled()) continue;
    std::swap(fences_[at], fences_.back());
    spent.add(std::move(fences_.back()));
    fences_.pop_back();
  }
  count_.store(static_cast<std::uint32_t>(fences_.size()), std::memory_order_release);
}

void ReadFences::check() {
  std::shared_ptr<Timeline> timeline;
  {
    const std::lock_guard guard(lock_);
    if (!fences_.empty()) timeline = fences_.front().timeline();
  }
  if (timeline) timeline->check();
}

void ReadFences::give_up() {
  const std::lock_guard guard(lock_);
  for (const Fence& fence : fences_) {
    fence.give_up({});
    keep_for_good(fence.timeline());  // without it nobody knows that the work still runs
  }
}

PendingSlots::PendingSlots(std::uint32_t slots) : fences_(std::make_unique<ReadFences[]>(slots)) {
  slots_.reserve(slots);
}

void PendingSlots::add(std::uint32_t slot) {
  const std::lock_guard guard(lock_);
  // A corrupt queue may name a slot twice; kept once, the vector never outgrows what was reserved.
  if (std::ranges::find(slots_, slot) == slots_.end()) slots_.push_back(slot);
  count_.store(static_cast<std::uint32_t>(slots_.size()));
}

bool PendingSlots::take(std::uint32_t& slot) {
  for (;;) {
    SpentFences spent;  // outlives the guard
    const std::lock_guard guard(lock_);
    const auto found = std::ranges::find_if(slots_, [&](std::uint32_t one) { return fences_[one].drain(spent); });
    if (found != slots_.end()) {
      slot = *found;
      slots_.erase(found);
      count_.store(static_cast<std::uint32_t>(slots_.size()));
      return true;
    }
    if (!spent.full()) return false;
  }
}

void PendingSlots::check_oldest() {
  ReadFences* oldest = nullptr;
  {
    const std::lock_guard guard(lock_);
    if (!slots_.empty()) oldest = &fences_[slots_.front()];
  }
  if (oldest != nullptr) oldest->check();
}

}  // namespace gpumap::ring
