// SPDX-License-Identifier: MIT
#include "mode_s.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>
#include <utility>

namespace adsb {

namespace {

/// `count` bits from the bit `first` on; bit 1 is the message's first, as in the standard.
std::uint32_t field(const Message& message, unsigned first, unsigned count) {
  std::uint32_t value = 0;
  for (unsigned bit = first - 1; bit < first - 1 + count; ++bit) {
    value = value << 1 | (message.bytes[bit / 8] >> (7 - bit % 8) & 1);
  }
  return value;
}

bool is_extended_squitter(const Message& message) {
  return downlink_format(message) == 17 || downlink_format(message) == 18;
}

unsigned type_code(const Message& message) {
  return field(message, 33, 5);
}

std::string callsign(const Message& message) {
  constexpr std::string_view characters = "?ABCDEFGHIJKLMNOPQRSTUVWXYZ????? ???????????????0123456789??????";
  std::string made;
  for (unsigned i = 0; i < 8; ++i) made += characters[field(message, 41 + 6 * i, 6)];
  made.erase(made.find_last_not_of(' ') + 1);
  return made;
}

/// Of a field of 11 bits, its Q bit taken out. Those without Q (Gillham code, above 50,175 ft) are not decoded.
std::string altitude(std::uint32_t of_25_feet) {
  return fmt::format("altitude {} ft", static_cast<int>(of_25_feet) * 25 - 1000);
}

/// The 12 bits of an airborne position.
std::string altitude_12(const Message& message) {
  if (field(message, 48, 1) == 0) return "altitude ?";
  return altitude(field(message, 41, 7) << 4 | field(message, 49, 4));
}

/// The 13 bits of DF 0, 4, 16 and 20.
std::string altitude_13(const Message& message) {
  if (field(message, 26, 1) != 0 || field(message, 28, 1) == 0) return "altitude ?";
  return altitude(field(message, 20, 6) << 5 | field(message, 27, 1) << 4 | field(message, 29, 4));
}

/// Half of a position: it takes an even and an odd one to know where.
std::string position(const Message& message) {
  return fmt::format("CPR {} {} {}", field(message, 54, 1) == 1 ? "odd" : "even", field(message, 55, 17),
                     field(message, 72, 17));
}

std::string velocity(const Message& message) {
  const std::uint32_t subtype = field(message, 38, 3);
  if (subtype != 1 || field(message, 47, 10) == 0 || field(message, 58, 10) == 0) return {};
  const double east = (field(message, 46, 1) == 1 ? -1.0 : 1.0) * (field(message, 47, 10) - 1.0);
  const double north = (field(message, 57, 1) == 1 ? -1.0 : 1.0) * (field(message, 58, 10) - 1.0);
  const double degrees = std::atan2(east, north) * 180 / std::numbers::pi;
  return fmt::format("{:.0f} kt, track {:.0f}", std::hypot(east, north), std::fmod(degrees + 360, 360));
}

}  // namespace

std::vector<Message> Aircraft::messages(std::span<const Record> records, std::int64_t block) {
  std::vector<Record> sorted(records.begin(), records.end());
  std::sort(sorted.begin(), sorted.end(), [](const Record& a, const Record& b) {
    return std::tie(a.first_sample, a.remainder, a.message) < std::tie(b.first_sample, b.remainder, b.message);
  });
  std::vector<Message> made;
  for (const Record& record : sorted) {
    const auto address = address_of(record);
    if (!address) continue;
    Message message = {.first_sample = block + record.first_sample,
                       .bytes = {record.message.begin(), record.message.begin() + record.bits / 8},
                       .address = *address,
                       .level_db = 10 * std::log10(record.level / full_scale)};
    // Of several readings the one with the smallest remainder counts: an all-call reply may end in wrong bits and pass.
    // Pulses between two samples may be late for the one and early for the other.
    if (last_ && message.first_sample == last_->first_sample) continue;
    if (last_ && message.first_sample == last_->first_sample + 1 && message.bytes == last_->bytes) continue;
    last_ = message;
    made.push_back(std::move(message));
  }
  return made;
}

std::optional<std::uint32_t> Aircraft::address_of(const Record& record) {
  const unsigned format = record.message[0] >> 3;
  const std::uint32_t plain = record.message[1] << 16 | record.message[2] << 8 | record.message[3];
  if (format == 11 || format == 17 || format == 18) {
    if (record.remainder == 0) known_.insert(plain);
    // An all-call reply has the interrogator's code added, small enough that noise passes for it now and then.
    return known_.contains(plain) ? std::optional(plain) : std::nullopt;
  }
  return known_.contains(record.remainder) ? std::optional(record.remainder) : std::nullopt;
}

unsigned downlink_format(const Message& message) {
  return message.bytes[0] >> 3;
}

std::string hex(const Message& message) {
  std::string made;
  for (const std::uint8_t byte : message.bytes) made += fmt::format("{:02x}", byte);
  return made;
}

std::string type(const Message& message) {
  switch (downlink_format(message)) {
    case 0:
      return "air-air surveillance";
    case 4:
      return "altitude reply";
    case 5:
      return "identity reply";
    case 11:
      return "all-call reply";
    case 16:
      return "long air-air surveillance";
    case 20:
      return "Comm-B, altitude";
    case 21:
      return "Comm-B, identity";
    default:
      break;
  }
  const unsigned code = type_code(message);
  if (code >= 1 && code <= 4) return "identification";
  if (code >= 5 && code <= 8) return "surface position";
  if (code >= 9 && code <= 18) return "airborne position";
  if (code == 19) return "velocity";
  if (code >= 20 && code <= 22) return "airborne position, GNSS";
  return fmt::format("extended squitter, TC {}", code);
}

std::string content(const Message& message) {
  if (!is_extended_squitter(message)) {
    const unsigned format = downlink_format(message);
    const bool tells_altitude = format == 0 || format == 4 || format == 16 || format == 20;
    return tells_altitude ? altitude_13(message) : std::string();
  }
  const unsigned code = type_code(message);
  if (code >= 1 && code <= 4) return "callsign " + callsign(message);
  if (code >= 5 && code <= 8) return position(message);
  if (code >= 9 && code <= 18) return altitude_12(message) + ", " + position(message);
  if (code == 19) return velocity(message);
  return {};
}

}  // namespace adsb
