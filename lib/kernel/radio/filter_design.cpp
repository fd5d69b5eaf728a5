// SPDX-License-Identifier: MIT
#include "kernel/radio/filter_design.hpp"

#include <cmath>
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

std::vector<double> design_low_pass(std::size_t taps, double cutoff, double attenuation) {
  const double middle = (static_cast<double>(taps) - 1.0) / 2.0;
  const double beta = kaiser_beta(attenuation);
  std::vector<double> filter(taps);
  double sum = 0.0;
  for (std::size_t i = 0; i < taps; ++i) {
    const double t = static_cast<double>(i) - middle;
    const double x = 2.0 * std::numbers::pi * cutoff * t;
    const double edge = middle > 0.0 ? t / middle : 0.0;
    filter[i] = (x == 0.0 ? 1.0 : std::sin(x) / x) * bessel_i0(beta * std::sqrt(std::fmax(0.0, 1.0 - edge * edge)));
    sum += filter[i];
  }
  for (double& tap : filter) tap /= sum;
  return filter;
}

}  // namespace gpumap
