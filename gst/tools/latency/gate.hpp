// SPDX-License-Identifier: MIT
// gpumap-latency: how a producer waits for what comes to its end, in its process or in another one.
#pragma once

#include <atomic>
#include <cstdint>

namespace latency {

/// What a gate counts in. All zero is a valid one: so are new pages that two processes share.
struct Arrivals {
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint32_t> asleep{0};   ///< the producer, for more of them: a futex
  std::atomic<std::uint64_t> entered{0};  ///< frames that the producer began
};

/// Arrivals in memory of their own, which another process maps by its descriptor.
class SharedArrivals {
 public:
  SharedArrivals();                 ///< new ones. Throws std::system_error
  explicit SharedArrivals(int fd);  ///< those behind a descriptor of this process, which it closes. Throws the same
  ~SharedArrivals();
  SharedArrivals(const SharedArrivals&) = delete;
  SharedArrivals& operator=(const SharedArrivals&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] Arrivals& operator*() const noexcept { return *words_; }
  [[nodiscard]] Arrivals* operator->() const noexcept { return words_; }

 private:
  void map();

  int fd_;
  Arrivals* words_ = nullptr;
};

/// What a producer waits for: frames at the end of their way, or the time at which its next one is due. It sleeps, or
/// spins where that is asked for. One thread waits.
class Gate {
 public:
  /// `shared` outlives it; null: it has its own.
  explicit Gate(bool spin, Arrivals* shared = nullptr) : spin_(spin), arrivals_(shared != nullptr ? *shared : own_) {}
  void arrived();  ///< from any thread
  /// Until `count` have arrived, or stop().
  void wait_for(std::uint64_t count);
  /// Until that time on CLOCK_MONOTONIC, or stop().
  void wait_until(std::int64_t time_ns);
  void stop();
  [[nodiscard]] bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed) != 0; }
  [[nodiscard]] std::uint64_t count() const noexcept { return arrivals_.count.load(std::memory_order_acquire); }

 private:
  void wake();

  const bool spin_;
  Arrivals own_;
  Arrivals& arrivals_;
  std::atomic<std::uint32_t> stopped_{0};  ///< a futex, for wait_until()
};

}  // namespace latency
