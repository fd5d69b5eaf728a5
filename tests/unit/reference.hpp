// SPDX-License-Identifier: MIT
//
// What the built-in kernels must compute, in plain C++ and double: shared by the tests on any Vulkan driver and by
// those on a GPU.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "gpumap/kernel.h"

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
    case GPUMAP_FORMAT_RGB_F32_PLANAR:
      for (int i = 0; i < 3; ++i) add(std::size_t{4} * width, height);
      break;
    default:
      add(std::size_t{4} * width, height);
  }
  return layout;
}

/// The three components and alpha of one pixel, as they lie in memory but in the order Y Cb Cr A or R G B A.
inline std::array<int, 4> components(const Layout& layout, Bytes bytes, std::size_t x, std::size_t y) {
  const auto at = [&](std::size_t plane, std::size_t column, std::size_t row) {
    const Plane& p = layout.planes[plane];
    return std::to_integer<int>(bytes[p.offset + row * p.stride + column]);
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
    case GPUMAP_FORMAT_RGB:
      return {at(0, 3 * x, y), at(0, 3 * x + 1, y), at(0, 3 * x + 2, y), 255};
    case GPUMAP_FORMAT_BGR:
      return {at(0, 3 * x + 2, y), at(0, 3 * x + 1, y), at(0, 3 * x, y), 255};
    case GPUMAP_FORMAT_BGRA:
      return {at(0, 4 * x + 2, y), at(0, 4 * x + 1, y), at(0, 4 * x, y), at(0, 4 * x + 3, y)};
    default:
      return {at(0, 4 * x, y), at(0, 4 * x + 1, y), at(0, 4 * x + 2, y), at(0, 4 * x + 3, y)};
  }
}

/// Red, green and blue, 0 to 255.
inline std::array<double, 3> rgb(const gpumap_color& color, const std::array<int, 4>& component) {
  std::array<double, 3> rgb{};
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t i = 0; i < 3; ++i) {
      rgb[row] += double{color.matrix[3 * row + i]} * (component[i] - double{color.offset[i]});
    }
    rgb[row] = std::clamp(rgb[row], 0.0, 255.0);
  }
  return rgb;
}

/// One interleaved sample in -1 to 1.
inline double sample(std::uint32_t format, Bytes bytes, std::size_t index) {
  const auto read = [&]<typename T>(T) {
    T value;
    std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
    return static_cast<double>(value);
  };
  switch (format) {
    case GPUMAP_FORMAT_U8:
      return (read(std::uint8_t{}) - 127.5) / 127.5;
    case GPUMAP_FORMAT_S8:
      return read(std::int8_t{}) / 128.0;
    case GPUMAP_FORMAT_S16:
      return read(std::int16_t{}) / 32768.0;
    default:
      return read(float{});
  }
}

inline std::size_t sample_bytes(std::uint32_t format) {
  return format == GPUMAP_FORMAT_F32 ? 4 : format == GPUMAP_FORMAT_S16 ? 2 : 1;
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

}  // namespace gpumap::reference
