// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace adaptive_optics {

/// How far one thread has come, for another one that follows. Thread safety: every member from any thread.
class Counter {
 public:
  /// One more; what was written before is seen by who waits for it.
  void advance() {
    state_.fetch_add(1, std::memory_order_release);
    state_.notify_all();
  }
  /// Who waits, or will, waits no more.
  void stop() {
    state_.fetch_or(stopped, std::memory_order_release);
    state_.notify_all();
  }
  [[nodiscard]] std::uint64_t count() const { return state_.load(std::memory_order_acquire) & ~stopped; }

  /// Until `count` have come, or stop(): first awake for `spin`, then asleep. True where they have come.
  [[nodiscard]] bool wait_for(std::uint64_t count, std::chrono::microseconds spin = {}) const {
    constexpr unsigned looks_a_time = 64;
    const auto until = std::chrono::steady_clock::now() + spin;
    std::uint64_t state = state_.load(std::memory_order_acquire);
    const auto over = [&] { return (state & ~stopped) >= count || (state & stopped) != 0; };
    while (!over() && spin.count() > 0 && std::chrono::steady_clock::now() < until) {
      for (unsigned look = 0; look < looks_a_time && !over(); ++look) state = state_.load(std::memory_order_acquire);
    }
    while (!over()) {
      state_.wait(state, std::memory_order_acquire);
      state = state_.load(std::memory_order_acquire);
    }
    return (state & ~stopped) >= count;
  }

 private:
  static constexpr std::uint64_t stopped = std::uint64_t{1} << 63U;
  std::atomic<std::uint64_t> state_{0};
};

}  // namespace adaptive_optics
