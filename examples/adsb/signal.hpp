// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

namespace adsb {

/// What a receiver would have heard of a few aircraft: unsigned 8-bit I and Q at 2 MS/s.
struct Signal {
  struct Sent {
    std::int64_t first_sample;
    std::vector<std::uint8_t> bytes;
  };
  std::vector<std::uint8_t> iq;
  std::vector<Sent> sent;
};

/// `messages` (DF 17: callsigns, positions and velocities; DF 11; DF 4) with valid parity, in noise. A message begins
/// `earliest` to `latest` of a sample, below 1, after its first one. The same on every machine.
[[nodiscard]] Signal make_signal(int messages, double earliest = 0, double latest = 0.3);

}  // namespace adsb
