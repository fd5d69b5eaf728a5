// SPDX-License-Identifier: MIT
// examples/adaptive-optics without a GPU: the float64 against a plain sum, what it sees, and the loop with it in the
// GPU's place.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "adaptive_optics.hpp"

namespace adaptive_optics {
namespace {

/// By the definition, in long double.
std::vector<long double> plain_commands(const Tables& tables, const Size& size,
                                        const std::vector<std::uint16_t>& pixels) {
  std::vector<long double> measured;
  for (const std::uint32_t pixel : tables.pixels) {
    measured.push_back(static_cast<long double>(pixels[(pixel >> 16U) * size.width() + pixel % 65536]) - 32768);
  }
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

class AdaptiveOpticsChecker : public testing::Test {
 protected:
  static constexpr Size size = small_size;
  [[nodiscard]] Finding check(const std::vector<float>& commands) const {
    return check_commands(tables_, size.width(), pixels_, commands);
  }
  Tables tables_ = random_tables(size, 7);
  std::vector<std::uint16_t> pixels_ = random_pixels(size, 8);
  std::vector<long double> expected_ = plain_commands(tables_, size, pixels_);
};

TEST_F(AdaptiveOpticsChecker, IsThePlainSum) {
  const std::vector<float> commands = rounded(expected_);
  EXPECT_LE(check(commands).error_of_bound, 1);
  for (std::size_t i = 0; i < commands.size(); ++i) {
    std::vector<float> wrong = commands;
    wrong[i] += 50'000;
    const Finding found = check(wrong);
    EXPECT_EQ(found.command, i);
    EXPECT_EQ(found.value, wrong[i]);
    EXPECT_NEAR(found.expected, static_cast<double>(expected_[i]), 1e-4);
    // What float32 loses in sums of some thousand numbers below 32768: far less than one of them.
    EXPECT_LT(found.bound, 32768 * 0.02);
    EXPECT_GT(found.bound, 32768 * 1e-6);
    EXPECT_NEAR(found.error_of_bound, std::abs(found.value - found.expected) / found.bound, 1e-9);
  }
}

TEST_F(AdaptiveOpticsChecker, SeesWhatIsWrong) {
  const std::vector<float> right = rounded(expected_);
  const auto is_seen = [&](const std::vector<float>& commands) {
    Checker checker{tables_, size.width()};
    checker.check(0, pixels_, right);
    EXPECT_EQ(checker.frames, 1U) << "each frame of a small system, at once";
    try {
      checker.check(1, pixels_, commands);
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("frame 1: command "));
      return true;
    }
    return false;
  };
  EXPECT_FALSE(is_seen(right));
  std::vector<float> wrong = right;
  wrong[31] += 32768 * 0.03F;
  EXPECT_TRUE(is_seen(wrong)) << "one command";
  wrong = right;
  wrong.back() = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(is_seen(wrong)) << "no number";
  wrong.back() = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(is_seen(wrong)) << "infinity";
  EXPECT_TRUE(is_seen(rounded(plain_commands(tables_, size, random_pixels(size, 9))))) << "those of another frame";
  Tables others = tables_;
  others.reconstructor.row(11)[226] = 0;
  EXPECT_TRUE(is_seen(rounded(plain_commands(others, size, pixels_)))) << "one number of a matrix";
  others = tables_;
  others.pixels[17] ^= 1;
  EXPECT_TRUE(is_seen(rounded(plain_commands(others, size, pixels_)))) << "one pixel";
}

TEST(AdaptiveOpticsLargeChecker, LooksAtSomeFramesAtTheEnd) {
  constexpr Size size{.actuators_across = 3, .actuators = 9, .measurements = 3000, .modes_across = 20};
  const Tables tables = random_tables(size, 3);
  const auto pixels = random_pixels(size, 4);
  const std::vector<float> right = rounded(plain_commands(tables, size, pixels));
  for (const std::uint64_t wrong : {0, 7, 102, 5000}) {
    Checker checker{tables, size.width()};
    for (std::uint64_t frame = 0; frame < 110; ++frame) {
      checker.check(frame, pixels, frame == wrong ? std::vector<float>(right.size()) : right);
    }
    EXPECT_EQ(checker.frames, 0U);
    if (wrong == 102) {
      EXPECT_NO_THROW(checker.finish()) << "it is passed over";
    } else if (wrong > 110) {
      EXPECT_NO_THROW(checker.finish());
      EXPECT_GT(checker.frames, 50U);
    } else {
      EXPECT_THROW(checker.finish(), std::runtime_error) << wrong;
    }
  }
}

// The matrices that the example makes, with float64 in the GPU's place: the loop closes, and the same each time.
TEST(AdaptiveOpticsLoop, HoldsTheWavefront) {
  constexpr Size size = small_size;
  const auto left_after = [&](std::uint32_t seed, bool closed) {
    Telescope telescope(size, seed);
    const Tables tables = telescope.calibrate();
    std::vector<std::uint16_t> pixels(static_cast<std::size_t>(size.width()) * size.height());
    std::vector<float> commands;
    double air = 0, residual = 0;
    for (std::uint64_t frame = 0; frame < 400; ++frame) {
      const Wavefront seen = telescope.expose(pixels);
      air += frame < 100 ? 0 : seen.of_air;
      residual += frame < 100 ? 0 : seen.residual;
      if (closed && !commands.empty()) telescope.correct(commands);
      commands = rounded(plain_commands(tables, size, pixels));
    }
    return std::pair(air / 300, residual / 300);
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
  EXPECT_EQ(extreme_size.measurements, 6827);
  EXPECT_EQ(extreme_size.modes(), 1089);
  EXPECT_EQ(extreme_size.actuators, 1833);
  const std::vector<std::uint32_t> lit = Telescope(small_size, 1).calibrate().pixels;
  EXPECT_EQ(lit.size(), 227U);
  EXPECT_EQ(std::adjacent_find(lit.begin(), lit.end(), std::greater_equal<>()), lit.end()) << "rising, each once";
  for (const std::uint32_t pixel : lit) {
    EXPECT_LT(pixel & 0xFFFFU, static_cast<std::uint32_t>(small_size.width()) - 1) << "the last column is in the dark";
    EXPECT_LT(pixel >> 16U, static_cast<std::uint32_t>(small_size.height()));
  }
}

}  // namespace
}  // namespace adaptive_optics
