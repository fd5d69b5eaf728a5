// SPDX-License-Identifier: MIT
// gpumap-latency: how a producer waits for what comes to its end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace latency {

/// What one waits for in small steps: sleeping, or spinning where that is asked for.
class Gate {
 public:
  explicit Gate(bool spin) : spin_(spin) {}
  void arrived();  ///< from any thread
  /// Until `count` have arrived, or stop().
  void wait_for(std::uint64_t count);
  void stop();
  [[nodiscard]] bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_.load(std::memory_order_acquire); }

 private:
  const bool spin_;
  std::atomic<std::uint64_t> count_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace latency
