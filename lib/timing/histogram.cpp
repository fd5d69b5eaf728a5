// SPDX-License-Identifier: MIT
// Counts in buckets of which each power of two has the same number, as in Gil Tene's HdrHistogram: one relative error
// for a microsecond and a minute, and memory that does not grow.
#include <algorithm>
#include <bit>
#include <limits>

#include "gpumap/latency.hpp"

namespace gpumap {

std::size_t Histogram::bucket_of(std::uint64_t time_ns) noexcept {
  constexpr std::uint64_t longest = (std::uint64_t{1} << top_bits) - 1;
  const std::uint64_t time = std::min(time_ns, longest);
  constexpr std::uint64_t exact = std::uint64_t{2} << fine_bits;  // below, each ns has a bucket
  if (time < exact) return time;
  const auto shift = static_cast<std::uint32_t>(std::bit_width(time)) - fine_bits - 1;
  return (static_cast<std::size_t>(shift) << fine_bits) + (time >> shift);
}

std::int64_t Histogram::middle_of(std::size_t bucket) noexcept {
  constexpr std::size_t exact = std::size_t{2} << fine_bits;
  if (bucket < exact) return static_cast<std::int64_t>(bucket);
  const auto shift = static_cast<std::uint32_t>(bucket >> fine_bits) - 1;
  const std::uint64_t low = (std::uint64_t{bucket} - (std::uint64_t{shift} << fine_bits)) << shift;
  return static_cast<std::int64_t>(low + (std::uint64_t{1} << shift) / 2);
}

void Histogram::add(std::int64_t time_ns) noexcept {
  if (time_ns < 0) {
    ++negative_;
    return;
  }
  auto& bucket = counts_[bucket_of(static_cast<std::uint64_t>(time_ns))];
  if (bucket != std::numeric_limits<std::uint32_t>::max()) ++bucket;
  min_ = count_ == 0 ? time_ns : std::min(min_, time_ns);
  max_ = std::max(max_, time_ns);
  sum_ += static_cast<double>(time_ns);
  ++count_;
}

Percentiles Histogram::percentiles() const noexcept {
  Percentiles made;
  made.negative = negative_;
  if (count_ == 0) return made;
  made.count = count_;
  made.min = min_;
  made.max = max_;
  made.mean = sum_ / static_cast<double>(count_);
  struct Wanted {
    double share;
    std::int64_t Percentiles::*figure;
  };
  constexpr std::array<Wanted, 4> wanted{
      {{0.5, &Percentiles::p50}, {0.9, &Percentiles::p90}, {0.99, &Percentiles::p99}, {0.999, &Percentiles::p999}}};
  std::size_t next = 0;
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < buckets && next < wanted.size(); ++bucket) {
    seen += counts_[bucket];
    // The smallest time that at least this share of the frames does not exceed.
    while (next < wanted.size() && static_cast<double>(seen) >= wanted[next].share * static_cast<double>(count_)) {
      made.*wanted[next].figure = std::clamp(middle_of(bucket), min_, max_);
      ++next;
    }
  }
  for (; next < wanted.size(); ++next) made.*wanted[next].figure = max_;  // a bucket that ran full
  return made;
}

std::int64_t Histogram::percentile(double share) const noexcept {
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    seen += counts_[bucket];
    if (seen != 0 && static_cast<double>(seen) >= share * static_cast<double>(count_)) {
      return std::clamp(middle_of(bucket), min_, max_);
    }
  }
  return max_;
}

std::vector<Histogram::Count> Histogram::counts() const {
  std::vector<Count> made;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    if (counts_[bucket] == 0) continue;
    made.push_back({.time_ns = std::clamp(middle_of(bucket), min_, max_), .times = counts_[bucket]});
  }
  return made;
}

}  // namespace gpumap
