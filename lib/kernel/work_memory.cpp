// SPDX-License-Identifier: MIT
#include "kernel/work_memory.hpp"

#include <algorithm>

namespace gpumap {

std::uint64_t WorkMemory::ready(Queue& queue, std::uint64_t bytes) {
  if (!memory_ || memory_->bytes() < bytes) {
    std::uint64_t wanted = std::max<std::uint64_t>(bytes, 16);
    if (memory_) {
      queue.finish();
      wanted = std::max(wanted, (memory_->bytes() / 2 * 3 + 15) / 16 * 16);
      memory_.reset();
    }
    memory_ = device_->allocate({.placement = Placement::device, .bytes = wanted}, backend_);
  }
  return memory_->address(backend_);
}

}  // namespace gpumap
