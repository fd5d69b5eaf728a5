// SPDX-License-Identifier: MIT
//
// What stands around the loop: air, a deformable mirror and a Shack-Hartmann sensor, simulated. Lengths of light are
// nm, those along the pupil are subapertures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace adaptive_optics {

/// How large a system is. Lit subapertures and actuators are those nearest to the middle of their grid.
struct Size {
  int across;            ///< subapertures in a row of the sensor
  int subapertures;      ///< lit ones
  int actuators_across;  ///< of the mirror's grid, which covers the sensor's
  int actuators;
  int modes;

  /// Slopes across, slopes down, and the constant 1 behind them.
  [[nodiscard]] std::size_t measurements() const { return 2 * static_cast<std::size_t>(subapertures) + 1; }
  [[nodiscard]] int width() const { return 2 * across; }  ///< pixels of a frame, which is square
  [[nodiscard]] std::size_t pixels() const {
    return static_cast<std::size_t>(width()) * static_cast<std::size_t>(width());
  }
};

/// 6827 measurements, 1089 modes, 1833 actuators: the README says where these numbers are from.
inline constexpr Size extreme_size{
    .across = 67, .subapertures = 3413, .actuators_across = 49, .actuators = 1833, .modes = 1089};
inline constexpr Size small_size{
    .across = 13, .subapertures = 113, .actuators_across = 9, .actuators = 57, .modes = 47};

/// Those of a grid of `across` x `across` that are nearest to its middle, as indices row by row, in rising order.
[[nodiscard]] std::vector<int> nearest_to_middle(int across, int count);

/// Numbers of std::mt19937 are the same everywhere; those of the distributions are not.
class Random {
 public:
  explicit Random(std::uint32_t seed) : generator_(seed) {}
  double uniform() { return static_cast<double>(generator_()) / 4294967296.0; }  ///< from 0 to 1
  double normal();                                                               ///< mean 0, deviation 1, close enough
  std::uint32_t bits() { return static_cast<std::uint32_t>(generator_()); }

 private:
  std::mt19937 generator_;
};

/// Root mean square over the pupil, without the mean, in nm.
struct Wavefront {
  float of_air;    ///< what a flat mirror would leave
  float residual;  ///< what the mirror leaves
};

/// Thread safety: one thread at a time.
class Telescope {
 public:
  /// The same `seed` makes the same air, noise and sensor.
  Telescope(const Size& size, std::uint32_t seed);

  /// The next frame: the wind has blown on, the mirror is as it is. `pixels` gets Size::pixels() of them.
  Wavefront expose(std::span<std::uint16_t> pixels);
  /// Moves the mirror by a part of `commands`, one for each actuator in nm, against the wavefront that they describe.
  void correct(std::span<const float> commands);

  /// The slopes, across and then down, that the mirror alone would make by `commands`: what a calibration measures.
  [[nodiscard]] std::vector<float> slopes_of(std::span<const float> commands);
  /// The slopes that the sensor has of a flat wavefront: no lens lies quite over its four pixels.
  [[nodiscard]] std::vector<float> flat_slopes() const;
  /// Where subapertures begin, as the kernel's table `corners` says it.
  [[nodiscard]] std::vector<std::uint32_t> corners() const;

 private:
  void blow();
  void shape_mirror(std::span<const float> commands);
  void take_slopes(const std::vector<float>& phase);
  [[nodiscard]] float deviation(const std::vector<float>& phase) const;

  Size size_;
  std::vector<int> lit_;
  std::size_t side_;  ///< corners of subapertures in a row: one more than there are subapertures
  Random random_;
  // One number a corner.
  std::vector<float> air_, mirror_, left_;
  std::vector<float> pupil_;  ///< 1 where a lit subaperture has the corner
  double corners_lit_ = 0;
  // One number a subaperture of the grid.
  std::vector<float> across_, down_, light_, flat_across_, flat_down_;
  std::vector<std::uint32_t> above_, below_;  ///< a row of them: its two rows of pixels
  // The mirror: its commands, their grid, and where corners lie on it.
  std::vector<float> commands_, grid_, line_;
  std::vector<std::size_t>
      follows_;  ///< which command a place of the grid has: its own, or beside the pupil the nearest
  std::vector<int> before_;
  std::vector<float> share_;
  // The air is a ribbon that is blown over the pupil and comes again.
  std::vector<float> ribbon_;
  std::size_t ribbon_row_;
  double blown_ = 0;
  std::vector<float> noise_;
};

}  // namespace adaptive_optics
