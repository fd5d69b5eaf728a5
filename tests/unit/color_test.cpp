// SPDX-License-Identifier: MIT
// The matrices from YUV to RGB and back, against the standards' definitions.
#include "gpumap/kernel.hpp"

#include <gmock/gmock.h>

#include <array>
#include <cmath>

#include "builtin_reference.hpp"

namespace gpumap {
namespace {

using ::testing::ElementsAre;

// The weights of red and blue as the standards have them.
TEST(Color, EveryMatrixUndoesItsDefinition) {
  struct Standard {
    ColorMatrix matrix;
    double red, blue;
  };
  for (const Standard& of : {Standard{ColorMatrix::bt601, 0.299, 0.114},
                             {ColorMatrix::bt709, 0.2126, 0.0722},
                             {ColorMatrix::bt2020, 0.2627, 0.0593},
                             {ColorMatrix::smpte240m, 0.212, 0.087},
                             {ColorMatrix::fcc, 0.30, 0.11}}) {
    for (const auto& rgb : {std::array{0.0, 0.0, 255.0}, {200.0, 10.0, 100.0}, {255.0, 255.0, 0.0}}) {
      const double luma = of.red * rgb[0] + (1 - of.red - of.blue) * rgb[1] + of.blue * rgb[2];
      const double cb = (rgb[2] - luma) / (2 - 2 * of.blue), cr = (rgb[0] - luma) / (2 - 2 * of.red);
      const auto limited =
          reference::rgb(color_matrix(of.matrix, ColorRange::limited, 10),
                         {4 * (16 + 219 * luma / 255), 4 * (128 + 224 * cb / 255), 4 * (128 + 224 * cr / 255), 0});
      const auto full = reference::rgb(color_matrix(of.matrix, ColorRange::full), {luma, cb + 128, cr + 128, 0});
      for (std::size_t c = 0; c < 3; ++c) {
        EXPECT_NEAR(limited[c], rgb[c], 1e-3) << static_cast<int>(of.matrix);
        EXPECT_NEAR(full[c], rgb[c], 1e-3) << static_cast<int>(of.matrix);
      }
    }
  }
}

/// What becomes of red, green and blue by `color`, as gpumap_frame::out_color has it.
std::array<double, 3> applied(const gpumap_color& color, const std::array<double, 3>& rgb) {
  std::array<double, 3> made{};
  for (std::size_t row = 0; row < 3; ++row) {
    made[row] = double{color.offset[row]};
    for (std::size_t i = 0; i < 3; ++i) made[row] += double{color.matrix[3 * row + i]} * rgb[i];
  }
  return made;
}

TEST(Color, FromRgbIsTheDefinition) {
  for (const auto matrix : {ColorMatrix::bt601, ColorMatrix::bt709, ColorMatrix::bt2020}) {
    for (const auto range : {ColorRange::limited, ColorRange::full}) {
      for (const unsigned bits : {8U, 10U, 16U}) {
        const gpumap_color color = color_from_rgb(matrix, range, bits);
        for (const auto& rgb : {std::array{0.0, 0.0, 0.0}, {255.0, 255.0, 255.0}, {200.0, 10.0, 100.0}}) {
          const auto made = applied(color, rgb);
          const auto expected = reference::coded({matrix, range, bits}, rgb);
          for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(made[c], expected[c], std::exp2(bits) * 1e-6);
        }
      }
    }
  }
  // 8-bit codes of pure red.
  EXPECT_THAT(applied(color_from_rgb(ColorMatrix::bt601, ColorRange::limited), {255, 0, 0}),
              ElementsAre(testing::DoubleNear(81, 0.5), testing::DoubleNear(90, 0.5), testing::DoubleNear(240, 0.5)));
  EXPECT_THAT(applied(color_from_rgb(ColorMatrix::bt709, ColorRange::limited), {255, 0, 0}),
              ElementsAre(testing::DoubleNear(63, 0.5), testing::DoubleNear(102, 0.5), testing::DoubleNear(240, 0.5)));
}

TEST(Color, FromRgbAndBackIsTheSame) {
  for (const auto matrix : {ColorMatrix::bt601, ColorMatrix::bt709, ColorMatrix::bt2020, ColorMatrix::smpte240m,
                            ColorMatrix::fcc, ColorMatrix::rgb}) {
    for (const auto range : {ColorRange::limited, ColorRange::full}) {
      for (const unsigned bits : {8U, 10U, 16U}) {
        const std::array rgb{37.0, 201.0, 118.0};
        const auto made = applied(color_from_rgb(matrix, range, bits), rgb);
        const auto back = reference::rgb(color_matrix(matrix, range, bits), {made[0], made[1], made[2], 0});
        for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(back[c], rgb[c], 1e-3);
      }
    }
  }
}

TEST(Color, WhiteBlackAndRed) {
  const auto convert = [](ColorMatrix matrix, ColorRange range, std::array<double, 4> components, unsigned bits = 8) {
    auto values = reference::rgb(color_matrix(matrix, range, bits), components);
    for (double& value : values) value = std::round(value * 100) / 100;
    return values;
  };
  EXPECT_THAT(convert(ColorMatrix::bt709, ColorRange::limited, {235, 128, 128, 0}), ElementsAre(255, 255, 255));
  EXPECT_THAT(convert(ColorMatrix::bt601, ColorRange::limited, {16, 128, 128, 0}), ElementsAre(0, 0, 0));
  EXPECT_THAT(convert(ColorMatrix::bt2020, ColorRange::full, {200, 128, 128, 0}), ElementsAre(200, 200, 200));
  EXPECT_THAT(convert(ColorMatrix::rgb, ColorRange::full, {1, 2, 3, 0}), ElementsAre(1, 2, 3));
  EXPECT_THAT(convert(ColorMatrix::rgb, ColorRange::limited, {16, 235, 125, 0}),
              ElementsAre(0, 255, ::testing::DoubleNear(126.92, 0.01)));
  // 8-bit codes of pure red.
  const auto red601 = convert(ColorMatrix::bt601, ColorRange::limited, {81, 90, 240, 0});
  const auto red709 = convert(ColorMatrix::bt709, ColorRange::limited, {63, 102, 240, 0});
  for (const auto& red : {red601, red709}) {
    EXPECT_NEAR(red[0], 255, 1.5);
    EXPECT_NEAR(red[1], 0, 1.5);
    EXPECT_NEAR(red[2], 0, 1.5);
  }
  // More bits: limited values are multiples of those of 8 bits, full ones go to the largest number.
  const auto deep = [&](ColorRange range, std::array<double, 4> components, unsigned bits) {
    return convert(ColorMatrix::bt709, range, components, bits);
  };
  EXPECT_THAT(deep(ColorRange::limited, {940, 512, 512, 0}, 10), ElementsAre(255, 255, 255));
  EXPECT_THAT(deep(ColorRange::limited, {64, 512, 512, 0}, 10), ElementsAre(0, 0, 0));
  EXPECT_THAT(deep(ColorRange::full, {1023, 512, 512, 0}, 10), ElementsAre(255, 255, 255));
  EXPECT_THAT(convert(ColorMatrix::rgb, ColorRange::full, {4095, 0, 819, 0}, 12), ElementsAre(255, 0, 51));
  EXPECT_THAT(convert(ColorMatrix::rgb, ColorRange::limited, {235 * 256, 16 * 256, 0, 0}, 16), ElementsAre(255, 0, 0));
}

}  // namespace
}  // namespace gpumap
