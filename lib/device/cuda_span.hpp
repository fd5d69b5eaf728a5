// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"
#include "gpumap/gpu_span.hpp"
#include "timing/clock_comparison.hpp"

namespace gpumap {

/// When on CLOCK_MONOTONIC an event of one GPU happened. CUDA tells only how long after another event: so now and then
/// an event is recorded while the CPU watches, on a stream of its own.
///
///   CPU   t0 = now, go = n             done == n, t1 = now
///                     \                /
///   GPU   wait go >= n > record event > done = n          the event happened in [t0, t1]
///
/// Costs nothing until start(). Thread safety: every member from any thread.
class CudaClock {
 public:
  explicit CudaClock(const CudaContext& context) : context_(context) {}
  ~CudaClock();
  CudaClock(const CudaClock&) = delete;
  CudaClock& operator=(const CudaClock&) = delete;

  /// Compare for the first time; later calls cost a load. Call inside a Scope.
  void start();
  /// Of two events in the order in which they happened. Empty while the clocks could not be compared. Call inside a
  /// Scope.
  [[nodiscard]] std::optional<GpuTimes> times(CUevent began, CUevent ended);

 private:
  struct Bracket {
    std::int64_t before_ns = 0, after_ns = 0;
    [[nodiscard]] std::int64_t width_ns() const noexcept { return after_ns - before_ns; }
  };
  struct Words;  // in page-locked memory

  void compare_if_due();
  [[nodiscard]] bool compare();
  void prepare();
  [[nodiscard]] bool is_idle();
  [[nodiscard]] std::optional<Bracket> watch_words(std::int64_t deadline_ns);
  [[nodiscard]] std::optional<Bracket> watch_event(std::int64_t deadline_ns);
  void add(const Bracket& bracket);
  [[nodiscard]] std::int64_t elapsed_ns(CUevent from, CUevent to) const;

  const CudaContext& context_;
  std::atomic<std::int64_t> due_ns_{0};  // when to compare next; 0: never did

  std::mutex comparing_;  // held while a thread compares; nobody waits for it
  CUstream stream_ = nullptr;
  Words* words_ = nullptr;  // null: without stream memory operations
  CUdeviceptr go_ = 0, done_ = 0;
  std::uint64_t round_ = 0;
  CUevent scratch_ = nullptr;    // of the round that runs
  CUevent narrowest_ = nullptr;  // of the best round so far
  bool unfinished_ = false;      // the GPU had not come to scratch_ when its round was given up

  std::mutex mutex_;  // of what follows; held for some us
  ClockComparison comparison_;
  std::deque<CUevent> events_;  // of each pair of the comparison
};

/// The spans of one CUDA queue: two timed events each, used again once a span was read or is gone.
/// Ownership: shared by the queue and its spans. Thread safety: begin() and end() in the queue's thread; spans give
/// their events back from any.
class CudaSpans : public std::enable_shared_from_this<CudaSpans> {
 public:
  explicit CudaSpans(std::shared_ptr<GpuDevice> device) : device_(std::move(device)), context_(*device_->cuda()) {}
  ~CudaSpans();
  CudaSpans(const CudaSpans&) = delete;
  CudaSpans& operator=(const CudaSpans&) = delete;

  /// Null where there is no telling; reason() says why. Call inside a Scope.
  [[nodiscard]] std::shared_ptr<GpuSpan> begin(CUstream stream);
  /// Throws Error(invalid) for a span that is not of these or has ended. Call inside a Scope.
  void end(GpuSpan& span, CUstream stream);
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  friend class CudaSpan;
  struct Events {
    CUevent began = nullptr, ended = nullptr;
  };
  [[nodiscard]] bool take(Events& events);
  void give_back(const Events& events) noexcept;

  const std::shared_ptr<GpuDevice> device_;
  const CudaContext& context_;
  std::string reason_;

  std::mutex mutex_;
  std::vector<Events> idle_;
  std::size_t made_ = 0;
};

}  // namespace gpumap
