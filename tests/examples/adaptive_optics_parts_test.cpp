// SPDX-License-Identifier: MIT
// examples/adaptive-optics without a GPU: the float64 against a plain sum, what it sees, and the loop with it in the
// GPU's place.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "adaptive-optics/counter.hpp"
#include "adaptive-optics/figures.hpp"
#include "adaptive-optics/reference.hpp"
#include "adaptive_optics.hpp"

namespace adaptive_optics {
namespace {

using namespace std::chrono_literals;

/// By the definition, in long double.
std::vector<long double> plain_commands(const Tables& tables, const Size& size,
                                        const std::vector<std::uint16_t>& pixels) {
  std::vector<long double> across, down;
  for (const std::uint32_t corner : tables.corners) {
    const std::size_t at = (corner >> 16U) * static_cast<std::size_t>(size.width()) + (corner & 0xFFFFU);
    const auto pixel = [&](std::size_t x, std::size_t y) {
      return static_cast<long double>(pixels[at + y * static_cast<std::size_t>(size.width()) + x]);
    };
    const long double light = pixel(0, 0) + pixel(1, 0) + pixel(0, 1) + pixel(1, 1);
    across.push_back(light == 0 ? 0 : (pixel(1, 0) + pixel(1, 1) - pixel(0, 0) - pixel(0, 1)) / light);
    down.push_back(light == 0 ? 0 : (pixel(0, 1) + pixel(1, 1) - pixel(0, 0) - pixel(1, 0)) / light);
  }
  std::vector<long double> measured = across;
  measured.insert(measured.end(), down.begin(), down.end());
  measured.push_back(1);
  const auto times = [](const Matrix& matrix, const std::vector<long double>& vector) {
    std::vector<long double> product(matrix.rows);
    for (std::size_t i = 0; i < matrix.rows; ++i) {
      for (std::size_t j = 0; j < vector.size(); ++j) product[i] += matrix.row(i)[j] * vector[j];
    }
    return product;
  };
  return times(tables.modes, times(tables.reconstructor, measured));
}

std::vector<float> rounded(const std::vector<long double>& numbers) {
  std::vector<float> made;
  for (const long double number : numbers) made.push_back(static_cast<float>(number));
  return made;
}

class AdaptiveOpticsReference : public testing::Test {
 protected:
  static constexpr Size size = small_size;
  std::shared_ptr<Tables> tables_ = random_tables(size, 7);
  const Reference reference_{tables_, size.width()};
  const QuickReference quick_{tables_, size.width()};
  std::vector<std::uint16_t> pixels_ = random_pixels(size, 8);
  std::vector<long double> expected_ = plain_commands(*tables_, size, pixels_);
};

TEST_F(AdaptiveOpticsReference, IsThePlainSum) {
  const std::vector<float> commands = rounded(expected_);
  EXPECT_LE(reference_.check(pixels_, commands).error_of_bound, 1);
  for (std::size_t i = 0; i < commands.size(); ++i) {
    std::vector<float> wrong = commands;
    wrong[i] += 1;
    // Of so few actuators the quick one knows each.
    const Finding found = reference_.check(pixels_, wrong);
    const Finding quick = quick_.check(i, pixels_, wrong);
    for (const Finding& one : {found, quick}) {
      EXPECT_EQ(one.command, i);
      EXPECT_EQ(one.value, wrong[i]);
      EXPECT_NEAR(one.expected, static_cast<double>(expected_[i]), 1e-9);
      // What float32 loses in sums of some thousand numbers below 1: far less than one of them.
      EXPECT_LT(one.bound, 0.02);
      EXPECT_GT(one.bound, 1e-6);
      EXPECT_NEAR(one.error_of_bound, std::abs(one.value - one.expected) / one.bound, 1e-9);
    }
    EXPECT_LE(found.bound, quick.bound);
    EXPECT_LE(quick_.check(i, pixels_, commands).error_of_bound, 1);
    EXPECT_LE(quick_.check(i + 1, pixels_, wrong).error_of_bound, 1) << "the next command is right";
  }
}

TEST_F(AdaptiveOpticsReference, SeesWhatIsWrong) {
  const std::vector<float> right = rounded(expected_);
  const auto is_seen = [&](const std::vector<float>& commands) {
    bool quick = false;
    for (std::uint64_t frame = 0; frame < commands.size(); ++frame) {
      quick = quick || quick_.check(frame, pixels_, commands).error_of_bound > 1;
    }
    return quick && reference_.check(pixels_, commands).error_of_bound > 1;
  };
  EXPECT_FALSE(is_seen(right));
  std::vector<float> wrong = right;
  wrong[31] += 0.03F;
  EXPECT_TRUE(is_seen(wrong)) << "one command";
  wrong = right;
  wrong.back() = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(is_seen(wrong)) << "no number";
  wrong.back() = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(is_seen(wrong)) << "infinity";
  EXPECT_TRUE(is_seen(rounded(plain_commands(*tables_, size, random_pixels(size, 9))))) << "those of another frame";
  Tables others = *tables_;
  others.reconstructor.row(11)[226] = 0;
  EXPECT_TRUE(is_seen(rounded(plain_commands(others, size, pixels_)))) << "one number of a matrix";
  others = *tables_;
  others.corners[17] += 2;
  EXPECT_TRUE(is_seen(rounded(plain_commands(others, size, pixels_)))) << "one subaperture";
}

// The matrices that the example makes, with float64 in the GPU's place: the loop closes, and the same each time.
TEST(AdaptiveOpticsLoop, HoldsTheWavefront) {
  constexpr Size size = small_size;
  const auto left_after = [&](std::uint32_t seed, bool closed) {
    Telescope telescope(size, seed);
    const Tables tables = make_tables(telescope, size);
    std::vector<std::uint16_t> pixels(size.pixels());
    std::vector<float> commands;
    Wavefronts wavefronts;
    for (std::uint64_t frame = 0; frame < 400; ++frame) {
      wavefronts.add(frame, telescope.expose(pixels));
      if (closed && !commands.empty()) telescope.correct(commands);
      commands = rounded(plain_commands(tables, size, pixels));
    }
    return std::pair(wavefronts.of_air(), wavefronts.residual());
  };
  for (const std::uint32_t seed : {1U, 2U, 3U}) {
    const auto [air, residual] = left_after(seed, true);
    EXPECT_LT(residual, air / 5) << seed;
    EXPECT_GT(residual, 1) << seed;
    EXPECT_EQ(left_after(seed, true), std::pair(air, residual)) << seed;
    const auto [same_air, open] = left_after(seed, false);
    EXPECT_EQ(open, same_air) << seed;
    EXPECT_EQ(same_air, air) << seed;
  }
  EXPECT_NE(left_after(1, true), left_after(2, true));
}

TEST(AdaptiveOpticsSize, IsThatOfTheSource) {
  constexpr Size size = extreme_size;
  EXPECT_EQ(size.measurements(), 6827U);
  EXPECT_EQ(size.modes, 1089);
  EXPECT_EQ(size.actuators, 1833);
  const std::vector<int> lit = nearest_to_middle(size.across, size.subapertures);
  EXPECT_EQ(lit.size(), 3413U);
  EXPECT_EQ(std::adjacent_find(lit.begin(), lit.end(), std::greater_equal<>()), lit.end()) << "rising, each once";
  for (const std::uint32_t corner : Telescope(size, 1).corners()) {
    EXPECT_LE((corner & 0xFFFFU) + 2, static_cast<std::uint32_t>(size.width()));
    EXPECT_LE((corner >> 16U) + 2, static_cast<std::uint32_t>(size.width()));
  }
}

TEST(AdaptiveOpticsCounter, IsWaitedFor) {
  for (const std::chrono::microseconds spin : {0us, 20us, 10000000us}) {
    Counter counter;
    EXPECT_TRUE(counter.wait_for(0, spin));
    std::thread other([&] {
      for (int i = 0; i < 1000; ++i) counter.advance();
    });
    EXPECT_TRUE(counter.wait_for(1000, spin));
    other.join();
    std::thread last([&] { counter.stop(); });
    EXPECT_FALSE(counter.wait_for(1001, spin));
    last.join();
    EXPECT_TRUE(counter.wait_for(1000, spin)) << "what has come has come";
    counter.advance();
    EXPECT_EQ(counter.count(), 1001U);
  }
}

TEST(AdaptiveOpticsFigures, AreThoseOfTheFrames) {
  Latencies times;
  double squares = 0;
  for (int us = 1000; us >= 1; --us) {
    times.add(std::int64_t{1000} * us);
    squares += (us - 500.5) * (us - 500.5);
  }
  EXPECT_EQ(times.count(), 1000U);
  EXPECT_DOUBLE_EQ(times.percentile(0.5), 500);
  EXPECT_DOUBLE_EQ(times.percentile(0.99), 990);
  EXPECT_DOUBLE_EQ(times.percentile(0.999), 999);
  EXPECT_DOUBLE_EQ(times.max(), 1000);
  EXPECT_EQ(times.above(990), 10U);
  EXPECT_NEAR(times.jitter(), std::sqrt(squares / 1000), 1e-9);
}

}  // namespace
}  // namespace adaptive_optics
