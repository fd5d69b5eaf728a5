// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gpumap/export.hpp"

namespace gpumap {

/// How many bytes the character takes that `text`, which is not empty, begins with. 0: none that may go to a terminal
/// as it is: no UTF-8, or a control character, of which U+0080 to U+009F begin escape sequences, too.
[[nodiscard]] constexpr std::size_t printable_bytes(std::string_view text) noexcept {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (length > text.size()) return 0;
  // What follows some first bytes has other bounds: shorter ways to write the same, surrogates, more than U+10FFFF. And
  // behind 0xc2, control characters.
  const unsigned char least = first == 0xc2 || first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < least || byte(1) > most) return 0;
  for (std::size_t at = 2; at < length; ++at) {
    if (byte(at) < 0x80 || byte(at) > 0xbf) return 0;
  }
  return length;
}

/// Whether all of it may go to a terminal.
[[nodiscard]] constexpr bool is_printable(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t bytes = printable_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

/// What foreign bytes become in a message, an error or a terminal: what cannot be printed as `\xNN`, but for characters
/// in `kept`; and of what is longer than `most` bytes the beginning, with "..." behind it.
[[nodiscard]] GPUMAP_API std::string printable(std::string_view text, std::string_view kept = {},
                                               std::size_t most = std::string_view::npos);

}  // namespace gpumap
