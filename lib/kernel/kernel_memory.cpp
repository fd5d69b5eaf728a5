// SPDX-License-Identifier: MIT
#include "kernel/kernel_memory.hpp"

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

std::shared_ptr<Mapping> allocate_growing(Device& device, Backend backend, std::size_t bytes, std::size_t outgrown) {
  const std::size_t least = std::max<std::size_t>(bytes, 1);
  // Rounding up may begin again at 0: then there is no room for `bytes` either.
  const std::size_t wanted = std::max(least, (std::max(least, outgrown / 2 * 3) + 15) / 16 * 16);
  const auto allocate = [&](std::size_t room) {
    return device.allocate({.placement = Placement::device, .bytes = room}, backend);
  };
  try {
    return allocate(wanted);
  } catch (const Error& error) {
    // Room for frames to come is not worth this one.
    if (error.code() != ErrorCode::no_memory || wanted == least) throw;
    return allocate(least);
  }
}

std::uint64_t WorkMemory::ready(Queue& queue, std::uint64_t bytes) {
  if (!memory_ || memory_->bytes() < bytes) {
    const std::size_t outgrown = memory_ ? memory_->bytes() : 0;
    if (memory_) queue.finish();
    memory_.reset();
    memory_ = allocate_growing(*device_, backend_, bytes, outgrown);
  }
  return memory_->address(backend_);
}

gpumap_view bytes_view(std::uint64_t address, std::size_t bytes) noexcept {
  gpumap_view made{};
  made.format = GPUMAP_FORMAT_BYTES;
  made.plane[0] = address;
  made.bytes = bytes;
  return made;
}

gpumap_view moved(gpumap_view view, std::uint64_t from, std::uint64_t to, std::size_t bytes) noexcept {
  const std::uint64_t before = view.plane[0] - from;
  for (std::size_t i = 0; i < GPUMAP_MAX_PLANES; ++i) {
    if (i == 0 || view.plane[i] != 0) view.plane[i] = view.plane[i] - from + to;
  }
  view.bytes = bytes - before;
  return view;
}

gpumap_view field_of(gpumap_view view, std::uint32_t field) noexcept {
  for (std::size_t i = 0; i < GPUMAP_MAX_PLANES; ++i) {
    view.plane[i] += std::uint64_t{field} * view.stride[i];
    if (i == 0) view.bytes -= std::min<std::uint64_t>(view.bytes, std::uint64_t{field} * view.stride[0]);
    view.stride[i] *= 2;
  }
  view.height = (view.height + 1 - field) / 2;
  return view;
}

}  // namespace gpumap
