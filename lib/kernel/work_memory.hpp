// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "gpumap/device.hpp"
#include "gpumap/queue.hpp"

namespace gpumap {

/// Device memory between the kernels of a program, which grows as needed. Its content is lost then. Thread safety: one
/// thread at a time.
class WorkMemory {
 public:
  WorkMemory(std::shared_ptr<Device> device, Backend backend) : device_(std::move(device)), backend_(backend) {}

  /// The address of at least `bytes` bytes, for what is launched on `queue` from here on. Where it has to grow it waits
  /// for what uses it, and takes half as much again, so that frames of rising sizes seldom wait; where there is not
  /// that much, just `bytes`. Throws QueueCancelled, Error(no_memory | device_lost); then there is none.
  [[nodiscard]] std::uint64_t ready(Queue& queue, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t address() const { return memory_ ? memory_->address(backend_) : 0; }
  [[nodiscard]] std::uint64_t bytes() const { return memory_ ? memory_->bytes() : 0; }
  [[nodiscard]] const std::shared_ptr<Mapping>& memory() const noexcept { return memory_; }  ///< null before ready()

 private:
  std::shared_ptr<Device> device_;
  Backend backend_;
  std::shared_ptr<Mapping> memory_;
};

}  // namespace gpumap
