// SPDX-License-Identifier: MIT
#include "gpumap/block_pool.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/patience.hpp"

namespace gpumap {

namespace {

bool is_idle(const MemoryBlock& block) {
  return std::all_of(block.readers.begin(), block.readers.end(), [](const Fence& fence) { return fence.signalled(); });
}

/// False when the time is up or the wait is cancelled. Throws Error(device_lost).
bool wait_for_readers(const MemoryBlock& block, Deadline deadline, const std::atomic<bool>& cancelled) {
  return std::all_of(block.readers.begin(), block.readers.end(),
                     [&](const Fence& fence) { return fence.wait(cancelled, deadline) == WaitResult::ready; });
}

}  // namespace

void MemoryBlock::add_reader(const Fence& fence) {
  if (!fence.timeline()) return;
  constexpr std::size_t many = 8;
  const auto known = std::ranges::find(readers, fence.timeline(), &Fence::timeline);
  if (known == readers.end()) {
    // Each reader may come on a timeline of its own.
    if (readers.size() >= many) std::erase_if(readers, [](const Fence& reader) { return reader.signalled(); });
    readers.push_back(fence);
  } else if (known->value() < fence.value()) {
    *known = fence;
  }
}

BlockPool::~BlockPool() {
  const Deadline end = Clock::now() + patience_of_ends(*device_);
  const std::atomic<bool> never{false};
  for (MemoryBlock& block : free_) {
    try {
      if (wait_for_readers(block, end, never)) continue;
      std::fprintf(stderr, "gpumap: GPU work still reads a frame after its kernel's end: %zu bytes stay allocated\n",
                   block.mapping->bytes());
      for (const Fence& reader : block.readers) {
        reader.give_up({});
        keep_for_good(reader.timeline());  // without it nobody knows that the work still runs
      }
      keep_for_good(block.mapping);
    } catch (const std::exception&) {
      // The device is lost: nothing runs on it any more.
    }
  }
}

bool BlockPool::is_outgrown(const MemoryBlock& block) const noexcept {
  return block.mapping->bytes() < bytes_;
}

std::optional<MemoryBlock> BlockPool::take_idle() {
  std::vector<MemoryBlock> outgrown;  // freed outside of the lock
  std::optional<MemoryBlock> fit;
  const std::lock_guard lock(mutex_);
  // Each block is asked once: its reader may end between two looks.
  std::erase_if(free_, [&](MemoryBlock& block) {
    const bool small = is_outgrown(block);
    if ((fit && !small) || !is_idle(block)) return false;
    if (small) {
      outgrown.push_back(std::move(block));
    } else {
      fit = std::move(block);
    }
    return true;
  });
  return fit;
}

std::optional<MemoryBlock> BlockPool::take_oldest() {
  const std::lock_guard lock(mutex_);
  if (free_.size() < max_read) return {};
  MemoryBlock block = std::move(free_.front());
  free_.pop_front();
  return block;
}

std::shared_ptr<Mapping> BlockPool::allocate() {
  try {
    return device_->allocate({.placement = placement_, .bytes = bytes_}, backend_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_memory) throw;
    throw with_remedy(error, "let the kernel give smaller frames, or let what follows it keep fewer of them (queues)");
  }
}

std::optional<MemoryBlock> BlockPool::take(const std::atomic<bool>& cancelled) {
  std::optional<MemoryBlock> block = take_idle();
  if (!block) {
    block = take_oldest();
    if (block && !wait_for_readers(*block, no_deadline, cancelled)) {
      const std::lock_guard lock(mutex_);
      free_.push_front(std::move(*block));
      return {};
    }
    if (!block || is_outgrown(*block)) return MemoryBlock{allocate(), {}};
  }
  block->readers.clear();
  return block;
}

void BlockPool::give_back(MemoryBlock&& block) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(block));
}

LentBlock BlockPool::lend(std::shared_ptr<BlockPool>& pool, const std::shared_ptr<Device>& device, Backend backend,
                          Placement placement, std::size_t bytes, const std::atomic<bool>& cancelled) {
  if (!pool) pool = std::make_shared<BlockPool>(device, backend, placement, std::max<std::size_t>(bytes, 1));
  if (pool->bytes_ < bytes) pool->bytes_ = bytes;
  auto taken = pool->take(cancelled);
  return taken ? LentBlock(pool, std::move(*taken)) : LentBlock();
}

}  // namespace gpumap
