// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/memory.hpp"

namespace gpumap {

/// A piece of memory that a BlockPool lent; handed back when the last holder lets go.
struct MemoryBlock {
  std::shared_ptr<Mapping> mapping;
  std::vector<Fence> readers;  ///< GPU work of others that reads it
};

/// Blocks of memory for a kernel's results, used again once every reader is done. Blocks that are out when the pool
/// goes keep what they need. Thread safety: every member from any thread.
class GPUMAP_API BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  BlockPool(std::shared_ptr<Device> device, Backend backend, Placement placement, std::size_t bytes)
      : device_(std::move(device)), backend_(backend), placement_(placement), bytes_(bytes) {}
  /// Waits for what still reads the blocks.
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// A block that no one reads any more: one that came back, or a new one. Where `max_read` have come back and all are
  /// still read, this waits for the oldest: otherwise a slow reader, which is asked for nothing, would be given one
  /// block of device memory a frame. Empty when cancelled. Throws Error(no_memory | device_lost).
  [[nodiscard]] std::optional<MemoryBlock> take(const std::atomic<bool>& cancelled);
  void give_back(MemoryBlock&& block);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  static constexpr std::size_t max_read = 4;

 private:
  [[nodiscard]] std::shared_ptr<Mapping> allocate();
  [[nodiscard]] std::optional<MemoryBlock> take_idle();
  [[nodiscard]] std::optional<MemoryBlock> take_oldest();

  std::shared_ptr<Device> device_;
  Backend backend_;
  Placement placement_;
  std::size_t bytes_;
  std::mutex mutex_;
  std::deque<MemoryBlock> free_;  ///< in the order in which they came back
};

}  // namespace gpumap
