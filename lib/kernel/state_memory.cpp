// SPDX-License-Identifier: MIT
#include "kernel/state_memory.hpp"

#include <algorithm>

#include "gpumap/error.hpp"

namespace gpumap {

StateMemory::StateMemory(Device& device, Backend backend, std::size_t bytes, bool guarded) : bytes_(bytes) {
  // Whole 16-byte units, so that it can be zeroed and read in any of them.
  try {
    if (bytes == 0) return;
    // Rounding up may begin again at 0: then there is no room for `bytes` either.
    whole_ = std::max(bytes, (bytes + 15) / 16 * 16);
    const std::size_t guard = guarded ? BoundsCheck::guard_bytes : 0;
    memory_ = device.allocate({.placement = Placement::device, .bytes = std::max(whole_, whole_ + guard)}, backend);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_memory) throw;
    throw with_remedy(error, "lower the line state");
  }
}

std::uint64_t StateMemory::ready(Queue& queue) {
  if (!memory_) return 0;
  if (stale_) queue.clear(*memory_, 0, whole_);
  stale_ = false;
  return memory_->address(queue.backend());
}

BoundsCheck::Range StateMemory::range() const {
  return {.memory = memory_.get(),
          .end = bytes_,
          .bytes = bytes_,
          .what = "its state",
          .remedy = "frame.state_bytes, and ask for more by the line state"};
}

}  // namespace gpumap
