// SPDX-License-Identifier: MIT
#include "gpumap/bounds_check.hpp"

#include <fmt/format.h>

#include <cstring>
#include <random>
#include <utility>

#include "gpumap/error.hpp"

namespace gpumap {

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
