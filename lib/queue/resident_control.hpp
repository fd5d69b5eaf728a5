// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda_timeline.hpp"
#include "device/resident_registry.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/queue.hpp"
#include "queue/queues.hpp"
#include "queue/turn.h"

namespace gpumap {

/// A thread that looks at something again and again: when it is woken, and at the time that its last look named.
/// Thread safety: every member, but stop() in one thread.
class Watcher {
 public:
  /// `look` is called by the thread, which ends when it throws. The first time is after wake().
  explicit Watcher(std::function<Clock::time_point()> look);
  ~Watcher() { stop(); }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Look soon. Once for several of these that come before it.
  void wake() noexcept;
  /// Returns when the last look has ended.
  void stop() noexcept;

 private:
  void watch() noexcept;

  const std::function<Clock::time_point()> look_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false, ends_ = false;
  std::thread thread_;
};

/// The kernel of a queue that is on the GPU, or none: in how many blocks it comes, and when it is to leave.
/// Thread safety: one thread at a time.
class Stay final : private Residents::Guest {
 public:
  /// `watcher` is woken when is_over() may have changed. It and the context outlive this.
  Stay(const CudaContext& context, std::shared_ptr<CudaTimeline> timeline, Watcher& watcher,
       const ResidentOptions& options);
  ~Stay() { residents_.forget(*this); }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

  [[nodiscard]] bool is_there() const noexcept { return owner_ != nullptr; }
  /// This kernel is there, in blocks as `grid` has them and as many as help.
  [[nodiscard]] bool serves(const ResidentKernel& kernel, const Grid& grid) const noexcept;
  /// Precondition of both: none is there. When `prepare` has returned end() is due, or launch(). It may wait, and
  /// throws QueueCancelled where that is `given_up`.
  void prepare(const ResidentKernel& kernel, const Grid& grid, const std::function<bool()>& given_up);
  void launch(const ResidentKernel& kernel, gpumap_residence residence);
  /// It was told to leave, or was not launched. Its owner, which has to live until it has left.
  std::shared_ptr<const void> end() noexcept;

  /// It came, or comes, where others may find no multiprocessor for it: it is not to wait for any on the GPU.
  [[nodiscard]] bool is_crowded() const noexcept { return found_ != Residents::Room::free; }
  /// Others have to run just where it is: it leaves behind each submission.
  [[nodiscard]] bool is_demanded() const noexcept { return found_ == Residents::Room::demanded; }
  [[nodiscard]] bool is_asked_to_leave() const noexcept { return asked_; }
  /// What waits on the GPU is posted next, up to `value` of its timeline. False: it was asked to leave, and may not.
  [[nodiscard]] bool waits_until(std::uint64_t value);
  /// Of one that is_crowded(): what it is to be launched behind.
  [[nodiscard]] std::vector<Fence> waits_of_others() const { return residents_.waits_of_others(*this); }
  [[nodiscard]] bool is_behind_other_priorities() const { return residents_.is_behind_other_priorities(*this); }
  void note_use() noexcept { used_ = true; }
  /// Idle or there for long enough, or asked to leave. `posted`: its timeline's value when nothing is left to do.
  [[nodiscard]] bool is_over(Clock::time_point now, std::uint64_t posted);
  /// When is_over() is to be asked again, at the latest.
  [[nodiscard]] Clock::time_point next_look(Clock::time_point now) const noexcept;
  /// Whether the GPU limits the time of kernels, for people; empty: it does not.
  [[nodiscard]] std::string time_limit() const;

 private:
  void ask_to_leave() noexcept override;
  [[nodiscard]] Fence waits() const override;
  [[nodiscard]] bool has_left() const noexcept override { return timeline_->completed() >= gone_; }
  [[nodiscard]] std::uint32_t wanted(const Grid& grid) const noexcept;
  [[nodiscard]] std::uint32_t room_for(const ResidentKernel& kernel) const;

  const CudaContext& context_;
  const std::shared_ptr<CudaTimeline> timeline_;
  Watcher& watcher_;
  Residents& residents_;
  const bool limited_;  ///< the GPU limits the time of kernels
  const std::chrono::nanoseconds idle_, longest_;
  const std::uint32_t priority_;
  std::uint32_t multiprocessors_ = 0, max_blocks_ = 0;
  mutable std::mutex waits_mutex_;      ///< between who asks it to leave and a wait that begins
  std::uint64_t waits_ = 0;             ///< value of the timeline until which it may wait on the GPU
  std::atomic<bool> asked_{false};      ///< to leave
  std::atomic<std::uint64_t> gone_{0};  ///< the timeline's value when the last one that was told to has left
  std::shared_ptr<const void> owner_;   ///< of the kernel that is on the GPU; null: none
  Clock::time_point came_, idle_look_;  ///< when it came, and when it may be found idle
  std::array<std::uint32_t, 3> threads_{};
  std::uint32_t blocks_ = 0, room_ = 0;            ///< of what is there: blocks, and how many could be
  Residents::Room found_ = Residents::Room::free;  ///< when it came
  bool used_ = false;                              ///< since the last look
};

}  // namespace gpumap
