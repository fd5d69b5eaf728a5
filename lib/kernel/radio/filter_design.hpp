// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <vector>

namespace gpumap {

/// Taps that a Kaiser-windowed low-pass needs for this stop-band attenuation in dB, where the transition from pass band
/// to stop band is `transition` wide; in parts of the sampling rate.
[[nodiscard]] double kaiser_taps(double attenuation, double transition);

/// A low-pass of `taps` taps, symmetric, of sum 1: a sinc that cuts off at `cutoff` parts of the sampling rate, times a
/// Kaiser window for this attenuation.
[[nodiscard]] std::vector<double> design_low_pass(std::size_t taps, double cutoff, double attenuation);

}  // namespace gpumap
