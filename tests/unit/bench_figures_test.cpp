// SPDX-License-Identifier: MIT
// What the benchmarks make of the times that they took.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

#include "figures.hpp"

namespace bench {
namespace {

std::vector<std::int64_t> some_times(std::size_t count) {
  std::mt19937_64 random(count);
  std::vector<std::int64_t> times(count);
  for (auto& time : times) time = static_cast<std::int64_t>(random() % 1'000'000) + 1;
  return times;
}

/// By its definition: the smallest time that at least that share of them does not exceed.
double nearest_rank(const std::vector<std::int64_t>& times, std::size_t thousandths) {
  std::vector<std::int64_t> sorted = times;
  std::ranges::sort(sorted);
  for (const std::int64_t one : sorted) {
    const auto no_more = static_cast<std::size_t>(std::ranges::count_if(sorted, [&](auto t) { return t <= one; }));
    if (no_more * 1000 >= thousandths * sorted.size()) return static_cast<double>(one) / 1000;
  }
  return -1;
}

TEST(Summary, HasPercentilesByNearestRank) {
  for (const std::size_t count : {1U, 2U, 3U, 10U, 99U, 100U, 101U, 999U, 1000U, 1001U}) {
    std::vector<std::int64_t> times = some_times(count);
    gpumap::Histogram histogram;
    for (const std::int64_t time : times) histogram.add(time);
    const Summary summary = summarise(times);
    EXPECT_EQ(summary.count, count);
    EXPECT_DOUBLE_EQ(summary.min_us, nearest_rank(times, 0));
    EXPECT_DOUBLE_EQ(summary.median_us, nearest_rank(times, 500)) << count;
    EXPECT_DOUBLE_EQ(summary.p90_us, nearest_rank(times, 900)) << count;
    EXPECT_DOUBLE_EQ(summary.p99_us, nearest_rank(times, 990)) << count;
    EXPECT_DOUBLE_EQ(summary.p999_us, nearest_rank(times, 999)) << count;
    EXPECT_DOUBLE_EQ(summary.max_us, nearest_rank(times, 1000)) << count;
    // The library's histograms say the same.
    const Summary other = summarise(histogram);
    EXPECT_EQ(other.count, count);
    EXPECT_NEAR(other.median_us, summary.median_us, summary.median_us * 0.01);
    EXPECT_NEAR(other.p90_us, summary.p90_us, summary.p90_us * 0.01);
    EXPECT_NEAR(other.p99_us, summary.p99_us, summary.p99_us * 0.01);
    EXPECT_NEAR(other.p999_us, summary.p999_us, summary.p999_us * 0.01);
    EXPECT_DOUBLE_EQ(other.max_us, summary.max_us);
  }
}

TEST(Summary, OfBatchesIsOfOneInAllItsFigures) {
  std::vector<std::int64_t> batches = some_times(501);
  const Summary whole = summarise(batches);
  Summary one = whole;
  one /= 16;
  for (const auto figure : {&Summary::min_us, &Summary::median_us, &Summary::p90_us, &Summary::p99_us,
                            &Summary::p999_us, &Summary::max_us}) {
    EXPECT_DOUBLE_EQ(one.*figure, whole.*figure / 16);
  }
  EXPECT_EQ(one.count, 501U);
}

TEST(Summary, RefusesTimesBelowZero) {
  std::vector<std::int64_t> none;
  EXPECT_EQ(summarise(none).count, 0U);
  std::vector<std::int64_t> times{3, -1, 0, 5};
  EXPECT_THROW((void)summarise(times), std::runtime_error);
  gpumap::Histogram histogram;
  histogram.add(7);
  EXPECT_NO_THROW((void)summarise(histogram));
  histogram.add(-1);
  EXPECT_THROW((void)summarise(histogram), std::runtime_error);
}

}  // namespace
}  // namespace bench
