// SPDX-License-Identifier: MIT
// What the tests of examples/adaptive-optics share: systems of random numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "adaptive-optics/matrices.hpp"
#include "adaptive-optics/telescope.hpp"

namespace adaptive_optics {

inline constexpr Size odd_size{.across = 5, .subapertures = 13, .actuators_across = 3, .actuators = 7, .modes = 3};

/// Random numbers of the shape that a system of `size` has: -1 to 1, and zeros that fill rows up.
inline std::shared_ptr<Tables> random_tables(const Size& size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> number(-1, 1);
  auto tables = std::make_shared<Tables>(Tables{
      .corners = Telescope(size, seed).corners(),
      .reconstructor = Matrix(static_cast<std::size_t>(size.modes), size.measurements()),
      .modes = Matrix(static_cast<std::size_t>(size.actuators), static_cast<std::size_t>(size.modes)),
  });
  for (Matrix* matrix : {&tables->reconstructor, &tables->modes}) {
    for (std::size_t i = 0; i < matrix->rows; ++i) {
      for (std::size_t j = 0; j < matrix->columns; ++j) matrix->row(i)[j] = number(random);
    }
  }
  return tables;
}

inline std::vector<std::uint16_t> random_pixels(const Size& size, std::uint32_t seed) {
  std::vector<std::uint16_t> pixels(size.pixels());
  std::mt19937 random(seed);
  for (std::uint16_t& pixel : pixels) pixel = static_cast<std::uint16_t>(random());
  // A subaperture in the dark, and one whose light is in one pixel.
  const auto middle = static_cast<std::uint32_t>(size.across / 2 * 2);
  for (const std::uint32_t row : {middle, middle + 1}) {
    for (std::uint32_t x = middle; x < middle + 4; ++x) {
      pixels[row * static_cast<std::uint32_t>(size.width()) + x] = row == middle && x == middle + 2 ? 65535 : 0;
    }
  }
  return pixels;
}

}  // namespace adaptive_optics
