// SPDX-License-Identifier: MIT
#include "kernel/state_memory.hpp"

#include <algorithm>

#include "gpumap/error.hpp"

namespace gpumap {

StateMemory::StateMemory(Device& device, Backend backend, std::size_t bytes) : bytes_(bytes) {
  // Whole 16-byte units, so that it can be zeroed and read in any of them.
  try {
    if (bytes == 0) return;
    // Rounding up may begin again at 0: then there is no room for `bytes` either.
    const std::size_t whole = std::max(bytes, (bytes + 15) / 16 * 16);
    memory_ = device.allocate({.placement = Placement::device, .bytes = whole}, backend);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_memory) throw;
    throw with_remedy(error, "lower the state that the kernel asks for (state-bytes)");
  }
}

std::uint64_t StateMemory::ready(Queue& queue) {
  if (!memory_) return 0;
  if (stale_) queue.clear(*memory_, 0, memory_->bytes());
  stale_ = false;
  return memory_->address(queue.backend());
}

}  // namespace gpumap
