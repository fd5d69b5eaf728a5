// SPDX-License-Identifier: MIT
#include "gpumap/bounds_check.hpp"

#include <fmt/format.h>

#include <cstring>
#include <random>

#include "gpumap/error.hpp"

namespace gpumap {

BoundsCheck::BoundsCheck(Device& device, Backend backend)
    : written_(device.allocate({.placement = Placement::host, .bytes = guard_bytes}, backend)),
      read_(device.allocate({.placement = Placement::host, .bytes = guard_bytes}, backend)) {
  // Nothing that a kernel would write by chance.
  std::mt19937_64 random(0x67756172);
  for (std::size_t at = 0; at < guard_bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(written_->host() + at, &word, sizeof word);
  }
  written_->flush(0, guard_bytes);
}

void BoundsCheck::write_guard(Queue& queue, const Mapping& block, std::size_t bytes) {
  queue.copy(*written_, 0, block, bytes, guard_bytes);
}

void BoundsCheck::read_guard(Queue& queue, const Mapping& block, std::size_t bytes) {
  queue.copy(block, bytes, *read_, 0, guard_bytes);
}

void BoundsCheck::verify(const std::string& kernel, std::size_t bytes) const {
  read_->invalidate(0, guard_bytes);
  const std::byte* laid = written_->host();
  const std::byte* lifted = read_->host();
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

}  // namespace gpumap
