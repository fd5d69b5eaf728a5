// SPDX-License-Identifier: MIT
#pragma once

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
  static std::uint32_t watch_forks() noexcept;
  static std::atomic<std::uint32_t> forks;  ///< since the first ancestor that watched
  std::uint32_t made_in_;
};

}  // namespace gpumap
