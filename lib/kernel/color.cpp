// SPDX-License-Identifier: MIT
#include "gpumap/color.hpp"

namespace gpumap {
namespace {

/// The weights of red and blue in luma; green has the rest.
struct Weights {
  double red, blue;
};

Weights weights_of(ColorMatrix matrix) noexcept {
  switch (matrix) {
    case ColorMatrix::bt601:
      return {0.299, 0.114};
    case ColorMatrix::bt2020:
      return {0.2627, 0.0593};
    default:
      return {0.2126, 0.0722};
  }
}

}  // namespace

gpumap_color color_matrix(ColorMatrix matrix, ColorRange range) noexcept {
  const bool limited = range == ColorRange::limited;
  const double luma_scale = limited ? 255.0 / 219.0 : 1.0;
  const auto black = limited ? 16.0F : 0.0F;
  if (matrix == ColorMatrix::rgb) {
    const auto scale = static_cast<float>(luma_scale);
    return {{scale, 0, 0, 0, scale, 0, 0, 0, scale}, {black, black, black}};
  }

  const auto [red, blue] = weights_of(matrix);
  const double green = 1.0 - red - blue;
  const double chroma_scale = limited ? 255.0 / 224.0 : 1.0;
  const double red_from_cr = 2.0 * (1.0 - red) * chroma_scale;
  const double blue_from_cb = 2.0 * (1.0 - blue) * chroma_scale;
  const double rows[9] = {
      luma_scale,
      0.0,
      red_from_cr,  //
      luma_scale,
      -blue_from_cb * blue / green,
      -red_from_cr * red / green,  //
      luma_scale,
      blue_from_cb,
      0.0,
  };
  gpumap_color color{{}, {black, 128.0F, 128.0F}};
  for (int i = 0; i < 9; ++i) color.matrix[i] = static_cast<float>(rows[i]);
  return color;
}

}  // namespace gpumap
