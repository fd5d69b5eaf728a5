// SPDX-License-Identifier: MIT
#include "telescope.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

namespace adaptive_optics {

static_assert(std::endian::native == std::endian::little, "two pixels of GRAY16_LE are one word");

namespace {

constexpr double frame_seconds = 1.0 / 2000;     // of a camera of 2,000 frames a second
constexpr double pitch = 0.12;                   // m: of a subaperture
constexpr double wind = 10;                      // m/s
constexpr double neighbours_nm = 170;            // RMS between corners side by side: r0 = 0.15 m at 500 nm
constexpr float nm_of_slope = 1000;              // between the sides of a subaperture, for a slope of 1
constexpr float max_slope = 0.95F;               // where all the light falls on one side
constexpr float pixel_light = 1000;              // photo-electrons of a pixel of a flat wavefront
constexpr double pixel_noise = 32;               // electrons, RMS: of the light and of reading
constexpr double flat_deviation = 0.03;          // of slopes
constexpr std::size_t ribbon_columns = 4096;     // subapertures until the same air comes again
constexpr std::size_t noise_offsets = 1U << 16;  // where a frame's noise may begin
// An integrator that forgets a little, so that what the sensor does not see does not grow.
constexpr float gain = 0.4F;
constexpr float leak = 0.999F;

std::size_t square(int side) {
  return static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
}

/// Kolmogorov's air as a sum of plane waves whose periods divide the ribbon's length: row by row, `row` numbers in
/// each.
std::vector<float> make_ribbon(std::size_t rows, std::size_t row, Random& random) {
  constexpr int waves = 400;
  constexpr double longest = 256;  // subapertures
  constexpr double shortest = 2;
  std::vector<double> made(rows * row, 0.0);
  std::vector<double> cosines(row), sines(row);
  for (int wave = 0; wave < waves; ++wave) {
    // Logarithms of periods are spread evenly, so a wave stands for a part of the spectrum k^(-11/3) that is k * k
    // wide.
    const double k = std::exp(std::log(1 / longest) + random.uniform() * std::log(longest / shortest));
    const double angle = std::numbers::pi * random.uniform();
    const double amplitude = std::pow(k, -5.0 / 6);
    const double phase = 2 * std::numbers::pi * random.uniform();
    const double turn = 2 * std::numbers::pi * std::round(k * std::cos(angle) * ribbon_columns) / ribbon_columns;
    const double turn_down = 2 * std::numbers::pi * k * std::sin(angle);
    for (std::size_t x = 0; x < row; ++x) {
      cosines[x] = std::cos(turn * static_cast<double>(x));
      sines[x] = std::sin(turn * static_cast<double>(x));
    }
    for (std::size_t y = 0; y < rows; ++y) {
      const double at = phase + turn_down * static_cast<double>(y);
      const double cosine = amplitude * std::cos(at);
      const double sine = amplitude * std::sin(at);
      for (std::size_t x = 0; x < row; ++x) made[y * row + x] += cosines[x] * cosine - sines[x] * sine;
    }
  }
  double sum = 0;
  for (std::size_t y = 0; y < rows; ++y) {
    for (std::size_t x = 0; x + 1 < row; ++x) {
      const double difference = made[y * row + x + 1] - made[y * row + x];
      sum += difference * difference;
    }
  }
  const double scale = neighbours_nm / std::sqrt(sum / static_cast<double>(rows * (row - 1)));
  std::vector<float> ribbon(made.size());
  std::transform(made.begin(), made.end(), ribbon.begin(), [&](double nm) { return static_cast<float>(nm * scale); });
  return ribbon;
}

std::uint32_t two_pixels(float left, float right) {
  const auto pixel = [](float electrons) {
    return static_cast<std::uint32_t>(static_cast<int>(std::max(electrons, 0.0F)));
  };
  return pixel(left) | pixel(right) << 16U;
}

}  // namespace

std::vector<int> nearest_to_middle(int across, int count) {
  std::vector<int> indices(square(across));
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int>(i);
  const auto distance = [&](int index) {
    const int x = 2 * (index % across) - (across - 1);
    const int y = 2 * (index / across) - (across - 1);
    return x * x + y * y;
  };
  std::stable_sort(indices.begin(), indices.end(), [&](int a, int b) { return distance(a) < distance(b); });
  indices.resize(static_cast<std::size_t>(count));
  std::sort(indices.begin(), indices.end());
  return indices;
}

double Random::normal() {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum;
}

Telescope::Telescope(const Size& size, std::uint32_t seed)
    : size_(size),
      lit_(nearest_to_middle(size.across, size.subapertures)),
      side_(static_cast<std::size_t>(size.across) + 1),
      random_(seed),
      air_(side_ * side_),
      mirror_(side_ * side_),
      left_(side_ * side_),
      pupil_(side_ * side_),
      across_(square(size.across)),
      down_(square(size.across)),
      light_(square(size.across)),
      flat_across_(square(size.across)),
      flat_down_(square(size.across)),
      above_(static_cast<std::size_t>(size.across)),
      below_(static_cast<std::size_t>(size.across)),
      commands_(static_cast<std::size_t>(size.actuators)),
      grid_(square(size.actuators_across)),
      line_(static_cast<std::size_t>(size.actuators_across)),
      ribbon_row_(ribbon_columns + side_ + 1) {
  const auto row = static_cast<std::size_t>(size.across);
  for (const int index : lit_) {
    const auto at = static_cast<std::size_t>(index);
    light_[at] = pixel_light;
    flat_across_[at] = static_cast<float>(flat_deviation * random_.normal());
    flat_down_[at] = static_cast<float>(flat_deviation * random_.normal());
    const std::size_t corner = at / row * side_ + at % row;
    for (const std::size_t one : {corner, corner + 1, corner + side_, corner + side_ + 1}) pupil_[one] = 1;
  }
  for (const float one : pupil_) corners_lit_ += one;
  for (std::size_t corner = 0; corner < side_; ++corner) {
    const double at = static_cast<double>(corner) * (size.actuators_across - 1) / size.across;
    before_.push_back(std::min(static_cast<int>(at), size.actuators_across - 2));
    share_.push_back(static_cast<float>(at - before_.back()));
  }
  const std::vector<int> actuators = nearest_to_middle(size.actuators_across, size.actuators);
  for (int i = 0; i < static_cast<int>(grid_.size()); ++i) {
    const auto distance = [&](int actuator) {
      const int x = actuator % size.actuators_across - i % size.actuators_across;
      const int y = actuator / size.actuators_across - i / size.actuators_across;
      return x * x + y * y;
    };
    const auto nearest =
        std::min_element(actuators.begin(), actuators.end(), [&](int a, int b) { return distance(a) < distance(b); });
    follows_.push_back(static_cast<std::size_t>(nearest - actuators.begin()));
  }
  ribbon_ = make_ribbon(side_, ribbon_row_, random_);
  noise_.resize(size.pixels() + noise_offsets);
  // Half a unit more: what follows cuts off.
  for (float& one : noise_) one = static_cast<float>(0.5 + pixel_noise * random_.normal());
}

void Telescope::blow() {
  const auto whole = static_cast<std::size_t>(blown_);
  const auto share = static_cast<float>(blown_ - static_cast<double>(whole));
  for (std::size_t y = 0; y < side_; ++y) {
    const float* from = ribbon_.data() + y * ribbon_row_ + whole;
    float* to = air_.data() + y * side_;
    for (std::size_t x = 0; x < side_; ++x) to[x] = from[x] + share * (from[x + 1] - from[x]);
  }
  blown_ = std::fmod(blown_ + wind * frame_seconds / pitch, static_cast<double>(ribbon_columns));
}

/// Between actuators the mirror is bilinear.
void Telescope::shape_mirror(std::span<const float> commands) {
  for (std::size_t i = 0; i < grid_.size(); ++i) grid_[i] = commands[follows_[i]];
  const std::size_t row = line_.size();
  for (std::size_t y = 0; y < side_; ++y) {
    const float* above = grid_.data() + static_cast<std::size_t>(before_[y]) * row;
    for (std::size_t x = 0; x < row; ++x) line_[x] = above[x] + share_[y] * (above[x + row] - above[x]);
    float* to = mirror_.data() + y * side_;
    for (std::size_t x = 0; x < side_; ++x) {
      const float* at = line_.data() + before_[x];
      to[x] = at[0] + share_[x] * (at[1] - at[0]);
    }
  }
}

void Telescope::take_slopes(const std::vector<float>& phase) {
  const auto row = static_cast<std::size_t>(size_.across);
  constexpr float factor = 0.5F / nm_of_slope;
  for (std::size_t y = 0; y < row; ++y) {
    const float* above = phase.data() + y * side_;
    const float* below = above + side_;
    float* across = across_.data() + y * row;
    float* down = down_.data() + y * row;
    for (std::size_t x = 0; x < row; ++x) {
      across[x] = factor * (above[x + 1] + below[x + 1] - above[x] - below[x]);
      down[x] = factor * (below[x] + below[x + 1] - above[x] - above[x + 1]);
    }
  }
}

float Telescope::deviation(const std::vector<float>& phase) const {
  // Some sums side by side, as a CPU adds: floats are not added in another order by themselves.
  constexpr std::size_t lanes = 8;
  float sums[lanes] = {};
  float squares[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= phase.size(); i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const float value = pupil_[i + lane] * phase[i + lane];
      sums[lane] += value;
      squares[lane] += value * value;
    }
  }
  for (; i < phase.size(); ++i) {
    sums[0] += pupil_[i] * phase[i];
    squares[0] += pupil_[i] * phase[i] * phase[i];
  }
  double sum = 0;
  double squared = 0;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    sum += sums[lane];
    squared += squares[lane];
  }
  const double mean = sum / corners_lit_;
  return static_cast<float>(std::sqrt(std::max(squared / corners_lit_ - mean * mean, 0.0)));
}

Wavefront Telescope::expose(std::span<std::uint16_t> pixels) {
  blow();
  shape_mirror(commands_);
  for (std::size_t i = 0; i < left_.size(); ++i) left_[i] = air_[i] - mirror_[i];
  take_slopes(left_);
  const float* noise = noise_.data() + random_.bits() % noise_offsets;
  const auto row = static_cast<std::size_t>(size_.across);
  for (std::size_t y = 0; y < row; ++y, noise += 4 * row) {
    for (std::size_t x = 0; x < row; ++x) {
      const std::size_t at = y * row + x;
      const float across = std::min(std::max(across_[at] + flat_across_[at], -max_slope), max_slope);
      const float down = std::min(std::max(down_[at] + flat_down_[at], -max_slope), max_slope);
      const float upper = light_[at] * (1 - down);
      const float lower = light_[at] * (1 + down);
      // Two pixels side by side are one word: so compilers find vectors in this.
      above_[x] = two_pixels(upper * (1 - across) + noise[x], upper * (1 + across) + noise[row + x]);
      below_[x] = two_pixels(lower * (1 - across) + noise[2 * row + x], lower * (1 + across) + noise[3 * row + x]);
    }
    std::memcpy(pixels.data() + 4 * row * y, above_.data(), 4 * row);
    std::memcpy(pixels.data() + 4 * row * y + 2 * row, below_.data(), 4 * row);
  }
  return {.of_air = deviation(air_), .residual = deviation(left_)};
}

void Telescope::correct(std::span<const float> commands) {
  for (std::size_t i = 0; i < commands_.size(); ++i) commands_[i] = leak * commands_[i] + gain * commands[i];
}

std::vector<float> Telescope::slopes_of(std::span<const float> commands) {
  shape_mirror(commands);
  take_slopes(mirror_);
  std::vector<float> slopes;
  for (const auto* field : {&across_, &down_}) {
    for (const int index : lit_) slopes.push_back((*field)[static_cast<std::size_t>(index)]);
  }
  return slopes;
}

std::vector<float> Telescope::flat_slopes() const {
  std::vector<float> slopes;
  for (const auto* field : {&flat_across_, &flat_down_}) {
    for (const int index : lit_) slopes.push_back((*field)[static_cast<std::size_t>(index)]);
  }
  return slopes;
}

std::vector<std::uint32_t> Telescope::corners() const {
  std::vector<std::uint32_t> made;
  for (const int index : lit_) {
    made.push_back(static_cast<std::uint32_t>(2 * (index % size_.across)) |
                   static_cast<std::uint32_t>(2 * (index / size_.across)) << 16U);
  }
  return made;
}

}  // namespace adaptive_optics
