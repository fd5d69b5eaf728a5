// SPDX-License-Identifier: MIT
#include "timing/clock_comparison.hpp"

#include <algorithm>
#include <cmath>

namespace gpumap {
namespace {

/// More apart than any two clocks that count ns drift: one of them was set.
bool was_set(const ClockPair& before, const ClockPair& after) noexcept {
  const std::int64_t gpu = after.gpu_ns - before.gpu_ns;
  const std::int64_t cpu = after.cpu_ns - before.cpu_ns;
  return gpu <= 0 || std::abs(gpu - cpu) > gpu / 10 + before.error_ns + after.error_ns;
}

}  // namespace

std::size_t ClockComparison::add(const ClockPair& pair) {
  std::size_t dropped = 0;
  if (!pairs_.empty()) {
    if (was_set(pairs_.back(), pair)) {
      dropped = pairs_.size();
      pairs_.clear();
      wander_ = least_wander;
    } else {
      // Did what was known foretell this pair? What it missed by is what the rate wandered.
      const Reading foretold = read(pair.gpu_ns);
      const std::int64_t missed = std::abs(foretold.cpu_ns - pair.cpu_ns) - foretold.error_ns - pair.error_ns;
      const auto distance = static_cast<double>(pair.gpu_ns - pairs_[foretold.pair].gpu_ns);
      const double seen = missed > 0 ? wander_ + 2 * static_cast<double>(missed) / distance : 0;
      wander_ = std::max({least_wander, wander_ / 2, seen});
    }
  }
  pairs_.push_back(pair);
  if (pairs_.size() > kept) {
    pairs_.pop_front();
    ++dropped;
  }
  return dropped;
}

ClockComparison::Reading ClockComparison::read(std::int64_t gpu_ns) const {
  Reading best = read(gpu_ns, pairs_.size() - 1);
  for (std::size_t i = 0; i + 1 < pairs_.size(); ++i) {
    const Reading other = read(gpu_ns, i);
    if (other.error_ns < best.error_ns) best = other;
  }
  return best;
}

ClockComparison::Reading ClockComparison::read(std::int64_t gpu_ns, std::size_t pair) const {
  const ClockPair& from = pairs_[pair];
  const auto after = static_cast<double>(gpu_ns - from.gpu_ns);
  Reading reading{.pair = pair};
  double unsure = unmeasured + wander_;
  // The rate comes from the two pairs that are furthest apart: their errors weigh least there.
  for (const ClockPair* other : {&pairs_.front(), &pairs_.back()}) {
    if (other == &from) continue;
    const auto gpu = static_cast<double>(other->gpu_ns - from.gpu_ns);
    const double unsure_here = static_cast<double>(from.error_ns + other->error_ns) / std::abs(gpu) + wander_;
    if (unsure_here >= unsure) continue;
    unsure = unsure_here;
    reading.rate = static_cast<double>(other->cpu_ns - from.cpu_ns) / gpu;
  }
  reading.cpu_ns = from.cpu_ns + std::llround(after * reading.rate);
  reading.error_ns = from.error_ns + static_cast<std::int64_t>(std::ceil(std::abs(after) * unsure)) + 1;
  return reading;
}

std::int64_t ticks_between(std::uint64_t from, std::uint64_t to, std::uint32_t valid_bits) noexcept {
  const unsigned unused = 64 - valid_bits;
  return static_cast<std::int64_t>((to - from) << unused) >> unused;
}

}  // namespace gpumap
