// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gpumap {

/// Buckets for times in ns of which each power of two has the same number, as in Gil Tene's HdrHistogram: one relative
/// error for a microsecond and a minute. Each power of two has 2^fine_bits; below twice that each ns has its own; what
/// takes 2^top_bits ns or longer counts as that.
template <std::uint32_t fine_bits, std::uint32_t top_bits>
struct LogSteps {
  static constexpr std::size_t count = (top_bits - fine_bits + 1) << fine_bits;

  [[nodiscard]] static constexpr std::size_t bucket_of(std::uint64_t time_ns) noexcept {
    constexpr std::uint64_t longest = (std::uint64_t{1} << top_bits) - 1;
    const std::uint64_t time = std::min(time_ns, longest);
    if (time < exact) return time;
    const auto shift = static_cast<std::uint32_t>(std::bit_width(time)) - fine_bits - 1;
    return (static_cast<std::size_t>(shift) << fine_bits) + (time >> shift);
  }

  [[nodiscard]] static constexpr std::int64_t middle_of(std::size_t bucket) noexcept {
    if (bucket < exact) return static_cast<std::int64_t>(bucket);
    const auto shift = static_cast<std::uint32_t>(bucket >> fine_bits) - 1;
    const std::uint64_t low = (std::uint64_t{bucket} - (std::uint64_t{shift} << fine_bits)) << shift;
    return static_cast<std::int64_t>(low + (std::uint64_t{1} << shift) / 2);
  }

 private:
  static constexpr std::uint64_t exact = std::uint64_t{2} << fine_bits;
};

}  // namespace gpumap
