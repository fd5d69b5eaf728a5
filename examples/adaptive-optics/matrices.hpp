// SPDX-License-Identifier: MIT
//
// The tables of commands.cu and commands.comp, from what a calibration of the simulated telescope measures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "telescope.hpp"

namespace adaptive_optics {

/// Row by row in float32; rows are filled up with zeros to a multiple of 32 numbers, as the kernels want them.
struct Matrix {
  Matrix(std::size_t row_count, std::size_t column_count)
      : rows(row_count), columns(column_count), stride((column_count + 31) / 32 * 32), numbers(rows * stride) {}
  [[nodiscard]] float* row(std::size_t index) { return numbers.data() + index * stride; }
  [[nodiscard]] const float* row(std::size_t index) const { return numbers.data() + index * stride; }

  std::size_t rows, columns, stride;
  std::vector<float> numbers;
};

struct Tables {
  std::vector<std::uint32_t> corners;  ///< where each lit subaperture begins: column, row << 16
  Matrix reconstructor;                ///< modes x measurements
  Matrix modes;                        ///< actuators x modes
};

/// Modes are the smoothest cosines on the mirror's grid; the reconstructor finds their amplitudes by least squares,
/// damped a little where the sensor hardly sees a mode. Some seconds of all CPUs for extreme_size.
[[nodiscard]] Tables make_tables(Telescope& telescope, const Size& size);

}  // namespace adaptive_optics
