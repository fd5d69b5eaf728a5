// SPDX-License-Identifier: MIT
#include "gpumap/kernel_launcher.hpp"

#include <algorithm>
#include <utility>

#include "gpumap/error.hpp"
#include "kernel/kernel_memory.hpp"

namespace gpumap {

FrameHistory::FrameHistory(std::shared_ptr<Device> device, Backend backend, std::uint32_t frames)
    : device_(std::move(device)), backend_(backend), frames_(frames) {}

void FrameHistory::lend(gpumap_frame& frame) const {
  frame.past_count = static_cast<gpumap_u32>(kept_);
  for (std::size_t i = 0; i < GPUMAP_MAX_HISTORY; ++i) {
    frame.past[i] = i < kept_ ? frames_[(next_ + frames_.size() - 1 - i) % frames_.size()].view : gpumap_view{};
  }
}

const std::shared_ptr<Mapping>& FrameHistory::room(std::size_t bytes) {
  auto& memory = frames_[next_].memory;
  if (memory && memory->bytes() >= bytes) return memory;
  try {
    // Half as much again each time: what is outgrown stays within twice what is used.
    auto larger = allocate_growing(*device_, backend_, bytes, memory ? memory->bytes() : 0);
    if (memory) outgrown_.push_back(std::move(memory));
    memory = std::move(larger);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_memory) throw;
    throw with_remedy(error, "lower the number of frames that the kernel looks back (history)");
  }
  return memory;
}

void FrameHistory::add(const gpumap_view& view, std::uint64_t from) {
  Kept& kept = frames_[next_];
  kept.view = view;
  for (gpumap_u64& plane : kept.view.plane) {
    if (plane != 0) plane += kept.memory->address(backend_) - from;
  }
  next_ = (next_ + 1) % frames_.size();
  kept_ = std::min(kept_ + 1, frames_.size());
}

}  // namespace gpumap
