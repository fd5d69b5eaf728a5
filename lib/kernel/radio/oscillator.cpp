// SPDX-License-Identifier: MIT
#include "kernel/radio/oscillator.hpp"

#include <cmath>
#include <numeric>

namespace gpumap {

Oscillator::Oscillator(double frequency, std::uint32_t rate, std::uint64_t first, std::uint64_t start)
    : first_(first), start_(start) {
  constexpr double units = 1073741824.0;  // 2^30 in a hertz: rates of 32 bits still fit
  const std::uint64_t turn = std::uint64_t{rate} << 30;
  const std::int64_t offset = std::llround(frequency * units) % static_cast<std::int64_t>(turn);
  // It takes the frequency away, hence turns backwards.
  const std::uint64_t back =
      offset > 0 ? turn - static_cast<std::uint64_t>(offset) : static_cast<std::uint64_t>(-offset);
  const std::uint64_t common = std::gcd(back, turn);
  period_ = turn / common;
  // back / turn in 2^-64 turns, rounded: long division, as the dividend has 128 bits.
  std::uint64_t rest = back / common;
  std::uint64_t step = 0;
  for (int bit = 0; bit < 64; ++bit) {
    rest *= 2;  // below 2^63: a turn has 62 bits
    step = step * 2 + (rest >= period_ ? 1 : 0);
    if (rest >= period_) rest -= period_;
  }
  step_ = step + (2 * rest >= period_ ? 1 : 0);
}

}  // namespace gpumap
