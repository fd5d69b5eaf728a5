// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace gpumap {

/// How an oscillator turns the samples of a frame: see radio_keep_job. Start and step 0: not at all.
struct OscillatorTurn {
  std::uint64_t start = 0;
  std::uint64_t position = 0;
  std::uint64_t period = 1;
  std::uint64_t step = 0;
};

/// exp(-2 pi i frequency t), sampled. From one frequency to the next its phase is a function of the sample's number
/// alone, and exact: frequency and rate are whole numbers of nanohertz-like units (2^-30 Hz), so that it repeats after
/// a whole number of samples, the period. Within one the phase counts in 2^-64 turns, and is wrong by at most period *
/// 2^-65.
class Oscillator {
 public:
  Oscillator() = default;
  /// `start`: its phase at the stream's sample `first`, in 2^-64 turns.
  Oscillator(double frequency, std::uint32_t rate, std::uint64_t first = 0, std::uint64_t start = 0);
  /// From the stream's sample `number` on, which is not before `first`.
  [[nodiscard]] OscillatorTurn at(std::uint64_t number) const noexcept {
    return {.start = start_, .position = (number - first_) % period_, .period = period_, .step = step_};
  }
  /// In 2^-64 turns.
  [[nodiscard]] std::uint64_t phase(std::uint64_t number) const noexcept {
    return start_ + (number - first_) % period_ * step_;
  }

 private:
  std::uint64_t first_ = 0;
  std::uint64_t start_ = 0;
  std::uint64_t period_ = 1;
  std::uint64_t step_ = 0;
};

}  // namespace gpumap
