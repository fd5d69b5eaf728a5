// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gpumap/fence.hpp"
#include "ring/control_block.hpp"

namespace gpumap::ring {

/// Fences that have signalled, until no lock is held: the last holder of a timeline frees what belongs to it, and the
/// driver may wait for other work to do so.
class SpentFences {
 public:
  [[nodiscard]] bool full() const noexcept { return count_ == fences_.size(); }
  void add(Fence&& fence) noexcept { fences_[count_++] = std::move(fence); }

 private:
  std::array<Fence, 8> fences_;
  std::size_t count_ = 0;
};

/// The read fences of one slot. Private to the process: a fence holds pointers. The lock is taken only by those who
/// add fences and, once there are some, by the one who wants to lease the slot.
class ReadFences {
 public:
  void add(const Fence& fence);
  [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_acquire) != 0; }
  /// Forget those that have signalled; true when none is left.
  [[nodiscard]] bool drain();
  /// The same for callers that hold a lock. Where `spent` is full some may be left: call again.
  [[nodiscard]] bool drain(SpentFences& spent);
  /// Throws Error(device_lost) when a fence that is still to come can no longer signal.
  void check();
  /// Nobody waits for them any more: Fence::give_up().
  void give_up();

 private:
  void take_out(SpentFences& spent);  ///< those that have signalled, under the lock

  std::atomic<std::uint32_t> count_{0};
  std::mutex lock_;
  std::vector<Fence> fences_;
};

/// Free slots that wait for their read fences, oldest first. All of them were released before any slot that is still in
/// the queue of free ones, so looking here first keeps the order of release.
class PendingSlots {
 public:
  explicit PendingSlots(std::uint32_t slots);
  [[nodiscard]] ReadFences& fences(std::uint32_t slot) noexcept { return fences_[slot]; }

  [[nodiscard]] bool any() const noexcept { return count_.load() != 0; }
  void add(std::uint32_t slot);
  /// Take out the oldest slot whose fences have signalled.
  [[nodiscard]] bool take(std::uint32_t& slot);
  /// Throws Error(device_lost) when the oldest slot's fence can no longer signal.
  void check_oldest();

 private:
  std::unique_ptr<ReadFences[]> fences_;
  std::atomic<std::uint32_t> count_{0};  // seq_cst: part of the emptiness test before a sleep, see bell.hpp
  std::mutex lock_;
  std::vector<std::uint32_t> slots_;
};

}  // namespace gpumap::ring
