// SPDX-License-Identifier: MIT
//
// What Mode S messages say. Words are those of ICAO Annex 10: DF is the downlink format, TC the type code of what an
// extended squitter (DF 17 and 18) carries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace adsb {

/// As the kernel writes it.
struct Record {
  std::int32_t first_sample;  ///< of the preamble, from the block's first; below 0 it began in an earlier block
  std::uint32_t bits;         ///< 56 or 112
  std::array<std::uint8_t, 16> message;  ///< bits / 8 of them, the rest 0
  std::uint32_t level;                   ///< mean power of the preamble's pulses; full_scale at most
  std::uint32_t remainder;               ///< of the parity
};
static_assert(sizeof(Record) == 32);
inline constexpr double full_scale = 2.0 * 255 * 255;

struct Message {
  std::int64_t first_sample;  ///< in the stream
  std::vector<std::uint8_t> bytes;
  std::uint32_t address;  ///< of the aircraft
  double level_db;        ///< under full scale
};

/// Tells messages from what only looks like one. An aircraft that said its address in a message with plain parity is
/// known from then on, and with its address the parity of the other formats can be checked. A message that was read in
/// several ways is told once.
class Aircraft {
 public:
  /// `records` of one block, in any order, whose first sample is `block` of the stream. In order of time.
  [[nodiscard]] std::vector<Message> messages(std::span<const Record> records, std::int64_t block);

 private:
  [[nodiscard]] std::optional<std::uint32_t> address_of(const Record& record);

  std::set<std::uint32_t> known_;
  std::optional<Message> last_;
};

[[nodiscard]] unsigned downlink_format(const Message& message);
[[nodiscard]] std::string hex(const Message& message);
/// "airborne position", "all-call reply".
[[nodiscard]] std::string type(const Message& message);
/// What it says: "callsign KLM1023", "altitude 38000 ft, CPR odd 93000 51372". Empty where that is not decoded.
[[nodiscard]] std::string content(const Message& message);

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
