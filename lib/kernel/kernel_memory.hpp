// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "gpumap/device.hpp"
#include "gpumap/kernel.h"
#include "gpumap/program.hpp"
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

/// Device memory of at least `bytes` bytes, in place of what has `outgrown` bytes (0: there is none): half as much
/// again, so that frames of rising sizes seldom outgrow it; where there is not that much, just `bytes`. Throws
/// Error(no_memory | device_lost).
[[nodiscard]] std::shared_ptr<Mapping> allocate_growing(Device& device, Backend backend, std::size_t bytes,
                                                        std::size_t outgrown);

/// Device memory between the kernels of a program, which grows as needed. Its content is lost then. Thread safety: one
/// thread at a time.
class WorkMemory {
 public:
  WorkMemory(std::shared_ptr<Device> device, Backend backend) : device_(std::move(device)), backend_(backend) {}

  /// The address of at least `bytes` bytes, for what is launched on `queue` from here on. Where it has to grow it waits
  /// for what uses it. Throws QueueCancelled, and as allocate_growing(): then there is none.
  [[nodiscard]] std::uint64_t ready(Queue& queue, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t address() const { return memory_ ? memory_->address(backend_) : 0; }
  [[nodiscard]] std::uint64_t bytes() const { return memory_ ? memory_->bytes() : 0; }
  [[nodiscard]] const std::shared_ptr<Mapping>& memory() const noexcept { return memory_; }  ///< null before ready()

 private:
  std::shared_ptr<Device> device_;
  Backend backend_;
  std::shared_ptr<Mapping> memory_;
};

/// A range of memory for a kernel that sees frames as bytes.
[[nodiscard]] gpumap_view bytes_view(std::uint64_t address, std::size_t bytes) noexcept;

/// `view` of memory that begins at `from`, as the same lies in `bytes` bytes at `to`.
[[nodiscard]] gpumap_view moved(gpumap_view view, std::uint64_t from, std::uint64_t to, std::size_t bytes) noexcept;

/// Every other row of `view`, from row 0 or 1 on: a field (0 or 1) of an interlaced picture, as a picture of its own.
[[nodiscard]] gpumap_view field_of(gpumap_view view, std::uint32_t field) noexcept;

}  // namespace gpumap
