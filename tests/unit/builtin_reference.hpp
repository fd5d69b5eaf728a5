// SPDX-License-Identifier: MIT
//
// What the built-in kernels must compute, in plain C++ and double: shared by the tests on any Vulkan driver and by
// those on a GPU.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "gpumap/kernel.h"
#include "gpumap/kernel.hpp"
#include "gpumap/sample_format.h"

namespace gpumap::reference {

using Bytes = std::span<const std::byte>;

inline std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::size_t at = 0; at < count; at += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, count - at));
  }
  return bytes;
}

struct Plane {
  std::size_t offset = 0, row_bytes = 0, rows = 0, stride = 0;
};

/// How an image lies in a piece of memory.
struct Layout {
  std::uint32_t format = 0, width = 0, height = 0;
  std::vector<Plane> planes;
  std::size_t bytes = 0;    ///< from the start of the memory, lead included
  bool interlaced = false;  ///< chroma belongs to every other row, not to neighbours

  [[nodiscard]] gpumap_view view(std::uint64_t address) const {
    gpumap_view view{};
    for (std::size_t i = 0; i < planes.size(); ++i) {
      view.plane[i] = address + planes[i].offset;
      view.stride[i] = static_cast<std::uint32_t>(planes[i].stride);
    }
    view.width = width;
    view.height = height;
    view.format = format;
    view.bytes = bytes - planes.front().offset;
    return view;
  }
};

struct Tensor {
  std::size_t element_bytes = 0;  ///< 4: float32, 2: float16, 1: 8 bit; 0: no tensor
  bool planar = false;
};

inline Tensor tensor_of(std::uint32_t format) {
  if (format < GPUMAP_FORMAT_RGB_F32_PLANAR || format > GPUMAP_FORMAT_RGB_U8) return {};
  const bool planar = format <= GPUMAP_FORMAT_RGB_U8_PLANAR;
  return {std::size_t{4} >> (format - (planar ? GPUMAP_FORMAT_RGB_F32_PLANAR : GPUMAP_FORMAT_RGB_F32)), planar};
}

/// `aligned`: as GStreamer and GPUs like it, rows of a multiple of 64 bytes. Otherwise planes and strides are odd, so
/// that nothing can be loaded or stored as a whole word.
inline Layout layout(std::uint32_t format, std::uint32_t width, std::uint32_t height, bool aligned) {
  const std::size_t half_width = (width + 1) / 2, half_height = (height + 1) / 2;
  Layout layout{.format = format, .width = width, .height = height, .planes = {}, .bytes = 0};
  const auto add = [&](std::size_t row_bytes, std::size_t rows) {
    const std::size_t stride = aligned ? (row_bytes + 63) / 64 * 64 : (row_bytes + 6) | 1U;
    const std::size_t offset = aligned ? (layout.bytes + 255) / 256 * 256 : (layout.bytes + 3) | 1U;
    layout.planes.push_back({offset, row_bytes, rows, stride});
    layout.bytes = offset + stride * rows;
  };
  switch (format) {
    case GPUMAP_FORMAT_NV12:
      add(width, height), add(2 * half_width, half_height);
      break;
    case GPUMAP_FORMAT_I420:
      add(width, height), add(half_width, half_height), add(half_width, half_height);
      break;
    case GPUMAP_FORMAT_YUY2:
    case GPUMAP_FORMAT_UYVY:
      add(4 * half_width, height);
      break;
    case GPUMAP_FORMAT_RGB:
    case GPUMAP_FORMAT_BGR:
      add(std::size_t{3} * width, height);
      break;
    case GPUMAP_FORMAT_P010:
    case GPUMAP_FORMAT_P016:
      add(std::size_t{2} * width, height), add(4 * half_width, half_height);
      break;
    case GPUMAP_FORMAT_I420_10:
      add(std::size_t{2} * width, height), add(2 * half_width, half_height), add(2 * half_width, half_height);
      break;
    case GPUMAP_FORMAT_Y42B:
      add(width, height), add(half_width, height), add(half_width, height);
      break;
    case GPUMAP_FORMAT_Y444:
      add(width, height), add(width, height), add(width, height);
      break;
    case GPUMAP_FORMAT_Y444_10:
      add(std::size_t{2} * width, height), add(std::size_t{2} * width, height), add(std::size_t{2} * width, height);
      break;
    case GPUMAP_FORMAT_V210:
      add((std::size_t{width} + 5) / 6 * 16, height);
      break;
    case GPUMAP_FORMAT_Y210:
      add(8 * half_width, height);
      break;
    case GPUMAP_FORMAT_RGBA:
    case GPUMAP_FORMAT_BGRA:
      add(std::size_t{4} * width, height);
      break;
    default:
      if (const Tensor tensor = tensor_of(format); tensor.element_bytes != 0) {
        for (int i = 0; i < (tensor.planar ? 3 : 1); ++i) {
          add((tensor.planar ? 1 : 3) * tensor.element_bytes * width, height);
        }
      } else {
        add((format == GPUMAP_FORMAT_GRAY16 || format >= GPUMAP_FORMAT_BAYER16_BGGR ? std::size_t{2} : std::size_t{1}) *
                width,
            height);
      }
  }
  return layout;
}

/// The sample of a Bayer picture at (x, y), mirrored beyond its edges.
inline double bayer_sample(const Layout& layout, Bytes bytes, std::int64_t x, std::int64_t y) {
  const auto mirrored = [](std::int64_t at, std::int64_t size) {
    if (at < 0) at = -at;
    if (at >= size) at = 2 * (size - 1) - at;
    return static_cast<std::size_t>(std::clamp<std::int64_t>(at, 0, size - 1));
  };
  const bool wide = layout.format >= GPUMAP_FORMAT_BAYER16_BGGR;
  const Plane& plane = layout.planes[0];
  const std::size_t at =
      plane.offset + mirrored(y, layout.height) * plane.stride + mirrored(x, layout.width) * (wide ? 2 : 1);
  return std::to_integer<int>(bytes[at]) + (wide ? 256 * std::to_integer<int>(bytes[at + 1]) : 0);
}

/// The mean of the samples of one colour in the 3 x 3 pixels around (x, y): its own, else the nearest.
inline std::array<double, 4> bayer_pixel(const Layout& layout, Bytes bytes, std::size_t x, std::size_t y) {
  // The colours of the first two rows, from left to right.
  constexpr std::array<std::array<std::size_t, 4>, 4> orders{{{2, 1, 1, 0}, {1, 2, 0, 1}, {1, 0, 2, 1}, {0, 1, 1, 2}}};
  const std::uint32_t first =
      layout.format >= GPUMAP_FORMAT_BAYER16_BGGR ? GPUMAP_FORMAT_BAYER16_BGGR : GPUMAP_FORMAT_BAYER8_BGGR;
  const auto& order = orders[layout.format - first];
  std::array<double, 4> pixel{0, 0, 0, 255};
  for (std::size_t colour = 0; colour < 3; ++colour) {
    for (const int distance : {0, 1, 2}) {  // in steps across and down, together
      double sum = 0;
      int count = 0;
      for (const int j : {-1, 0, 1}) {
        for (const int i : {-1, 0, 1}) {
          const std::size_t place =
              (y + static_cast<std::size_t>(j + 2)) % 2 * 2 + (x + static_cast<std::size_t>(i + 2)) % 2;
          if (std::abs(i) + std::abs(j) != distance || order[place] != colour) continue;
          sum += bayer_sample(layout, bytes, static_cast<std::int64_t>(x) + i, static_cast<std::int64_t>(y) + j);
          ++count;
        }
      }
      if (count == 0) continue;
      pixel[colour] = sum / count;
      break;
    }
  }
  return pixel;
}

/// The three components and alpha of one pixel, as they lie in memory but in the order Y Cb Cr A or R G B A.
inline std::array<double, 4> components(const Layout& layout, Bytes bytes, std::size_t x, std::size_t y) {
  const auto at = [&](std::size_t plane, std::size_t column, std::size_t row) -> double {
    const Plane& p = layout.planes[plane];
    return std::to_integer<int>(bytes[p.offset + row * p.stride + column]);
  };
  const auto at16 = [&](std::size_t plane, std::size_t column, std::size_t row) {
    return at(plane, 2 * column, row) + 256 * at(plane, 2 * column + 1, row);
  };
  const auto ten = [&](std::size_t plane, std::size_t column, std::size_t row) {
    return std::floor(at16(plane, column, row) / 64);
  };
  const auto low_ten = [&](std::size_t plane, std::size_t column, std::size_t row) {
    return std::fmod(at16(plane, column, row), 1024);
  };
  // One of the components of v210: the three of a word at bits 0, 10 and 20.
  const auto packed = [&](std::size_t index) -> double {
    const std::size_t column = index / 3 * 4;
    const double word = at16(0, column / 2, y) + 65536 * at16(0, column / 2 + 1, y);
    return static_cast<double>(static_cast<std::uint32_t>(word) >> (10 * (index % 3)) & 1023U);
  };
  const std::size_t chroma_y = layout.interlaced ? y / 4 * 2 + y % 2 : y / 2;
  switch (layout.format) {
    case GPUMAP_FORMAT_NV12:
      return {at(0, x, y), at(1, x / 2 * 2, chroma_y), at(1, x / 2 * 2 + 1, chroma_y), 255};
    case GPUMAP_FORMAT_I420:
      return {at(0, x, y), at(1, x / 2, chroma_y), at(2, x / 2, chroma_y), 255};
    case GPUMAP_FORMAT_YUY2:
      return {at(0, 2 * x, y), at(0, x / 2 * 4 + 1, y), at(0, x / 2 * 4 + 3, y), 255};
    case GPUMAP_FORMAT_UYVY:
      return {at(0, 2 * x + 1, y), at(0, x / 2 * 4, y), at(0, x / 2 * 4 + 2, y), 255};
    case GPUMAP_FORMAT_P010:
      return {ten(0, x, y), ten(1, x / 2 * 2, chroma_y), ten(1, x / 2 * 2 + 1, chroma_y), 255};
    case GPUMAP_FORMAT_P016:
      return {at16(0, x, y), at16(1, x / 2 * 2, chroma_y), at16(1, x / 2 * 2 + 1, chroma_y), 255};
    case GPUMAP_FORMAT_I420_10:
      return {low_ten(0, x, y), low_ten(1, x / 2, chroma_y), low_ten(2, x / 2, chroma_y), 255};
    case GPUMAP_FORMAT_Y42B:
      return {at(0, x, y), at(1, x / 2, y), at(2, x / 2, y), 255};
    case GPUMAP_FORMAT_Y444:
      return {at(0, x, y), at(1, x, y), at(2, x, y), 255};
    case GPUMAP_FORMAT_Y444_10:
      return {low_ten(0, x, y), low_ten(1, x, y), low_ten(2, x, y), 255};
    case GPUMAP_FORMAT_Y210:
      return {ten(0, 2 * x, y), ten(0, x / 2 * 4 + 1, y), ten(0, x / 2 * 4 + 3, y), 255};
    case GPUMAP_FORMAT_V210:
      return {packed(2 * x + 1), packed(x / 2 * 4), packed(x / 2 * 4 + 2), 255};
    case GPUMAP_FORMAT_GRAY8:
      return {at(0, x, y), at(0, x, y), at(0, x, y), 255};
    case GPUMAP_FORMAT_GRAY16:
      return {at16(0, x, y), at16(0, x, y), at16(0, x, y), 255};
    case GPUMAP_FORMAT_RGB:
      return {at(0, 3 * x, y), at(0, 3 * x + 1, y), at(0, 3 * x + 2, y), 255};
    case GPUMAP_FORMAT_BGR:
      return {at(0, 3 * x + 2, y), at(0, 3 * x + 1, y), at(0, 3 * x, y), 255};
    case GPUMAP_FORMAT_RGBA:
      return {at(0, 4 * x, y), at(0, 4 * x + 1, y), at(0, 4 * x + 2, y), at(0, 4 * x + 3, y)};
    case GPUMAP_FORMAT_BGRA:
      return {at(0, 4 * x + 2, y), at(0, 4 * x + 1, y), at(0, 4 * x, y), at(0, 4 * x + 3, y)};
    default:
      return bayer_pixel(layout, bytes, x, y);
  }
}

/// A part of a picture.
struct Crop {
  std::size_t x = 0, y = 0, width = 0, height = 0;
};

/// Weights of input pixels of one axis for output pixel `at`, where `from` pixels become `to`: a triangle around its
/// centre, as wide to each side as an input pixel or an output pixel, whichever is larger.
inline std::vector<std::pair<std::size_t, double>> taps(std::size_t at, std::size_t from, std::size_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double centre = (static_cast<double>(at) + 0.5) * scale - 0.5;
  std::vector<std::pair<std::size_t, double>> taps;
  const double reach = std::max(scale, 1.0);
  const auto first = static_cast<std::size_t>(std::max(0.0, centre - reach));
  for (std::size_t i = first; i < from && static_cast<double>(i) < centre + reach; ++i) {
    const double weight = 1.0 - std::abs(static_cast<double>(i) - centre) / reach;
    if (weight > 0) taps.emplace_back(i, weight);
  }
  return taps;
}

/// The components of pixel (x, y) of an output of width x height pixels that shows `crop`. Colours count as much as
/// they cover; where nothing covers they are 0.
inline std::array<double, 4> resampled(const Layout& layout, Bytes bytes, const Crop& crop, std::size_t x,
                                       std::size_t y, std::size_t width, std::size_t height) {
  std::array<double, 4> sum{};
  double weights = 0, cover = 0;
  const auto across = taps(x, crop.width, width);
  for (const auto& [row, down_weight] : taps(y, crop.height, height)) {
    for (const auto& [column, across_weight] : across) {
      const auto component = components(layout, bytes, crop.x + column, crop.y + row);
      const double weight = down_weight * across_weight;
      for (std::size_t i = 0; i < 3; ++i) sum[i] += weight * component[3] * component[i];
      cover += weight * component[3];
      weights += weight;
    }
  }
  for (double& value : sum) value = cover == 0 ? 0 : value / cover;
  sum[3] = cover / weights;
  return sum;
}

/// Red, green and blue, 0 to 255 and, of what no RGB has, beyond.
inline std::array<double, 3> wide_rgb(const gpumap_color& color, const std::array<double, 4>& component) {
  std::array<double, 3> rgb{};
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t i = 0; i < 3; ++i) {
      rgb[row] += double{color.matrix[3 * row + i]} * (component[i] - double{color.offset[i]});
    }
  }
  return rgb;
}

/// Red, green and blue, 0 to 255.
inline std::array<double, 3> rgb(const gpumap_color& color, const std::array<double, 4>& component) {
  std::array<double, 3> rgb = wide_rgb(color, component);
  for (double& value : rgb) value = std::clamp(value, 0.0, 255.0);
  return rgb;
}

/// How a format of luma codes colours.
struct Coding {
  ColorMatrix matrix = ColorMatrix::bt601;
  ColorRange range = ColorRange::full;
  unsigned bits = 8;
  std::size_t across = 1, down = 1;  ///< pixels side by side, and rows, that share their chroma
};

/// Y, Cb and Cr by the standards' definitions, of red, green and blue of 0 to 255.
inline std::array<double, 3> coded(const Coding& coding, const std::array<double, 3>& rgb) {
  double red = 0.299, blue = 0.114;
  if (coding.matrix == ColorMatrix::bt709) red = 0.2126, blue = 0.0722;
  if (coding.matrix == ColorMatrix::bt2020) red = 0.2627, blue = 0.0593;
  const double r = rgb[0] / 255, g = rgb[1] / 255, b = rgb[2] / 255;
  const double luma = red * r + (1 - red - blue) * g + blue * b;
  const double cb = (b - luma) / (2 * (1 - blue)), cr = (r - luma) / (2 * (1 - red));
  const double step = std::exp2(coding.bits - 8), most = std::exp2(coding.bits) - 1;
  if (coding.range == ColorRange::full) {
    return {most * luma, most * cb + (most + 1) / 2, most * cr + (most + 1) / 2};
  }
  return {(219 * luma + 16) * step, (224 * cb + 128) * step, (224 * cr + 128) * step};
}

/// How far pixel (x, y) of an output in a format of luma lies from what `rgb_at(x, y)` would give, red, green and blue
/// that may lie beyond 0 to 255; beyond rounding, in counts of 255.
template <typename RgbAt>
double luma_difference(const Layout& out, Bytes output, const Coding& coding, std::size_t x, std::size_t y,
                       RgbAt rgb_at) {
  const auto got = components(out, output, x, y);
  std::array<double, 3> expected{}, sum{};
  double count = 0;
  for (std::size_t i = 0; i < coding.down; ++i) {
    const bool by_field = out.interlaced && coding.down == 2;
    const std::size_t row = by_field ? y / 4 * 4 + y % 2 + 2 * i : y / coding.down * coding.down + i;
    for (std::size_t column = x / coding.across * coding.across; column < (x / coding.across + 1) * coding.across;
         ++column) {
      if (row >= out.height || column >= out.width) continue;
      const auto values = coded(coding, rgb_at(column, row));
      for (std::size_t c = 0; c < 3; ++c) sum[c] += values[c];
      if (row == y && column == x) expected[0] = values[0];
      ++count;
    }
  }
  expected[1] = sum[1] / count, expected[2] = sum[2] / count;
  const double most = std::exp2(coding.bits) - 1;
  double worst = 0;
  for (std::size_t i = 0; i < (out.format == GPUMAP_FORMAT_GRAY8 ? 1U : 3U); ++i) {
    const double beyond = std::abs(got[i] - std::clamp(expected[i], 0.0, most)) - 0.5;
    if (!(beyond <= worst)) worst = beyond;
  }
  return worst / std::exp2(coding.bits - 8);
}

/// The value of a float16.
inline double half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                           : exponent == 31 ? std::numeric_limits<double>::infinity()
                                            : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/// How far channel `c` of pixel (x, y) of an output lies from what (`rgb` and alpha, 0 to 255) would give, beyond the
/// rounding of its format; in counts of 255. `params` begin with mean and scale.
inline double difference(const Layout& out, const std::byte* output, std::size_t x, std::size_t y, std::size_t c,
                         const std::array<double, 4>& rgba, const float* params) {
  const auto byte = [&](std::size_t plane, std::size_t column) {
    return std::to_integer<int>(output[out.planes[plane].offset + y * out.planes[plane].stride + column]);
  };
  const auto rounded = [](int got, double exact) { return std::max(0.0, std::abs(got - exact) - 0.5); };
  if (const Tensor tensor = tensor_of(out.format); tensor.element_bytes != 0) {
    if (c == 3) return 0.0;
    const Plane& plane = out.planes[tensor.planar ? c : 0];
    const std::byte* at =
        output + plane.offset + y * plane.stride + (tensor.planar ? x : 3 * x + c) * tensor.element_bytes;
    const double scale = params[3 + c];
    const double exact = (rgba[c] / 255.0 - double{params[c]}) * scale;
    if (tensor.element_bytes == 1) {
      return rounded(std::to_integer<int>(*at), std::clamp(exact * 255.0, 0.0, 255.0)) / std::max(1.0, std::abs(scale));
    }
    if (tensor.element_bytes == 2) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, at, sizeof bits);
      const int exponent = std::max(-14, std::ilogb(exact == 0 ? 1e-9 : exact));
      const double rounding = std::ldexp(1.0, exponent - 11);
      return std::max(0.0, std::abs(half(bits) - exact) - rounding) / std::abs(scale) * 255.0;
    }
    float value = 0.0F;
    std::memcpy(&value, at, sizeof value);
    return std::abs(value - exact) / std::abs(scale) * 255.0;
  }
  switch (out.format) {
    case GPUMAP_FORMAT_RGB:
      return c == 3 ? 0.0 : rounded(byte(0, 3 * x + c), rgba[c]);
    case GPUMAP_FORMAT_BGRA:
      return rounded(byte(0, 4 * x + (c == 3 ? 3 : 2 - c)), rgba[c]);
    default:
      return rounded(byte(0, 4 * x + c), rgba[c]);
  }
}

/// What a format of samples is: a whole number of `bits`, or a float; its bytes from the highest or the lowest on.
struct SampleKind {
  std::uint32_t format = 0;
  unsigned bits = 0;    ///< that count
  unsigned stored = 0;  ///< that it takes
  bool is_float = false, is_unsigned = false, is_big_endian = false;
};
inline constexpr std::array sample_kinds{
    SampleKind{GPUMAP_FORMAT_U8, 8, 8, false, true},
    SampleKind{GPUMAP_FORMAT_S8, 8, 8},
    SampleKind{GPUMAP_FORMAT_S12, 12, 12},
    SampleKind{GPUMAP_FORMAT_S16, 16, 16},
    SampleKind{GPUMAP_FORMAT_S16_BE, 16, 16, false, false, true},
    SampleKind{GPUMAP_FORMAT_U16, 16, 16, false, true},
    SampleKind{GPUMAP_FORMAT_U16_BE, 16, 16, false, true, true},
    SampleKind{GPUMAP_FORMAT_S24, 24, 24},
    SampleKind{GPUMAP_FORMAT_S24_BE, 24, 24, false, false, true},
    SampleKind{GPUMAP_FORMAT_S24_32, 24, 32},
    SampleKind{GPUMAP_FORMAT_S24_32_BE, 24, 32, false, false, true},
    SampleKind{GPUMAP_FORMAT_S32, 32, 32},
    SampleKind{GPUMAP_FORMAT_S32_BE, 32, 32, false, false, true},
    SampleKind{GPUMAP_FORMAT_U32, 32, 32, false, true},
    SampleKind{GPUMAP_FORMAT_U32_BE, 32, 32, false, true, true},
    SampleKind{GPUMAP_FORMAT_F32, 32, 32, true},
    SampleKind{GPUMAP_FORMAT_F32_BE, 32, 32, true, false, true},
    SampleKind{GPUMAP_FORMAT_F64, 64, 64, true},
    SampleKind{GPUMAP_FORMAT_F64_BE, 64, 64, true, false, true},
};

inline const SampleKind& sample_kind(std::uint32_t format) {
  return *std::find_if(sample_kinds.begin(), sample_kinds.end(),
                       [&](const SampleKind& kind) { return kind.format == format; });
}

inline std::size_t sample_bits(std::uint32_t format) {
  return sample_kind(format).stored;
}

/// One interleaved sample in -1 to 1.
inline double sample(std::uint32_t format, Bytes bytes, std::size_t index) {
  const SampleKind& kind = sample_kind(format);
  std::uint64_t word = 0;
  const std::size_t from = index * kind.stored;  // bits count from the lowest of each byte on
  for (std::size_t bit = 0; bit < kind.stored; ++bit) {
    std::size_t at = from + bit;
    if (kind.is_big_endian) at = from + (kind.stored / 8 - 1 - bit / 8) * 8 + bit % 8;
    word |= (std::to_integer<std::uint64_t>(bytes[at / 8]) >> (at % 8) & 1U) << bit;
  }
  if (kind.is_float)
    return kind.bits == 64 ? std::bit_cast<double>(word) : std::bit_cast<float>(static_cast<std::uint32_t>(word));
  const double full = std::exp2(kind.bits), half = full / 2;
  const double value = std::fmod(static_cast<double>(word), full);
  if (format == GPUMAP_FORMAT_U8) return (value - 127.5) / 127.5;
  if (kind.is_unsigned) return (value - half) / half;
  return (value < half ? value : value - full) / half;
}

/// `count` samples at random over the whole range; floats in -1 to 1.
inline std::vector<std::byte> random_samples(std::uint32_t format, std::size_t count, std::uint64_t seed) {
  const SampleKind& kind = sample_kind(format);
  std::vector<std::byte> bytes = random_bytes(count * kind.stored / 8, seed);
  const std::size_t step = kind.stored / 8;
  if (!kind.is_float) return bytes;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    std::int32_t number = 0;
    std::memcpy(&number, &bytes[at], sizeof number);
    const double value = number / 2147483648.0;
    const auto narrow = static_cast<float>(value);
    if (kind.bits == 64) std::memcpy(&bytes[at], &value, sizeof value);
    if (kind.bits == 32) std::memcpy(&bytes[at], &narrow, sizeof narrow);
    if (kind.is_big_endian) {
      std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                   bytes.begin() + static_cast<std::ptrdiff_t>(at + step));
    }
  }
  return bytes;
}

/// The checksum by its definition, a byte at a time.
inline std::uint64_t checksum(Bytes bytes) {
  const auto mix = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
  };
  std::uint64_t sum = mix(bytes.size());
  for (std::size_t word = 0; word * 8 < bytes.size(); ++word) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 8 && word * 8 + i < bytes.size(); ++i) {
      value |= std::to_integer<std::uint64_t>(bytes[word * 8 + i]) << (8 * i);
    }
    sum += mix(value + (word + 1) * 0x9E3779B97F4A7C15U);
  }
  return sum;
}

/// The discrete Fourier transform of a power of two of values, in their place.
inline void transform(std::vector<std::complex<double>>& values) {
  const std::size_t size = values.size();
  const int bits = std::countr_zero(size);
  for (std::size_t i = 0; i < size; ++i) {
    std::size_t reversed = 0;
    for (int bit = 0; bit < bits; ++bit) reversed |= ((i >> bit) & 1U) << (bits - 1 - bit);
    if (i < reversed) std::swap(values[i], values[reversed]);
  }
  for (std::size_t half = 1; half < size; half *= 2) {
    for (std::size_t k = 0; k < half; ++k) {
      const std::complex<double> turn =
          std::polar(1.0, -std::numbers::pi * static_cast<double>(k) / static_cast<double>(half));
      for (std::size_t at = k; at < size; at += 2 * half) {
        const std::complex<double> odd = turn * values[at + half];
        values[at + half] = values[at] - odd;
        values[at] += odd;
      }
    }
  }
}

}  // namespace gpumap::reference
