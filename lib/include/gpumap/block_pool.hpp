// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/memory.hpp"

namespace gpumap {

/// A piece of memory that a BlockPool lent; handed back when the last holder lets go.
struct MemoryBlock {
  std::shared_ptr<Mapping> mapping;
  std::vector<Fence> readers;  ///< GPU work that reads it, or still writes it

  /// One of each timeline, whose latest point stands for the earlier ones: a frame may be read again and again.
  GPUMAP_API void add_reader(const Fence& fence);
};

class LentBlock;

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
  /// A block of at least `bytes` bytes of `pool`, which is made where it is null. Its blocks have as many from here on:
  /// smaller ones go once nobody reads them, and this waits for that no more than take() does. Empty and throws as
  /// take(). In one thread at a time.
  [[nodiscard]] static LentBlock lend(std::shared_ptr<BlockPool>& pool, const std::shared_ptr<Device>& device,
                                      Backend backend, Placement placement, std::size_t bytes,
                                      const std::atomic<bool>& cancelled);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Frames of another size begin: those that lend() makes from here on need not be as large as those before. In the
  /// thread of lend().
  void begin() noexcept { bytes_ = 1; }

  static constexpr std::size_t max_read = 4;

 private:
  [[nodiscard]] std::shared_ptr<Mapping> allocate();
  [[nodiscard]] bool is_outgrown(const MemoryBlock& block) const noexcept;
  [[nodiscard]] std::optional<MemoryBlock> take_idle();
  [[nodiscard]] std::optional<MemoryBlock> take_oldest();

  std::shared_ptr<Device> device_;
  Backend backend_;
  Placement placement_;
  std::atomic<std::size_t> bytes_;
  std::mutex mutex_;
  std::deque<MemoryBlock> free_;  ///< in the order in which they came back
};

/// A block of a pool, which goes back there with this. Empty when default-constructed or moved from. Ownership: keeps
/// the pool. Thread safety: one thread at a time.
class LentBlock {
 public:
  LentBlock() = default;
  LentBlock(std::shared_ptr<BlockPool> pool, MemoryBlock block) : pool_(std::move(pool)), block_(std::move(block)) {}
  ~LentBlock() {
    if (pool_ && block_.mapping) pool_->give_back(std::move(block_));
  }
  LentBlock(LentBlock&& other) noexcept = default;
  LentBlock& operator=(LentBlock&& other) noexcept {
    pool_.swap(other.pool_);
    block_.mapping.swap(other.block_.mapping);
    block_.readers.swap(other.block_.readers);
    return *this;
  }
  LentBlock(const LentBlock&) = delete;
  LentBlock& operator=(const LentBlock&) = delete;

  [[nodiscard]] explicit operator bool() const noexcept { return block_.mapping != nullptr; }
  /// Not of an empty one.
  [[nodiscard]] const Mapping& mapping() const noexcept { return *block_.mapping; }
  /// Keeps the memory, not the block. Null of an empty one.
  [[nodiscard]] const std::shared_ptr<Mapping>& shared_mapping() const noexcept { return block_.mapping; }
  /// GPU work that uses it: until then no one else gets it. Nothing where it is empty.
  void add_read_fence(const Fence& fence) {
    if (block_.mapping != nullptr) block_.add_reader(fence);
  }
  [[nodiscard]] const std::shared_ptr<BlockPool>& pool() const noexcept { return pool_; }
  /// The block itself, which is the caller's to give back to the pool.
  [[nodiscard]] MemoryBlock release() noexcept { return std::move(block_); }

 private:
  std::shared_ptr<BlockPool> pool_;
  MemoryBlock block_;
};

}  // namespace gpumap
