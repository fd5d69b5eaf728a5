// SPDX-License-Identifier: MIT
#include "kernel/radio/filter_design.hpp"

#include <cmath>
#include <complex>
#include <numbers>

namespace gpumap {
namespace {

/// The modified Bessel function of order 0, by its series: std::cyl_bessel_i is not in every standard library.
double bessel_i0(double x) {
  double sum = 1.0, term = 1.0;
  for (int k = 1; term > sum * 1e-17; ++k) {
    term *= x / (2.0 * k) * (x / (2.0 * k));
    sum += term;
  }
  return sum;
}

/// Kaiser's formulas for the shape of his window.
double kaiser_beta(double attenuation) {
  if (attenuation > 50.0) return 0.1102 * (attenuation - 8.7);
  if (attenuation >= 21.0) return 0.5842 * std::pow(attenuation - 21.0, 0.4) + 0.07886 * (attenuation - 21.0);
  return 0.0;
}

}  // namespace

double kaiser_taps(double attenuation, double transition) {
  return (attenuation - 7.95) / (14.36 * transition) + 1.0;
}

LowPass::LowPass(double taps, double cutoff, double attenuation)
    : taps_(taps), cutoff_(cutoff), beta_(kaiser_beta(attenuation)), window_scale_(1.0 / bessel_i0(beta_)) {}

double LowPass::at(double i) const {
  const double middle = (taps_ - 1.0) / 2.0;
  const double t = i - middle;
  const double x = 2.0 * std::numbers::pi * cutoff_ * t;
  const double edge = middle > 0.0 ? t / middle : 0.0;
  const double window = bessel_i0(beta_ * std::sqrt(std::fmax(0.0, 1.0 - edge * edge))) * window_scale_;
  return (x == 0.0 ? 1.0 : std::sin(x) / x) * window;
}

double LowPass::sum(std::size_t steps) const {
  // Its integral from end to end is the sum but for half of each of the two ends.
  const double ends = (at(0.0) + at(taps_ - 1.0)) / 2.0;
  const double step = (taps_ - 1.0) / static_cast<double>(steps);
  double inner = 0.0;
  for (std::size_t i = 1; i < steps; ++i) inner += at(static_cast<double>(i) * step);
  return (inner + ends) * step + ends;
}

double LowPass::stop_band(double from) const {
  // Behind its edge, one of a wide band leaves what one of a narrower band does, which takes less to find out.
  constexpr double wide = 2048.0;
  const double narrower = std::fmax(cutoff_ - wide / 2.0 / taps_, 0.0);
  LowPass narrow = *this;
  narrow.cutoff_ -= narrower;
  const double worst = narrow.worst_of(from - narrower, 0.5 - narrower);
  // Four deviations, about, of what rounding to float32 adds to taps whose squares' sum is 2 * cutoff.
  const double rounding = std::ldexp(std::sqrt(2.0 * cutoff_), -24);
  return -20.0 * std::log10(worst + rounding);
}

double LowPass::worst_of(double from, double to) const {
  constexpr std::size_t few = 8192;
  constexpr std::size_t lobes = 24, per_lobe = 48;  // the largest are the first ones: the window's fall off
  const double waves = 2.0 * cutoff_ * taps_;
  const auto points = static_cast<std::size_t>(std::fmin(taps_, std::fmax(few, 8.0 * waves)));
  const double step = points > 1 ? (taps_ - 1.0) / static_cast<double>(points - 1) : 1.0;
  // From the middle on, of which each but one in the middle stands for two.
  std::vector<double> half;
  double gain = 0.0;
  const double first = points % 2 == 1 ? 0.0 : 0.5;
  for (std::size_t i = 0; i < (points + 1) / 2; ++i) {
    const double value = at((taps_ - 1.0) / 2.0 + (static_cast<double>(i) + first) * step);
    half.push_back(i == 0 && points % 2 == 1 ? value : 2.0 * value);
    gain += half.back();
  }
  double worst = 0.0;
  for (std::size_t i = 0; i < lobes * per_lobe; ++i) {
    const double frequency = from + static_cast<double>(i) / per_lobe / taps_;
    if (frequency > to) break;
    const double turn = 2.0 * std::numbers::pi * frequency * step;
    const std::complex<double> each = std::polar(1.0, turn);
    std::complex<double> now = std::polar(1.0, turn * first);
    double response = 0.0;
    for (const double value : half) {
      response += value * now.real();
      now *= each;
    }
    worst = std::fmax(worst, std::abs(response));
  }
  return worst / gain;
}

std::vector<double> design_low_pass(std::size_t taps, double cutoff, double attenuation) {
  const LowPass low_pass(static_cast<double>(taps), cutoff, attenuation);
  std::vector<double> filter(taps);
  double sum = 0.0;
  for (std::size_t i = 0; i < taps; ++i) sum += filter[i] = low_pass.at(static_cast<double>(i));
  for (double& tap : filter) tap /= sum;
  return filter;
}

}  // namespace gpumap
