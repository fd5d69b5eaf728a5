// SPDX-License-Identifier: MIT
#include "bounds_check.hpp"

#include <fmt/format.h>

#include <cstring>
#include <random>

#include "gpumap/error.hpp"

namespace gpumap::gst {

BoundsCheck::BoundsCheck(Device& device, Backend backend)
    : laid_(device.allocate({.placement = Placement::host, .bytes = guard_bytes}, backend)),
      lifted_(device.allocate({.placement = Placement::host, .bytes = guard_bytes}, backend)) {
  // Nothing that a kernel would write by chance.
  std::mt19937_64 random(0x67756172);
  for (std::size_t at = 0; at < guard_bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(laid_->host() + at, &word, sizeof word);
  }
  laid_->flush(0, guard_bytes);
}

void BoundsCheck::lay(Queue& queue, const Mapping& block, std::size_t bytes) {
  queue.copy(*laid_, 0, block, bytes, guard_bytes);
}

void BoundsCheck::lift(Queue& queue, const Mapping& block, std::size_t bytes) {
  queue.copy(block, bytes, *lifted_, 0, guard_bytes);
}

void BoundsCheck::verify(const std::string& kernel, std::size_t bytes) const {
  lifted_->invalidate(0, guard_bytes);
  const std::byte* laid = laid_->host();
  const std::byte* lifted = lifted_->host();
  if (std::memcmp(laid, lifted, guard_bytes) == 0) return;
  std::size_t first = 0;
  std::size_t changed = 0;
  for (std::size_t at = guard_bytes; at-- > 0;) {
    if (laid[at] == lifted[at]) continue;
    first = at;
    ++changed;
  }
  throw Error(
      ErrorCode::invalid,
      fmt::format("kernel {} writes out of bounds: {} of the {} bytes behind its output of {} bytes changed, the "
                  "first one {} behind the end: compare positions with frame.out's width, height and bytes",
                  kernel, changed, guard_bytes, bytes, first));
}

}  // namespace gpumap::gst
