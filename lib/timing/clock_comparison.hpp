// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace gpumap {

/// How a comparison goes: rounds until one is close enough, and no longer than the caller can be held up.
inline constexpr int comparison_rounds = 8;
inline constexpr std::int64_t close_enough_ns = 2'000;          ///< error of a round that ends the comparison
inline constexpr std::int64_t comparison_limit_ns = 1'000'000;  ///< a GPU that has not answered by then is busy
inline constexpr std::int64_t comparison_retry_ns = 10'000'000;

/// One look at both clocks: when the GPU's stood at gpu_ns, the CPU's was within error_ns of cpu_ns. gpu_ns counts from
/// anywhere.
struct ClockPair {
  std::int64_t gpu_ns = 0;
  std::int64_t cpu_ns = 0;
  std::int64_t error_ns = 0;
};

/// Turns times of a GPU's clock into times of the CPU's, from pairs of both. Each clock has a crystal of its own and
/// NTP bends the CPU's: their rate is measured from pair to pair, and held to wander from there by what it was seen to
/// wander and never by less than least_wander.
/// Thread safety: one thread at a time.
class ClockComparison {
 public:
  static constexpr std::size_t kept = 32;        ///< pairs remembered; the oldest goes first
  static constexpr double least_wander = 10e-6;  ///< change of rate from one pair to the next; NTP's steps are smaller
  static constexpr double unmeasured = 200e-6;   ///< difference of rates before it was measured: two poor crystals

  /// A pair whose gpu_ns is past all earlier ones'. Forgets all before where a clock was set anew between the two.
  /// Returns how many of the oldest pairs were dropped.
  std::size_t add(const ClockPair& pair);
  [[nodiscard]] const std::deque<ClockPair>& pairs() const noexcept { return pairs_; }

  struct Reading {
    std::size_t pair = 0;  ///< where it was read from
    double rate = 1;       ///< CPU ns in a ns of the GPU's
    std::int64_t cpu_ns = 0;
    std::int64_t error_ns = 0;
  };
  /// From the pair that gives the smallest error. There is a pair.
  [[nodiscard]] Reading read(std::int64_t gpu_ns) const;
  /// From this pair.
  [[nodiscard]] Reading read(std::int64_t gpu_ns, std::size_t pair) const;

 private:
  std::deque<ClockPair> pairs_;
  double wander_ = least_wander;
};

/// From one count of a wrapping clock to another, less than half its range apart, which may be the earlier one. Bits
/// above `valid_bits` mean nothing.
[[nodiscard]] std::int64_t ticks_between(std::uint64_t from, std::uint64_t to, std::uint32_t valid_bits) noexcept;

}  // namespace gpumap
