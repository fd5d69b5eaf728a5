// SPDX-License-Identifier: MIT
//
// The commands of a frame in float64, and how far from them float32 may be.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "telescope.hpp"

namespace adaptive_optics {

/// The command that is farthest from what it should be, by its own bound; wrong where the error is more than that.
struct Finding {
  double error_of_bound = 0;
  std::size_t command = 0;  ///< which one
  double value = 0, expected = 0, bound = 0;
};

/// A sum of products, each of which is rounded `n` times in all, in its product and in additions, is wrong by at most
/// this times the sum of their magnitudes, whatever their order (Higham, Accuracy and Stability of Numerical
/// Algorithms, section 3.1). Of the kernels' sums: a thread takes every `team`-th four numbers into four sums, adds
/// these (2), and the team's threads add theirs in halves: fewer where the team is larger.
inline double rounding_of(const Matrix& matrix, int team) {
  const auto fours = matrix.stride / 4;
  const double n = (1 + std::ceil(static_cast<double>(fours) / team) + 2 + std::log2(team)) / (1 << 24);
  return n / (1 - n);
}

/// Every command of a frame. `width`: pixels of its rows.
inline Finding check_commands(const Tables& tables, int width, std::span<const std::uint16_t> pixels,
                              std::span<const float> commands) {
  const auto& [places, reconstructor, modes] = tables;
  std::vector<double> measured, amplitudes, errors;
  for (const std::uint32_t place : places)
    measured.push_back(pixels[(place >> 16U) * width + (place & 0xFFFFU)] - 32768.0);
  const double to_modes = rounding_of(reconstructor, 128), to_commands = rounding_of(modes, 32);
  for (std::size_t k = 0; k < reconstructor.rows; ++k) {
    const float* row = reconstructor.row(k);
    double sum = 0, magnitudes = 0;
    for (std::size_t j = 0; j < measured.size(); ++j) {
      sum += row[j] * measured[j];
      magnitudes += std::abs(row[j] * measured[j]);
    }
    amplitudes.push_back(sum);
    errors.push_back(to_modes * magnitudes);
  }
  Finding worst;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const float* row = modes.row(i);
    double expected = 0, bound = 0;
    for (std::size_t k = 0; k < amplitudes.size(); ++k) {
      expected += row[k] * amplitudes[k];
      bound += std::abs(row[k]) * (to_commands * (std::abs(amplitudes[k]) + errors[k]) + errors[k]);
    }
    // A bound of 0 asks for the same number; what is not a number is as wrong as can be.
    const double error = std::abs(commands[i] - expected), of_bound = error == 0 ? 0 : error / bound;
    const Finding found{std::isnan(of_bound) ? HUGE_VAL : of_bound, i, commands[i], expected, bound};
    if (found.error_of_bound >= worst.error_of_bound) worst = found;
  }
  return worst;
}

/// Compares frames of a loop: each as it comes where that is little work, else some, ever fewer of the later ones, when
/// the loop has ended.
struct Checker {
  /// Throws std::runtime_error where the frame is wrong.
  void check(std::uint64_t number, const std::vector<std::uint16_t>& pixels, const std::vector<float>& commands) {
    if (checks_each()) return compare({number, pixels, commands});
    if (kept.empty() || static_cast<double>(number) > 1.02 * static_cast<double>(kept.back().number)) {
      kept.push_back({number, pixels, commands});
    }
  }
  /// Those that are left. Throws as check().
  void finish() {
    for (const Frame& one : kept) compare(one);
  }
  /// What takes less than about a millisecond.
  [[nodiscard]] bool checks_each() const { return tables.reconstructor.numbers.size() < 1'000'000; }

  struct Frame {
    std::uint64_t number;
    std::vector<std::uint16_t> pixels;
    std::vector<float> commands;
  };
  void compare(const Frame& frame) {
    const Finding found = check_commands(tables, width, frame.pixels, frame.commands);
    ++frames;
    worst_of_bound = std::max(worst_of_bound, found.error_of_bound);
    if (found.error_of_bound <= 1) return;
    throw std::runtime_error(fmt::format(
        "frame {}: command {} is {:.9g}, and in float64 it is {:.9g}: float32 may be off by {:.3g}, not by {:.3g}",
        frame.number, found.command, found.value, found.expected, found.bound, std::abs(found.value - found.expected)));
  }

  const Tables& tables;
  int width;                  ///< of frames
  std::uint64_t frames = 0;   ///< that were compared
  double worst_of_bound = 0;  ///< the largest error found over its bound
  std::vector<Frame> kept;
};

}  // namespace adaptive_optics
