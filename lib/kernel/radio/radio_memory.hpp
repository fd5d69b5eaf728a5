// SPDX-License-Identifier: MIT
// Device memory of the radio built-ins.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/queue.hpp"
#include "kernel/kernel_memory.hpp"
#include "kernel/radio/oscillator.hpp"
#include "kernel/radio/radio_kernel.hpp"

namespace gpumap {

/// Numbers that were computed on the CPU: filters, twiddle factors.
class DeviceTable {
 public:
  DeviceTable(std::shared_ptr<Device> device, Backend backend)
      : device_(device), backend_(backend), memory_(std::move(device), backend) {}
  void set(std::vector<float> values) { values_ = std::move(values), stale_ = true; }
  /// Its address for what is launched on `queue` from here on: new numbers take their place behind what was launched
  /// with the old ones. Throws QueueCancelled, Error(no_memory | device_lost).
  [[nodiscard]] std::uint64_t ready(Queue& queue);

 private:
  struct Staging {
    std::shared_ptr<Mapping> memory;
    Fence copied;
  };

  std::shared_ptr<Device> device_;
  Backend backend_;
  WorkMemory memory_;
  std::vector<Staging> staging_;  ///< from which the GPU may still copy
  std::vector<float> values_;
  bool stale_ = false;
};

/// The samples that are kept from frame to frame, as float32 I and Q. Two pieces of memory by turns: what is kept next
/// is made of what was kept before.
class KeptSamples {
 public:
  KeptSamples(const std::shared_ptr<Device>& device, Backend backend, const Builtin& builtin)
      : kernel_(device, backend, builtin, "radio_keep"), memory_{{{device, backend}, {device, backend}}} {}

  /// A stream begins: there are none.
  void restart() noexcept { count_ = 0; }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Tells the kernels of this frame where they lie.
  void lend(gpumap_frame& frame) const;
  /// Keep `count` samples from number `first` on (see radio.h); those of this frame turned by `turn`.
  /// `frame` was lent what is kept so far. The address of the new ones. Throws as WorkMemory::ready().
  std::uint64_t keep(Queue& queue, const gpumap_frame& frame, std::int64_t first, std::uint64_t count,
                     const OscillatorTurn& turn = {});

 private:
  RadioKernel kernel_;
  std::array<WorkMemory, 2> memory_;
  std::size_t current_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace gpumap
