// SPDX-License-Identifier: MIT
// Times of one clock in times of another, with clocks that are made up: what the error says must hold.
#include "timing/clock_comparison.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

namespace gpumap {
namespace {

constexpr std::int64_t us = 1'000, ms = 1'000'000, s = 1'000'000'000;

/// A CPU clock that goes `rate` times as fast as the GPU's, looked at with an error of up to 3 us.
class Clocks {
 public:
  explicit Clocks(double rate) : rate_(rate) {}
  [[nodiscard]] std::int64_t cpu_ns(std::int64_t gpu_ns) const {
    return 77 * s + std::llround(static_cast<double>(gpu_ns) * rate_);
  }
  ClockPair look(std::int64_t gpu_ns) {
    return {.gpu_ns = gpu_ns, .cpu_ns = cpu_ns(gpu_ns) + error_(random_), .error_ns = 3 * us};
  }

 private:
  double rate_;
  std::mt19937 random_{1};
  std::uniform_int_distribution<std::int64_t> error_{-3 * us, 3 * us};
};

void expect_true(const ClockComparison& comparison, const Clocks& clocks, std::int64_t gpu_ns, std::int64_t max_ns) {
  const auto reading = comparison.read(gpu_ns);
  EXPECT_LE(std::abs(reading.cpu_ns - clocks.cpu_ns(gpu_ns)), reading.error_ns) << gpu_ns;
  EXPECT_GT(reading.error_ns, 0);
  EXPECT_LE(reading.error_ns, max_ns) << gpu_ns;
}

TEST(ClockComparison, OnePairHoldsNearby) {
  for (const double rate : {1 - 100e-6, 1.0, 1 + 100e-6}) {
    Clocks clocks(rate);
    ClockComparison comparison;
    EXPECT_EQ(comparison.add(clocks.look(5 * s)), 0U);
    for (const auto at : {4 * s, 5 * s - 1, 5 * s, 5 * s + 10 * ms, 6 * s}) {
      expect_true(comparison, clocks, at, 4 * us + std::abs(at - 5 * s) / 4000);
    }
  }
}

TEST(ClockComparison, PairsTellTheRate) {
  for (const double rate : {1 - 100e-6, 1.0, 1 + 100e-6}) {
    Clocks clocks(rate);
    ClockComparison comparison;
    for (int i = 0; i < 20; ++i) static_cast<void>(comparison.add(clocks.look(i * s / 4)));
    for (std::int64_t at = 0; at < 5 * s; at += 10 * ms + 1) expect_true(comparison, clocks, at, 8 * us);
    expect_true(comparison, clocks, -10 * s, 150 * us);  // read late: a larger error, and a true one
    expect_true(comparison, clocks, 15 * s, 150 * us);
  }
}

TEST(ClockComparison, OldPairsGo) {
  Clocks clocks(1 + 20e-6);
  ClockComparison comparison;
  std::size_t dropped = 0;
  for (std::size_t i = 0; i < 3 * ClockComparison::kept; ++i) {
    dropped += comparison.add(clocks.look(static_cast<std::int64_t>(i) * s / 4));
  }
  EXPECT_EQ(comparison.pairs().size(), ClockComparison::kept);
  EXPECT_EQ(dropped, 2 * ClockComparison::kept);
}

TEST(ClockComparison, ARateThatBendsMakesTheErrorGrow) {
  Clocks straight(1.0);
  ClockComparison comparison;
  for (int i = 0; i < 8; ++i) static_cast<void>(comparison.add(straight.look(i * s)));
  const auto calm = comparison.read(8 * s).error_ns;
  // NTP takes a step of 300 ppm in the rate: at the next pair it shows.
  static_cast<void>(comparison.add({.gpu_ns = 8 * s, .cpu_ns = straight.cpu_ns(8 * s) + 300 * us, .error_ns = 3 * us}));
  EXPECT_GT(comparison.read(9 * s).error_ns, calm + 300 * us);
  EXPECT_GE(comparison.read(7 * s + s / 2).error_ns, 150 * us) << "between the two the bend may be anywhere";
  for (std::int64_t i = 9; i < 40; ++i) {
    static_cast<void>(comparison.add({i * s, straight.cpu_ns(i * s) + (i - 7) * 300 * us, 3 * us}));
  }
  EXPECT_LT(comparison.read(40 * s).error_ns, 2 * ms) << "and calms down";
}

TEST(ClockComparison, AClockThatWasSetForgetsWhatWas) {
  Clocks clocks(1.0);
  ClockComparison comparison;
  for (int i = 0; i < 4; ++i) static_cast<void>(comparison.add(clocks.look(i * s)));
  EXPECT_EQ(comparison.add({.gpu_ns = 1 * s, .cpu_ns = 200 * s, .error_ns = us}), 4U) << "the GPU's went back";
  EXPECT_EQ(comparison.add({.gpu_ns = 2 * s, .cpu_ns = 209 * s, .error_ns = us}), 1U) << "the CPU's leapt";
  EXPECT_EQ(comparison.pairs().size(), 1U);
  EXPECT_EQ(comparison.read(2 * s + ms).cpu_ns, 209 * s + ms);
}

TEST(TicksBetween, CountersWrap) {
  EXPECT_EQ(ticks_between(5, 9, 64), 4);
  EXPECT_EQ(ticks_between(9, 5, 64), -4);
  EXPECT_EQ(ticks_between(~0ULL, 3, 64), 4);
  const std::uint64_t top = (1ULL << 36U) - 1;
  EXPECT_EQ(ticks_between(top, 3, 36), 4);
  EXPECT_EQ(ticks_between(3, top, 36), -4);
  EXPECT_EQ(ticks_between(top | 0xABULL << 40U, 3 | 0xCDULL << 50U, 36), 4) << "bits that mean nothing";
  EXPECT_EQ(ticks_between(0, 1ULL << 34U, 36), std::int64_t{1} << 34U);
}

}  // namespace
}  // namespace gpumap
