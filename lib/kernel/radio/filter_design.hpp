// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpumap {

/// Taps that a Kaiser-windowed low-pass needs for this stop-band attenuation in dB, where the transition from pass band
/// to stop band is `transition` wide; in parts of the sampling rate.
[[nodiscard]] double kaiser_taps(double attenuation, double transition);

/// A symmetric low-pass of `taps` taps, as what it is made from: a sinc that cuts off at `cutoff` parts of the sampling
/// rate, times a Kaiser window for this attenuation. Not scaled: 1 in its middle.
class LowPass {
 public:
  LowPass(double taps, double cutoff, double attenuation);
  /// Tap `i`, from 0 to taps - 1; also between two taps, and a little beyond the ends.
  [[nodiscard]] double at(double i) const;
  /// The sum of its taps, from `steps` values: more than it has waves.
  [[nodiscard]] double sum(std::size_t steps) const;
  /// What it leaves of a frequency from `from` parts of the sampling rate on, in dB below its gain at 0, at most: the
  /// response of its taps as float32 or, where they are many, of points as far apart as its waves allow.
  [[nodiscard]] double stop_band(double from) const;

 private:
  /// The largest response to the frequencies from `from` up to `to`, in parts of its gain at 0.
  [[nodiscard]] double worst_of(double from, double to) const;

  double taps_, cutoff_, beta_, window_scale_;
};

/// A low-pass of `taps` taps, symmetric, of sum 1: a sinc that cuts off at `cutoff` parts of the sampling rate, times a
/// Kaiser window for this attenuation.
[[nodiscard]] std::vector<double> design_low_pass(std::size_t taps, double cutoff, double attenuation);

/// A filter that gives `up` outputs for `down` samples: output n stands at n * down / up samples. How many stand before
/// sample number `samples` of a stream, the ceiling of samples * up / down, of any stream's length.
[[nodiscard]] constexpr std::uint64_t outputs_before(std::uint64_t samples, std::uint32_t up, std::uint32_t down) {
  const std::uint64_t rest = samples % down * up;
  return samples / down * up + (rest + down - 1) / down;
}
/// How far behind that sample the next output stands, in parts of 1 / up of a sample: less than `down`.
[[nodiscard]] constexpr std::uint64_t first_output(std::uint64_t samples, std::uint32_t up, std::uint32_t down) {
  const std::uint64_t past = samples % down * up % down;
  return past == 0 ? 0 : down - past;
}

}  // namespace gpumap
