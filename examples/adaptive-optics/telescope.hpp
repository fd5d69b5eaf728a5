// SPDX-License-Identifier: MIT
//
// What stands around the loop, simulated: air, a deformable mirror, and a sensor of the wavefront that is left; and the
// matrices that a calibration of them makes. Lengths are nm, places are pixels of the sensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace adaptive_optics {

/// How large a system is. The mirror's grid has an actuator at every other pixel, across and down.
struct Size {
  int actuators_across, actuators;  ///< of the grid, and how many there are: those nearest to its middle
  int measurements;                 ///< pixels that the light reaches, likewise
  int modes_across;

  [[nodiscard]] int modes() const { return modes_across * modes_across; }
  [[nodiscard]] int width() const { return 2 * actuators_across; }  ///< pixels of a row; the last one is in the dark
  [[nodiscard]] int height() const { return 2 * actuators_across - 1; }
};
/// 6827 measurements, 1089 modes, 1833 actuators: the README says where these numbers are from.
inline constexpr Size extreme_size{49, 1833, 6827, 33};
inline constexpr Size small_size{11, 89, 227, 7};

/// Row by row in float32; rows are filled up with zeros to a multiple of 32 numbers, as the kernels want them.
struct Matrix {
  Matrix(std::size_t row_count, std::size_t column_count)
      : rows(row_count), columns(column_count), stride((column_count + 31) / 32 * 32), numbers(rows * stride) {}
  [[nodiscard]] float* row(std::size_t index) { return numbers.data() + index * stride; }
  [[nodiscard]] const float* row(std::size_t index) const { return numbers.data() + index * stride; }

  std::size_t rows, columns, stride;
  std::vector<float> numbers;
};

/// What the kernels read.
struct Tables {
  std::vector<std::uint32_t> pixels;  ///< those that the light reaches: column, row << 16
  Matrix reconstructor;               ///< modes x measurements
  Matrix modes;                       ///< actuators x modes
};

/// Root mean square over the pupil, without the mean, in nm.
struct Wavefront {
  float of_air;    ///< what a flat mirror would leave
  float residual;  ///< what the mirror leaves
};

/// Thread safety: one thread at a time.
class Telescope {
 public:
  /// The same `seed` makes the same air and noise.
  Telescope(const Size& size, std::uint32_t seed);

  /// Modes are the smoothest cosines on the mirror's grid; the reconstructor finds their amplitudes by least squares.
  /// Some seconds for extreme_size.
  [[nodiscard]] Tables calibrate();
  /// The next frame: the wind has blown on, the mirror is as it is. A pixel shows the wavefront there, as 32768 and 2
  /// for each nm, with noise.
  Wavefront expose(std::span<std::uint16_t> pixels);
  /// Moves the mirror by a part of `commands`, one for each actuator in nm, against the wavefront that they describe.
  void correct(std::span<const float> commands);

 private:
  double uniform() { return static_cast<double>(random_()) / 4294967296.0; }  ///< from 0 to 1
  void make_air();
  void shape_mirror(std::span<const float> commands);

  Size size_;
  std::mt19937 random_;           ///< its numbers are the same everywhere; those of the distributions are not
  std::vector<int> lit_, moved_;  ///< pixels in the light, and those with an actuator
  std::vector<float> pupil_, air_, mirror_;  ///< a number a pixel; `pupil_`: 1 in the light
  std::vector<float> commands_, noise_;
  std::vector<float> ribbon_;  ///< air that is blown over the pupil and comes again
  double blown_ = 0;
};

}  // namespace adaptive_optics
