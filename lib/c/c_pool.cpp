// SPDX-License-Identifier: MIT
// Blocks of one size in few allocations.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "c/c_memory.hpp"
#include "gpumap/error.hpp"

namespace gpumap::c {
namespace {

/// What the pool and its blocks share. Thread safety: any thread.
class Blocks {
 public:
  struct Block {
    std::shared_ptr<Mapping> mapping;
    std::size_t offset = 0;
  };

  Blocks(std::shared_ptr<Device> device, const MappingOptions& allocation, std::size_t stride, std::size_t most)
      : device_(std::move(device)), allocation_(allocation), stride_(stride), most_(most) {}
  ~Blocks() {
    for (Used& used : used_) outlast(std::move(used.block.mapping), used.users);
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  /// No mapping: there are no more.
  [[nodiscard]] Block take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) collect();
    if (free_.empty() && made_ < most_) grow();
    if (free_.empty()) return {};
    Block block = std::move(free_.back());
    free_.pop_back();
    return block;
  }

  void give_back(Block block, std::vector<Fence> users) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      if (users.empty()) {
        free_.push_back(std::move(block));  // has its room since it was made
      } else {
        used_.push_back({block, std::move(users)});
      }
    } catch (const std::exception&) {
      outlast(std::move(block.mapping), users);  // no memory to note it: the block is lost, its memory is not
    }
  }

  [[nodiscard]] const std::shared_ptr<Device>& device() const noexcept { return device_; }

 private:
  struct Used {
    Block block;
    std::vector<Fence> users;
  };

  void collect() {
    std::erase_if(used_, [this](Used& used) {
      const bool done =
          std::all_of(used.users.begin(), used.users.end(), [](const Fence& user) { return user.signalled(); });
      if (done) free_.push_back(std::move(used.block));
      return done;
    });
  }

  void grow() {
    const std::size_t count = std::min(allocation_.bytes / stride_, most_ - made_);
    MappingOptions options = allocation_;
    options.bytes = count * stride_;
    const std::shared_ptr<Mapping> mapping = device_->allocate(options);
    free_.reserve(made_ + count);
    for (std::size_t number = count; number-- > 0;) free_.push_back({mapping, number * stride_});
    made_ += count;
  }

  const std::shared_ptr<Device> device_;
  const MappingOptions allocation_;
  const std::size_t stride_, most_;
  std::mutex mutex_;
  std::vector<Block> free_;
  std::deque<Used> used_;  ///< given back, in that order, and perhaps still used by a GPU
  std::size_t made_ = 0;
};

class PoolBlock final : public Keeper {
 public:
  PoolBlock(std::shared_ptr<Blocks> pool, Blocks::Block block) : pool_(std::move(pool)), block_(std::move(block)) {}
  [[nodiscard]] const std::shared_ptr<Mapping>& mapping() const noexcept override { return block_.mapping; }
  void let_go(std::vector<Fence> users) noexcept override { pool_->give_back(std::move(block_), std::move(users)); }

 private:
  const std::shared_ptr<Blocks> pool_;
  Blocks::Block block_;
};

class PoolObject final : public Object {
 public:
  static constexpr const char* name = "pool";
  PoolObject(std::shared_ptr<Blocks> all, std::size_t bytes) : blocks(std::move(all)), block_bytes(bytes) {}
  [[nodiscard]] const char* what() const noexcept override { return name; }

  const std::shared_ptr<Blocks> blocks;
  const std::size_t block_bytes;
};

}  // namespace
}  // namespace gpumap::c

using namespace gpumap;     // NOLINT: definitions of the C interface
using namespace gpumap::c;  // NOLINT

gpumap_status gpumap_pool_create(gpumap_device device, const gpumap_pool_options* options, gpumap_pool* pool) {
  return guarded([&] {
    need(pool, "where the pool is to go");
    need(options, "gpumap_pool_options");
    constexpr std::size_t alignment = 256;
    constexpr std::size_t usual_allocation = std::size_t{1} << 20U;
    const auto on = use<DeviceObject>(device);
    const gpumap_pool_options wanted = options_of(options, "gpumap_pool_options");
    constexpr std::uint64_t largest = std::uint64_t{1} << 40U;
    if (wanted.block_bytes == 0 || wanted.block_bytes > largest) {
      throw Error(ErrorCode::invalid,
                  fmt::format("a pool of blocks of {} bytes: ask for 1 to {}", wanted.block_bytes, largest));
    }
    const std::size_t stride = (wanted.block_bytes + alignment - 1) / alignment * alignment;
    const std::size_t usual = std::max<std::size_t>(usual_allocation / stride, 1);
    MappingOptions allocation;
    allocation.placement = c::placement_of(wanted.placement);
    const std::size_t blocks = wanted.blocks != 0 ? wanted.blocks : usual;
    if (blocks > std::numeric_limits<std::size_t>::max() / stride) {
      throw Error(ErrorCode::invalid, fmt::format("{} blocks of {} bytes in one allocation: no memory has room for "
                                                  "them: ask for fewer",
                                                  blocks, wanted.block_bytes));
    }
    allocation.bytes = stride * blocks;
    require(allocation, *on, wanted.flags);
    const std::size_t most = wanted.max_blocks != 0 ? wanted.max_blocks : std::numeric_limits<std::size_t>::max();
    hand_out(std::make_unique<PoolObject>(std::make_shared<Blocks>(on->device, allocation, stride, most),
                                          wanted.block_bytes),
             pool);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_pool_close(gpumap_pool pool) {
  return guarded([&] {
    if (pool != nullptr) static_cast<void>(close<PoolObject>(pool));
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_pool_take(gpumap_pool pool, gpumap_memory* memory) {
  return guarded([&]() -> gpumap_status {
    need(memory, "where the memory is to go");
    const auto from = use<PoolObject>(pool);
    Blocks::Block block = from->blocks->take();
    if (!block.mapping) return GPUMAP_FULL;
    const std::size_t offset = block.offset;
    hand_out(std::make_unique<MemoryObject>(from->blocks->device(),
                                            std::make_unique<PoolBlock>(from->blocks, std::move(block)), offset,
                                            from->block_bytes),
             memory);
    return GPUMAP_OK;
  });
}
