// SPDX-License-Identifier: MIT
// The messages beside the frames of a link, as gpumapsink writes and gpumapsrc reads them (gst/link/event_text.hpp), as
// far as a program without GStreamer has to do with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "c/caps_text.hpp"
#include "gpumap/gpumap.h"
#include "gpumap/message_bytes.hpp"

namespace gpumap::c {

/// What a client that connects later receives first, in this order; gst/link does the same.
enum class Kept : std::uint32_t { time = 1, stream_start = 2, caps = 3, segment = 4, layout = 7, end = 8 };
[[nodiscard]] constexpr std::uint32_t key_of(Kept kept) noexcept {
  constexpr unsigned bits_of_number = 24;
  return static_cast<std::uint32_t>(kept) << bits_of_number;
}

/// `base_ns`: the moment of CLOCK_MONOTONIC at which pts 0 is due.
[[nodiscard]] Bytes time_message(std::int64_t base_ns);
[[nodiscard]] Bytes stream_start_message(std::string_view id);
[[nodiscard]] Bytes caps_message(const Caps& caps);
/// Of times, from 0 on.
[[nodiscard]] Bytes segment_message();
/// Null: the frames lie as their caps say.
[[nodiscard]] Bytes layout_message(const gpumap_layout* layout);
[[nodiscard]] Bytes end_message();

/// What a message of another process says. Not to be trusted.
struct StreamNews {
  enum class Kind { other, caps, layout, end } kind = Kind::other;
  Caps caps;
  std::optional<gpumap_layout> layout;
};
[[nodiscard]] StreamNews read_message(std::span<const std::byte> message);

}  // namespace gpumap::c
