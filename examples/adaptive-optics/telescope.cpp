// SPDX-License-Identifier: MIT
#include "telescope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace adaptive_optics {

namespace {

constexpr double blown_each_frame = 10.0 / 2000 / 0.085;  // wind of 10 m/s, 2,000 frames a second, pixels of 0.085 m
constexpr double neighbours_nm = 130;                     // RMS from pixel to pixel: r0 = 0.15 m at 500 nm
constexpr double noise_nm = 30;                           // RMS, of each pixel
constexpr float step_of_nm = 2;                           // of a pixel's value
constexpr int ribbon_columns = 4096;                      // pixels until the same air comes again
constexpr int noise_offsets = 1 << 16;                    // where a frame's noise may begin
// An integrator that forgets a little, so that what the sensor does not see does not grow.
constexpr float gain = 0.4F, leak = 0.999F;
constexpr double damping = 1e-3;  // of what a mode weighs

/// The `count` places of a grid of `across` x `across` that are nearest to its middle, `apart` pixels from each other;
/// `row`: pixels of a row.
std::vector<int> nearest_to_middle(int across, int count, int apart, int row) {
  std::vector<int> places(static_cast<std::size_t>(across) * across);
  std::iota(places.begin(), places.end(), 0);
  std::ranges::stable_sort(places, {}, [&](int place) {
    const int x = 2 * (place % across) - (across - 1), y = 2 * (place / across) - (across - 1);
    return x * x + y * y;
  });
  places.resize(count);
  for (int& place : places) place = apart * (place / across * row + place % across);
  std::ranges::sort(places);
  return places;
}

/// A symmetric, positive definite matrix, row by row, becomes its inverse.
void invert(std::vector<double>& matrix, std::size_t side) {
  for (std::size_t i = 0; i < side; ++i) {
    double* pivot = matrix.data() + i * side;
    const double factor = 1 / std::exchange(pivot[i], 1);
    for (std::size_t j = 0; j < side; ++j) pivot[j] *= factor;
    for (std::size_t k = 0; k < side; ++k) {
      double* row = matrix.data() + k * side;
      if (row == pivot) continue;
      const double share = std::exchange(row[i], 0);
      for (std::size_t j = 0; j < side; ++j) row[j] -= share * pivot[j];
    }
  }
}

}  // namespace

Telescope::Telescope(const Size& size, std::uint32_t seed)
    : size_(size),
      random_(seed),
      lit_(nearest_to_middle(size.height(), size.measurements, 1, size.width())),
      moved_(nearest_to_middle(size.actuators_across, size.actuators, 2, size.width())),
      pupil_(static_cast<std::size_t>(size.width()) * size.height()),
      air_(pupil_),
      mirror_(pupil_),
      commands_(size.actuators),
      noise_(pupil_.size() + noise_offsets) {
  for (const int pixel : lit_) pupil_[pixel] = 1;
  make_air();
  for (float& one : noise_) one = static_cast<float>(noise_nm * std::sqrt(12.0) * (uniform() - 0.5));
}

/// Kolmogorov's air as a sum of plane waves whose periods divide the ribbon's length.
void Telescope::make_air() {
  constexpr double turn = 2 * std::numbers::pi, longest = 256, shortest = 2;
  const int row = ribbon_columns + size_.width() + 1;
  ribbon_.resize(static_cast<std::size_t>(row) * size_.height());
  for (int wave = 0; wave < 400; ++wave) {
    // Logarithms of periods are spread evenly, so a wave stands for a part of the spectrum k^(-11/3) that is k * k
    // wide.
    const double k = std::exp(std::log(1 / longest) + uniform() * std::log(longest / shortest));
    const double angle = std::numbers::pi * uniform(), phase = turn * uniform(), amplitude = std::pow(k, -5.0 / 6);
    const double step = turn * std::round(k * std::cos(angle) * ribbon_columns) / ribbon_columns;
    std::vector<float> cosines, sines;
    for (int x = 0; x < row; ++x) {
      cosines.push_back(static_cast<float>(amplitude * std::cos(step * x)));
      sines.push_back(static_cast<float>(amplitude * std::sin(step * x)));
    }
    for (int y = 0; y < size_.height(); ++y) {
      const double at = phase + turn * k * std::sin(angle) * y;
      const auto cosine = static_cast<float>(std::cos(at)), sine = static_cast<float>(std::sin(at));
      for (int x = 0; x < row; ++x) ribbon_[y * row + x] += cosines[x] * cosine - sines[x] * sine;
    }
  }
  double sum = 0;
  for (int x = 0; x < ribbon_columns; ++x) sum += std::pow(ribbon_[x + 1] - ribbon_[x], 2.0);
  const auto scale = static_cast<float>(neighbours_nm / std::sqrt(sum / ribbon_columns));
  for (float& nm : ribbon_) nm *= scale;
}

/// Between actuators it is bilinear.
void Telescope::shape_mirror(std::span<const float> commands) {
  const std::size_t row = size_.width();
  for (std::size_t i = 0; i < moved_.size(); ++i) mirror_[moved_[i]] = commands[i];
  for (std::size_t at = 0; at < mirror_.size(); at += 2 * row) {
    for (std::size_t x = at + 1; x + 1 < at + row; x += 2) mirror_[x] = 0.5F * (mirror_[x - 1] + mirror_[x + 1]);
  }
  for (std::size_t at = row; at < mirror_.size(); at += 2 * row) {
    for (std::size_t x = at; x < at + row; ++x) mirror_[x] = 0.5F * (mirror_[x - row] + mirror_[x + row]);
  }
}

Wavefront Telescope::expose(std::span<std::uint16_t> pixels) {
  const auto whole = static_cast<std::size_t>(blown_), row = static_cast<std::size_t>(size_.width());
  const auto share = static_cast<float>(blown_ - static_cast<double>(whole));
  blown_ = std::fmod(blown_ + blown_each_frame, ribbon_columns);
  for (std::size_t y = 0; y * row < air_.size(); ++y) {
    const float* from = ribbon_.data() + y * (ribbon_columns + row + 1) + whole;
    for (std::size_t x = 0; x < row; ++x) air_[y * row + x] = from[x] + share * (from[x + 1] - from[x]);
  }
  shape_mirror(commands_);
  const float* noise = noise_.data() + random_() % noise_offsets;
  float air_sum = 0, air_squares = 0, sum = 0, squares = 0;
  for (std::size_t i = 0; i < air_.size(); ++i) {
    const float air = pupil_[i] * air_[i], left = pupil_[i] * (air_[i] - mirror_[i]);
    air_sum += air;
    air_squares += air * air;
    sum += left;
    squares += left * left;
    const float value = 32768.5F + step_of_nm * (left + noise[i]);
    pixels[i] = static_cast<std::uint16_t>(static_cast<int>(std::min(std::max(value, 0.0F), 65535.0F)));
  }
  const auto deviation = [count = static_cast<float>(lit_.size())](float added, float of_squares) {
    return std::sqrt(std::max(of_squares / count - (added / count) * (added / count), 0.0F));
  };
  return {.of_air = deviation(air_sum, air_squares), .residual = deviation(sum, squares)};
}

void Telescope::correct(std::span<const float> commands) {
  for (std::size_t i = 0; i < commands_.size(); ++i) commands_[i] = leak * commands_[i] + gain * commands[i];
}

Tables Telescope::calibrate() {
  const int across = size_.actuators_across, row = size_.width();
  const std::size_t modes = size_.modes();
  Tables tables{{}, Matrix(modes, lit_.size()), Matrix(moved_.size(), modes)};
  for (const int pixel : lit_) tables.pixels.push_back(static_cast<std::uint32_t>(pixel % row | pixel / row << 16));
  const auto cosine = [&](std::size_t half_waves, int pixel) {  // an actuator is 2 pixels wide
    return std::cos(std::numbers::pi * static_cast<double>(half_waves) * (pixel + 1) / (2.0 * across));
  };
  // What the sensor sees of each mode.
  Matrix seen(modes, lit_.size());
  std::vector<float> commands(moved_.size());
  for (std::size_t k = 0; k < modes; ++k) {
    const std::size_t down = k / size_.modes_across, aside = k % size_.modes_across;
    for (std::size_t i = 0; i < commands.size(); ++i) {
      commands[i] = static_cast<float>(cosine(down, moved_[i] / row) * cosine(aside, moved_[i] % row));
      tables.modes.row(i)[k] = commands[i];
    }
    shape_mirror(commands);
    for (std::size_t j = 0; j < lit_.size(); ++j) seen.row(k)[j] = step_of_nm * mirror_[lit_[j]];
  }
  std::vector<double> normal;
  for (std::size_t k = 0; k < modes; ++k) {
    for (std::size_t l = 0; l < modes; ++l) {
      const float sum = std::inner_product(seen.row(k), seen.row(k) + seen.columns, seen.row(l), 0.0F);
      normal.push_back(sum * (k == l ? 1 + damping : 1));
    }
  }
  invert(normal, modes);
  for (std::size_t k = 0; k < modes; ++k) {
    float* made = tables.reconstructor.row(k);
    for (std::size_t l = 0; l < modes; ++l) {
      const auto factor = static_cast<float>(normal[k * modes + l]);
      for (std::size_t j = 0; j < seen.columns; ++j) made[j] += factor * seen.row(l)[j];
    }
  }
  return tables;
}

}  // namespace adaptive_optics
