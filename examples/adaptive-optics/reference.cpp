// SPDX-License-Identifier: MIT
#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace adaptive_optics {

namespace {

constexpr double unit_roundoff = 1.0 / (1 << 24);  // of float32

/// A sum in which each product is rounded, and takes part in `roundings` - 1 additions, is wrong by at most this times
/// the sum of the products' magnitudes, whatever their order (Higham, Accuracy and Stability of Numerical Algorithms,
/// section 3.1).
double gamma(std::size_t roundings) {
  const double n = static_cast<double>(roundings) * unit_roundoff;
  return n / (1 - n);
}

std::size_t divide_up(std::size_t value, std::size_t by) {
  return (value + by - 1) / by;
}

// Shaders may divide with an error of 2.5 units in the last place, which are 5 unit roundoffs at most.
constexpr std::size_t division_roundings = 5;

/// How the kernels add: a thread takes every `team`-th four numbers into four sums, adds these (2), and the team's
/// threads add theirs in halves.
std::size_t roundings(std::size_t stride, std::size_t team) {
  const auto halvings = static_cast<std::size_t>(std::lround(std::log2(static_cast<double>(team))));
  return 1 + divide_up(stride / 4, team) + 2 + halvings;
}
constexpr std::size_t reconstruct_team = 128;
constexpr std::size_t command_team = 32;

double modes_gamma(const Tables& tables) {
  return gamma(roundings(tables.reconstructor.stride, reconstruct_team) + division_roundings);
}
double commands_gamma(const Tables& tables) {
  return gamma(roundings(tables.modes.stride, command_team));
}

struct Product {
  double sum = 0;
  double magnitudes = 0;  ///< the sum of what each product is without its sign
};

Product product(const float* row, const std::vector<double>& vector) {
  // Sums side by side, as a CPU adds.
  constexpr std::size_t lanes = 4;
  double sums[lanes] = {};
  double magnitudes[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= vector.size(); i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const double one = double{row[i + lane]} * vector[i + lane];
      sums[lane] += one;
      magnitudes[lane] += std::abs(one);
    }
  }
  for (; i < vector.size(); ++i) {
    const double one = double{row[i]} * vector[i];
    sums[0] += one;
    magnitudes[0] += std::abs(one);
  }
  return {.sum = (sums[0] + sums[1]) + (sums[2] + sums[3]),
          .magnitudes = (magnitudes[0] + magnitudes[1]) + (magnitudes[2] + magnitudes[3])};
}

Finding finding_of(double value, double expected, double bound, std::size_t command) {
  // A bound of 0 asks for the same number; what is not a number is as wrong as can be.
  const double error = std::abs(value - expected);
  const double of_bound = error == 0 ? 0 : error / bound;
  return {.error_of_bound = std::isnan(of_bound) ? HUGE_VAL : of_bound,
          .command = command,
          .value = value,
          .expected = expected,
          .bound = bound};
}

}  // namespace

std::vector<double> measurements_of(std::span<const std::uint16_t> pixels, const std::vector<std::uint32_t>& corners,
                                    int width) {
  const std::size_t count = corners.size();
  std::vector<double> measured(2 * count + 1);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t* above =
        pixels.data() + (corners[i] >> 16U) * static_cast<std::size_t>(width) + (corners[i] & 0xFFFFU);
    const std::uint16_t* below = above + width;
    const int left = above[0] + below[0];
    const int right = above[1] + below[1];
    const double light = std::max(left + right, 1);
    measured[i] = (right - left) / light;
    measured[count + i] = (below[0] + below[1] - above[0] - above[1]) / light;
  }
  measured.back() = 1;
  return measured;
}

Reference::Reference(std::shared_ptr<const Tables> tables, int width) : tables_(std::move(tables)), width_(width) {}

Finding Reference::check(std::span<const std::uint16_t> pixels, std::span<const float> commands) const {
  const std::vector<double> measured = measurements_of(pixels, tables_->corners, width_);
  const double g = modes_gamma(*tables_);
  const double h = commands_gamma(*tables_);
  std::vector<double> amplitudes, errors;
  for (std::size_t k = 0; k < tables_->reconstructor.rows; ++k) {
    const auto [sum, magnitudes] = product(tables_->reconstructor.row(k), measured);
    amplitudes.push_back(sum);
    errors.push_back(g * magnitudes);
  }
  Finding worst;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const float* row = tables_->modes.row(i);
    double expected = 0;
    double bound = 0;
    for (std::size_t k = 0; k < amplitudes.size(); ++k) {
      expected += row[k] * amplitudes[k];
      bound += std::abs(row[k]) * (h * (std::abs(amplitudes[k]) + errors[k]) + errors[k]);
    }
    const Finding found = finding_of(commands[i], expected, bound, i);
    if (found.error_of_bound >= worst.error_of_bound) worst = found;
  }
  return worst;
}

QuickReference::QuickReference(std::shared_ptr<const Tables> tables, int width)
    : tables_(std::move(tables)), width_(width) {
  constexpr std::size_t max_rows = 64;
  // The bound of Reference, with what a mode's amplitude is at most in place of the amplitude.
  const double g = modes_gamma(*tables_);
  const double h = commands_gamma(*tables_);
  const std::size_t actuators = tables_->modes.rows;
  const std::size_t rows = std::min(actuators, max_rows);
  for (std::size_t n = 0; n < rows; ++n) {
    Row made{.command = n * actuators / rows,
             .numbers = std::vector<double>(tables_->reconstructor.columns),
             .bounds = std::vector<double>(tables_->reconstructor.columns)};
    for (std::size_t k = 0; k < tables_->modes.columns; ++k) {
      const double factor = tables_->modes.row(made.command)[k];
      const float* row = tables_->reconstructor.row(k);
      for (std::size_t j = 0; j < made.numbers.size(); ++j) {
        made.numbers[j] += factor * row[j];
        made.bounds[j] += (g + h + g * h) * std::abs(factor * row[j]);
      }
    }
    rows_.push_back(std::move(made));
  }
}

Finding QuickReference::check(std::uint64_t frame, std::span<const std::uint16_t> pixels,
                              std::span<const float> commands) const {
  const Row& row = rows_[frame % rows_.size()];
  const std::vector<double> measured = measurements_of(pixels, tables_->corners, width_);
  double expected = 0;
  double bound = 0;
  for (std::size_t j = 0; j < measured.size(); ++j) {
    expected += row.numbers[j] * measured[j];
    bound += row.bounds[j] * std::abs(measured[j]);
  }
  return finding_of(commands[row.command], expected, bound, row.command);
}

}  // namespace adaptive_optics
