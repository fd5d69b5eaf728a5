// SPDX-License-Identifier: MIT
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace gpumap {

/// Whether this is still the process that made an object, and not a child of its fork(): what the object shares with
/// other threads or processes does not concern a child. The child has neither its threads, nor the thread that holds
/// its locks, nor its GPU, and what both map is the parent's. So there the object does nothing, and what it owns is
/// leaked. Thread safety: any thread.
class OwnProcess {
 public:
  OwnProcess() noexcept : made_in_(watch_forks()) {}
  /// Costs a load.
  [[nodiscard]] bool here() const noexcept { return forks.load(std::memory_order_relaxed) == made_in_; }

 private:
  static std::uint32_t watch_forks() noexcept {
    // In the child, before fork() returns there. Where there is no memory for that, children are not told apart.
    static const int watching = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    static_cast<void>(watching);
    return forks.load(std::memory_order_relaxed);
  }

  static constinit inline std::atomic<std::uint32_t> forks{0};  ///< since the first ancestor that watched
  std::uint32_t made_in_;
};

}  // namespace gpumap
