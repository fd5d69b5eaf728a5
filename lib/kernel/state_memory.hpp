// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gpumap/bounds_check.hpp"
#include "gpumap/device.hpp"
#include "gpumap/queue.hpp"

namespace gpumap {

/// Device memory that a program keeps from frame to frame, zero where a stream begins. Thread safety: one thread at a
/// time.
class StateMemory {
 public:
  StateMemory() = default;  ///< none
  /// With room for a guard behind it where it is `guarded`.
  StateMemory(Device& device, Backend backend, std::size_t bytes, bool guarded = false);

  /// Zero it before the next launch.
  void restart() noexcept { stale_ = true; }
  /// Its address for a launch on `queue`, behind what is needed to zero it.
  [[nodiscard]] std::uint64_t ready(Queue& queue);
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// That, which is guarded; no memory where it is empty.
  [[nodiscard]] BoundsCheck::Range range() const;

 private:
  std::shared_ptr<Mapping> memory_;
  std::size_t bytes_ = 0, whole_ = 0;  ///< asked for, and as much as is zeroed
  bool stale_ = true;
};

}  // namespace gpumap
