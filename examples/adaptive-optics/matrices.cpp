// SPDX-License-Identifier: MIT
#include "matrices.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <thread>
#include <utility>

namespace adaptive_optics {

namespace {

constexpr double damping = 1e-3;  // of what a mode weighs

/// `work(i)` for each i below `count`, on all CPUs.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  const std::size_t workers = std::max(std::thread::hardware_concurrency(), 1U);
  std::vector<std::thread> threads;
  for (std::size_t worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
      for (std::size_t i = worker; i < count; i += workers) work(i);
    });
  }
  // Ends: each has its part of `count` calls, which calculate.
  for (std::thread& thread : threads) thread.join();
}

/// Of rows of a multiple of 32 numbers: as many sums side by side as a CPU adds at once.
float dot(const float* a, const float* b, std::size_t count) {
  constexpr std::size_t lanes = 16;
  float sums[lanes] = {};
  for (std::size_t i = 0; i < count; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (const float one : sums) sum += one;
  return sum;
}

/// Cosines of p and q half waves across and down the grid, those with the smallest p * p + q * q first. Not 0 and 0:
/// no sensor of slopes sees the mean.
Matrix make_modes(const Size& size) {
  std::vector<std::pair<int, int>> waves;
  for (int p = 0; p < size.actuators_across; ++p) {
    for (int q = 0; q < size.actuators_across; ++q) {
      if (p + q != 0) waves.emplace_back(p, q);
    }
  }
  const auto order = [](std::pair<int, int> wave) { return wave.first * wave.first + wave.second * wave.second; };
  std::stable_sort(waves.begin(), waves.end(), [&](auto a, auto b) { return order(a) < order(b); });
  waves.resize(static_cast<std::size_t>(size.modes));

  const std::vector<int> actuators = nearest_to_middle(size.actuators_across, size.actuators);
  Matrix modes(actuators.size(), waves.size());
  const auto cosine = [&](int half_waves, int at) {
    return std::cos(std::numbers::pi * half_waves * (at + 0.5) / size.actuators_across);
  };
  for (std::size_t i = 0; i < actuators.size(); ++i) {
    const int x = actuators[i] % size.actuators_across;
    const int y = actuators[i] / size.actuators_across;
    for (std::size_t k = 0; k < waves.size(); ++k) {
      modes.row(i)[k] = static_cast<float>(cosine(waves[k].first, x) * cosine(waves[k].second, y));
    }
  }
  return modes;
}

/// A symmetric, positive definite matrix, row by row, becomes its inverse: by Cholesky's factor.
void invert(std::vector<double>& matrix, std::size_t side) {
  const auto at = [&](std::size_t row, std::size_t column) -> double& { return matrix[row * side + column]; };
  for (std::size_t i = 0; i < side; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = at(i, j);
      for (std::size_t k = 0; k < j; ++k) sum -= at(i, k) * at(j, k);
      at(i, j) = i == j ? std::sqrt(sum) : sum / at(j, j);
    }
  }
  // Each column of the inverse on its own: L y = e, then L^T x = y.
  std::vector<double> inverse(side * side);
  in_parallel(side, [&](std::size_t column) {
    double* x = inverse.data() + column * side;
    x[column] = 1;
    for (std::size_t i = column; i < side; ++i) {
      double sum = x[i];
      for (std::size_t k = column; k < i; ++k) sum -= at(i, k) * x[k];
      x[i] = sum / at(i, i);
    }
    for (std::size_t i = side; i-- > 0;) {
      x[i] /= at(i, i);
      for (std::size_t k = 0; k < i; ++k) x[k] -= at(i, k) * x[i];
    }
  });
  matrix = std::move(inverse);
}

}  // namespace

Tables make_tables(Telescope& telescope, const Size& size) {
  Tables tables{.corners = telescope.corners(),
                .reconstructor = Matrix(static_cast<std::size_t>(size.modes), size.measurements()),
                .modes = make_modes(size)};
  const std::size_t modes = tables.modes.columns;
  // What the sensor sees of each mode: a row of slopes.
  Matrix seen(modes, size.measurements() - 1);
  std::vector<float> commands(tables.modes.rows);
  for (std::size_t k = 0; k < modes; ++k) {
    for (std::size_t i = 0; i < commands.size(); ++i) commands[i] = tables.modes.row(i)[k];
    const std::vector<float> slopes = telescope.slopes_of(commands);
    std::copy(slopes.begin(), slopes.end(), seen.row(k));
  }
  std::vector<double> normal(modes * modes);
  in_parallel(modes, [&](std::size_t k) {
    for (std::size_t l = 0; l < modes; ++l) normal[k * modes + l] = dot(seen.row(k), seen.row(l), seen.stride);
  });
  for (std::size_t k = 0; k < modes; ++k) normal[k * modes + k] *= 1 + damping;
  invert(normal, modes);

  const std::vector<float> flat = telescope.flat_slopes();
  in_parallel(modes, [&](std::size_t k) {
    float* row = tables.reconstructor.row(k);
    for (std::size_t l = 0; l < modes; ++l) {
      const auto factor = static_cast<float>(normal[k * modes + l]);
      const float* from = seen.row(l);
      for (std::size_t j = 0; j < seen.columns; ++j) row[j] += factor * from[j];
    }
    double constant = 0;
    for (std::size_t j = 0; j < flat.size(); ++j) constant -= double{row[j]} * flat[j];
    row[flat.size()] = static_cast<float>(constant);
  });
  return tables;
}

}  // namespace adaptive_optics
