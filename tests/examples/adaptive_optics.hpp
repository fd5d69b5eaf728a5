// SPDX-License-Identifier: MIT
// What the tests of examples/adaptive-optics share: systems of random numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "adaptive-optics/checker.hpp"

namespace adaptive_optics {

inline constexpr Size odd_size{.actuators_across = 3, .actuators = 7, .measurements = 13, .modes_across = 2};

/// Random numbers of the shape that a system of `size` has: -1 to 1, and zeros that fill rows up.
inline Tables random_tables(const Size& size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> number(-1, 1);
  Tables tables{.pixels = {},
                .reconstructor = Matrix(size.modes(), size.measurements),
                .modes = Matrix(size.actuators, size.modes())};
  for (int i = 0; i < size.measurements; ++i) {
    const auto x = static_cast<std::uint32_t>(random() % size.width()),
               y = static_cast<std::uint32_t>(random() % size.height());
    tables.pixels.push_back(x | y << 16U);
  }
  for (Matrix* matrix : {&tables.reconstructor, &tables.modes}) {
    for (std::size_t i = 0; i < matrix->rows; ++i) {
      for (std::size_t j = 0; j < matrix->columns; ++j) matrix->row(i)[j] = number(random);
    }
  }
  return tables;
}

inline std::vector<std::uint16_t> random_pixels(const Size& size, std::uint32_t seed) {
  std::vector<std::uint16_t> pixels(static_cast<std::size_t>(size.width()) * size.height());
  std::mt19937 random(seed);
  for (std::uint16_t& pixel : pixels) pixel = static_cast<std::uint16_t>(random());
  pixels.front() = 0;
  pixels.back() = 65535;
  return pixels;
}

}  // namespace adaptive_optics
