// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gpumap/export.hpp"

namespace gpumap {

using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC on Linux
using Deadline = Clock::time_point;
inline constexpr Deadline no_deadline = Deadline::max();

enum class WaitResult { ready, timeout, cancelled };

/// Whether GPU work waits behind that of other timelines.
enum class WorkAhead {
  none,
  awaited,  ///< somebody waits for it
  endless,  ///< it was given up, or told of: nobody does any more
};

class Fence;

/// A counter that a GPU queue raises as its work completes; it only grows.
/// Thread safety: every member may be called from any thread.
class GPUMAP_API Timeline {
 public:
  Timeline() = default;
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  virtual ~Timeline() = default;

  /// The last value reached. Never blocks. Costs a plain load on CUDA (the word lies in page-locked host memory).
  [[nodiscard]] virtual std::uint64_t completed() = 0;

  /// The work of other timelines for which `value` has to wait, because it has not ended. Never blocks.
  [[nodiscard]] virtual WorkAhead ahead_of(std::uint64_t /*value*/) { return WorkAhead::none; }
  /// Somebody was told that the work up to `value` does not end, so nobody else is to wait for it in silence.
  virtual void set_endless(std::uint64_t /*value*/) noexcept {}

  /// Throws Error(device_lost) when the work behind this timeline can no longer complete. Costs a driver call.
  virtual void check() = 0;

  /// See Fence::give_up(); `end` is a fence of this timeline. What has no memory of its own to keep does nothing.
  virtual void give_up(const Fence& /*end*/, const std::string& /*work*/) {}
};

/// A point on a timeline. Default-constructed, it has always been signalled. Cheap to copy; keeps its timeline alive.
class GPUMAP_API Fence {
 public:
  Fence() = default;
  Fence(std::shared_ptr<Timeline> timeline, std::uint64_t value) : timeline_(std::move(timeline)), value_(value) {}

  [[nodiscard]] bool signalled() const { return !timeline_ || timeline_->completed() >= value_; }

  /// Wait until signalled, until `cancel` is set, or until `deadline`. Spins for `spin`, then sleeps in growing steps
  /// of at most 200 us, so that `cancel` and the deadline are seen. Throws Error(device_lost) when the GPU work
  /// faulted. A wait that nothing ends but the GPU cannot be written: a kernel may run for ever.
  WaitResult wait(const std::atomic<bool>& cancel, Deadline deadline = no_deadline,  // NOLINT(*-use-nodiscard)
                  std::chrono::nanoseconds spin = std::chrono::microseconds(50)) const;
  /// The same for callers whom nobody cancels, such as destructors: for `longest` at most.
  WaitResult wait_for(std::chrono::nanoseconds longest,  // NOLINT(*-use-nodiscard)
                      std::chrono::nanoseconds spin = std::chrono::microseconds(50)) const;

  /// Tell the GPU's context that nobody waits for this fence any more, because the work before it may never end: until
  /// it has ended nothing is freed there, neither memory nor code, and standard error tells so once. `work` names it:
  /// "kernel blur.cu"; empty: its name is not known. The caller keeps the timeline, by keep_for_good() or otherwise.
  /// Nothing where the fence has signalled. For destructors: with no memory left it does nothing.
  void give_up(const std::string& work) const noexcept;

  [[nodiscard]] const std::shared_ptr<Timeline>& timeline() const noexcept { return timeline_; }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::shared_ptr<Timeline> timeline_;
  std::uint64_t value_ = 0;
};

/// How long destructors wait for GPU work before they keep its memory for good.
inline constexpr std::chrono::seconds patience_at_end{5};

/// Keep for the life of the process what running GPU work uses, where waiting for that work may take for ever: memory
/// freed under a kernel, or its code unloaded, faults the context of the whole process. Thread-safe.
GPUMAP_API void keep_for_good(std::shared_ptr<const void> what);
/// How many things were kept so. Thread-safe.
[[nodiscard]] GPUMAP_API std::size_t kept_for_good() noexcept;

}  // namespace gpumap
