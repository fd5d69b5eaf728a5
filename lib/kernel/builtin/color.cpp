// SPDX-License-Identifier: MIT
#include "gpumap/kernel.hpp"

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
    case ColorMatrix::smpte240m:
      return {0.212, 0.087};
    case ColorMatrix::fcc:
      return {0.30, 0.11};
    default:
      return {0.2126, 0.0722};
  }
}

}  // namespace

gpumap_color color_matrix(ColorMatrix matrix, ColorRange range, unsigned bits) noexcept {
  const bool limited = range == ColorRange::limited;
  const double unit = 1U << (bits - 8);  // a step of 8 bits, where the range is limited
  const double full_scale = 255.0 / ((1U << bits) - 1U);
  const double luma_scale = limited ? 255.0 / 219.0 / unit : full_scale;
  const auto black = static_cast<float>(limited ? 16.0 * unit : 0.0);
  if (matrix == ColorMatrix::rgb) {
    const auto scale = static_cast<float>(luma_scale);
    return {{scale, 0, 0, 0, scale, 0, 0, 0, scale}, {black, black, black}};
  }

  const auto [red, blue] = weights_of(matrix);
  const double green = 1.0 - red - blue;
  const double chroma_scale = limited ? 255.0 / 224.0 / unit : full_scale;
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
  const auto neutral = static_cast<float>(128.0 * unit);
  gpumap_color color{{}, {black, neutral, neutral}};
  for (int i = 0; i < 9; ++i) color.matrix[i] = static_cast<float>(rows[i]);
  return color;
}

gpumap_color color_from_rgb(ColorMatrix matrix, ColorRange range, unsigned bits) noexcept {
  gpumap_color color = color_matrix(matrix, range, bits);
  const bool limited = range == ColorRange::limited;
  const double unit = 1U << (bits - 8);
  const double full_scale = ((1U << bits) - 1U) / 255.0;
  const double luma_scale = limited ? unit * 219.0 / 255.0 : full_scale;
  const double chroma_scale = limited ? unit * 224.0 / 255.0 : full_scale;
  if (matrix == ColorMatrix::rgb) {
    for (float& factor : color.matrix) factor = factor != 0 ? static_cast<float>(luma_scale) : 0;
    return color;
  }
  const auto [red, blue] = weights_of(matrix);
  const double green = 1.0 - red - blue;
  const double cb = chroma_scale / (2.0 * (1.0 - blue)), cr = chroma_scale / (2.0 * (1.0 - red));
  const double rows[9] = {
      luma_scale * red,  luma_scale * green,
      luma_scale * blue,  //
      -cb * red,         -cb * green,
      cb * (1.0 - blue),  //
      cr * (1.0 - red),  -cr * green,        -cr * blue,
  };
  for (int i = 0; i < 9; ++i) color.matrix[i] = static_cast<float>(rows[i]);
  return color;
}

}  // namespace gpumap
