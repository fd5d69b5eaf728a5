// SPDX-License-Identifier: MIT
#include "kernel/work_memory.hpp"

#include <algorithm>

#include "gpumap/error.hpp"

namespace gpumap {

std::uint64_t WorkMemory::ready(Queue& queue, std::uint64_t bytes) {
  if (!memory_ || memory_->bytes() < bytes) {
    std::uint64_t wanted = std::max<std::uint64_t>(bytes, 16);
    if (memory_) {
      queue.finish();
      wanted = std::max(wanted, (memory_->bytes() / 2 * 3 + 15) / 16 * 16);
      memory_.reset();
    }
    const auto allocate = [this](std::uint64_t room) {
      return device_->allocate({.placement = Placement::device, .bytes = room}, backend_);
    };
    try {
      memory_ = allocate(wanted);
    } catch (const Error& error) {
      // Room for frames to come is not worth this one.
      const std::uint64_t least = std::max<std::uint64_t>(bytes, 1);
      if (error.code() != ErrorCode::no_memory || wanted == least) throw;
      memory_ = allocate(least);
    }
  }
  return memory_->address(backend_);
}

}  // namespace gpumap
