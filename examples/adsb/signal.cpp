// SPDX-License-Identifier: MIT
#include "mode_s.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <string_view>

namespace adsb {

namespace {

/// Numbers of std::mt19937 are the same everywhere; those of the distributions are not.
class Random {
 public:
  /// 0 to 1.
  double uniform() { return static_cast<double>(generator_()) / 4294967296.0; }
  std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(uniform() * end); }
  /// Mean 0, deviation 1, close enough to normal.
  double noise() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }

 private:
  std::mt19937 generator_{1090};
};

class Bits {
 public:
  Bits& add(std::uint64_t value, int count) {
    for (int bit = count - 1; bit >= 0; --bit) bits_.push_back((value >> bit & 1) != 0);
    return *this;
  }
  /// With parity, which is this plus `overlay`.
  [[nodiscard]] std::vector<std::uint8_t> message(std::uint32_t overlay = 0) const {
    std::uint32_t parity = 0;
    for (const bool bit : bits_) {
      const bool top = (parity >> 23 & 1) != 0;
      parity = (parity << 1 & 0xFFFFFF) ^ (top != bit ? 0xFFF409 : 0);
    }
    Bits whole = *this;
    whole.add(parity ^ overlay, 24);
    std::vector<std::uint8_t> bytes(whole.bits_.size() / 8);
    for (std::size_t i = 0; i < whole.bits_.size(); ++i) {
      bytes[i / 8] = static_cast<std::uint8_t>(bytes[i / 8] << 1 | (whole.bits_[i] ? 1 : 0));
    }
    return bytes;
  }

 private:
  std::vector<bool> bits_;
};

struct Plane {
  std::uint32_t address;
  std::string_view callsign;  // 8 characters
};
constexpr Plane planes[] = {{0x4840D6, "KLM1023 "}, {0x3C6586, "DLH4YA  "}, {0x40621D, "BAW27H  "}};

std::vector<std::uint8_t> make_message(const Plane& plane, int kind, Random& random) {
  const auto squitter = [&] { return Bits().add(17, 5).add(5, 3).add(plane.address, 24); };
  const std::uint32_t altitude = 1000 + random.below(500);  // of 25 feet
  switch (kind) {
    case 0:
      return Bits().add(11, 5).add(5, 3).add(plane.address, 24).message();
    case 1: {
      Bits bits = squitter().add(4, 5).add(0, 3);
      for (const char c : plane.callsign) bits.add(c & 0x3F, 6);  // their code is the end of ASCII's
      return bits.message();
    }
    case 2:
      return squitter()
          .add(11, 5)
          .add(0, 3)
          .add(altitude >> 4, 7)
          .add(1, 1)
          .add(altitude & 15, 4)
          .add(0, 1)
          .add(random.below(2), 1)
          .add(random.below(1 << 17), 17)
          .add(random.below(1 << 17), 17)
          .message();
    case 3:
      return squitter()
          .add(19, 5)
          .add(1, 3)
          .add(0, 5)
          .add(random.below(2), 1)
          .add(1 + random.below(500), 10)
          .add(random.below(2), 1)
          .add(1 + random.below(500), 10)
          .add(0, 21)
          .message();
    default:
      return Bits()
          .add(4, 5)
          .add(0, 14)
          .add(altitude >> 5, 6)
          .add(0, 1)
          .add(altitude >> 4 & 1, 1)
          .add(1, 1)
          .add(altitude & 15, 4)
          .message(plane.address);
  }
}

/// The pulses of a message, one number for each half microsecond, and one more: the last may be late.
std::vector<double> pulses_of(const std::vector<std::uint8_t>& bytes) {
  std::vector<double> pulses(16 + 16 * bytes.size() + 1, 0.0);
  for (const std::size_t at : {0, 2, 7, 9}) pulses[at] = 1;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const bool one = (bytes[bit / 8] >> (7 - bit % 8) & 1) != 0;
    pulses[16 + 2 * bit + (one ? 0 : 1)] = 1;
  }
  return pulses;
}

}  // namespace

Signal make_signal(int messages, double earliest, double latest) {
  Signal made;
  Random random;
  std::vector<double> in_phase, quadrature;
  const auto silence = [&](std::uint32_t samples) {
    in_phase.resize(in_phase.size() + samples, 0.0);
    quadrature.resize(in_phase.size(), 0.0);
  };
  for (int i = 0; i < messages; ++i) {
    silence(20 + random.below(1500));
    // Each aircraft says its address first: what follows can be checked with it.
    const int kind = i < static_cast<int>(std::size(planes)) ? 0 : static_cast<int>(random.below(5));
    const auto bytes = make_message(planes[static_cast<std::size_t>(i) % std::size(planes)], kind, random);
    const auto first = static_cast<std::int64_t>(in_phase.size());
    made.sent.push_back({.first_sample = first, .bytes = bytes});
    const double amplitude = 25 + 90 * random.uniform();
    const double late = earliest + (latest - earliest) * random.uniform();
    // The receiver is off by a few kilohertz.
    double phase = 2 * std::numbers::pi * random.uniform();
    const double turn = 0.02 * (random.uniform() - 0.5);
    double before = 0;
    for (const double pulse : pulses_of(bytes)) {
      const double level = amplitude * ((1 - late) * pulse + late * before);
      in_phase.push_back(level * std::cos(phase));
      quadrature.push_back(level * std::sin(phase));
      phase += turn;
      before = pulse;
    }
  }
  silence(20);
  const auto byte = [&](double value) {
    return static_cast<std::uint8_t>(std::clamp(std::lround(127.5 + value + 2.5 * random.noise()), 0L, 255L));
  };
  for (std::size_t i = 0; i < in_phase.size(); ++i) {
    made.iq.push_back(byte(in_phase[i]));
    made.iq.push_back(byte(quadrature[i]));
  }
  return made;
}

}  // namespace adsb
