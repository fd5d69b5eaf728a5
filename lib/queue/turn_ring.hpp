// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "device/gpu_device.hpp"
#include "gpumap/memory.hpp"
#include "queue/turn.h"

namespace gpumap {

/// Empty but for the frame, which is not written: of that a turn has as much as its kernel takes, or none.
[[nodiscard]] gpumap_turn turn_of(gpumap_turn_kind kind);

/// The slots by which the CPU asks something of a kernel that stays on the GPU, and their doorbells (queue/turn.h).
/// Thread safety: one thread at a time.
class TurnRing {
 public:
  static constexpr std::uint64_t slots = 64;

  /// In the GPU's memory where that keeps the order of writes over PCIe, else in host memory. Throws Error.
  explicit TurnRing(GpuDevice& device);

  /// Turn `number`, of which the first `bytes` of `turn` count. Precondition: turn `number - slots` is done.
  void put(std::uint64_t number, const gpumap_turn& turn, std::size_t bytes) noexcept;
  /// For a kernel that comes and begins with turn `first`. Its parts are to be zeros then.
  [[nodiscard]] gpumap_residence residence(std::uint64_t first, std::uint64_t done) const;
  [[nodiscard]] const std::shared_ptr<Mapping>& memory() const noexcept { return memory_; }
  /// Where the doorbell is, and why: for people.
  [[nodiscard]] const std::string& doorbell() const noexcept { return doorbell_; }

 private:
  void allocate(GpuDevice& device);
  [[nodiscard]] gpumap_turn& slot(std::uint64_t number) const noexcept;

  std::string doorbell_;
  std::shared_ptr<Mapping> memory_;
};

}  // namespace gpumap
