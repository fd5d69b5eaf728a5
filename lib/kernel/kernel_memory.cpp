// SPDX-License-Identifier: MIT
#include "kernel/kernel_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "gpumap/program.hpp"

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
    try {
      memory_ = allocate_growing(*device_, backend_, bytes, outgrown);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::no_memory) throw;
      throw with_remedy(error,
                        "give the kernel smaller frames, or parameters with which it needs less memory of its own");
    }
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
    // One that lies before the others begins at 0.
    if (i == 0 || view.plane[i] != 0 || view.stride[i] != 0) view.plane[i] = view.plane[i] - from + to;
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

BoundsCheck::BoundsCheck(std::shared_ptr<Device> device, Backend backend)
    : device_(std::move(device)),
      backend_(backend),
      written_(device_->allocate({.placement = Placement::host, .bytes = guard_bytes}, backend)) {
  // Nothing that a kernel would write by chance.
  std::mt19937_64 random(0x67756172);
  for (std::size_t at = 0; at < guard_bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(written_->host() + at, &word, sizeof word);
  }
  written_->flush(0, guard_bytes);
}

void BoundsCheck::write_guards(Queue& queue, std::vector<Range> ranges) {
  ranges_ = std::move(ranges);
  while (read_.size() < ranges_.size()) {
    read_.push_back(device_->allocate({.placement = Placement::host, .bytes = guard_bytes}, backend_));
  }
  for (const Range& range : ranges_) queue.copy(*written_, 0, *range.memory, range.end, guard_bytes);
}

void BoundsCheck::read_guards(Queue& queue) {
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    queue.copy(*ranges_[i].memory, ranges_[i].end, *read_[i], 0, guard_bytes);
  }
}

void BoundsCheck::verify(const std::string& kernel) const {
  const std::byte* laid = written_->host();
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    read_[i]->invalidate(0, guard_bytes);
    const std::byte* lifted = read_[i]->host();
    if (std::memcmp(laid, lifted, guard_bytes) == 0) continue;
    std::size_t first = 0;
    std::size_t changed = 0;
    for (std::size_t at = guard_bytes; at-- > 0;) {
      if (laid[at] == lifted[at]) continue;
      first = at;
      ++changed;
    }
    const Range& range = ranges_[i];
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {} writes out of bounds: {} of the {} bytes behind {} of {} bytes changed, the "
                            "first one {} behind the end: compare positions with {}",
                            kernel, changed, guard_bytes, range.what, range.bytes, first, range.remedy));
  }
}

}  // namespace gpumap
