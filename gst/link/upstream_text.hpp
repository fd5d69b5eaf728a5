// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <cstddef>
#include <span>

#include "gst/link/event_text.hpp"
#include "gst/link/new_names.hpp"

namespace gpumap::gst {

// What a gpumapsrc sends and asks upstream in another process, as bytes. Neither side believes the other: of what is
// read only those fields are taken over that such an event or query has, with values of their types.

/// Seeks, QoS, navigation, reconfigure and those of the application. Empty for others.
[[nodiscard]] LinkText text_of_upstream(GstEvent* event);
/// Position, duration, seeking, latency, segment, convert and those of the application. Empty for others.
[[nodiscard]] LinkText text_of(GstQuery* query);

/// What was asked for; at most one of the two is not null.
struct UpstreamAsked {
  GstEvent* event = nullptr;  ///< transfer full
  GstQuery* query = nullptr;  ///< transfer full
};
[[nodiscard]] UpstreamAsked asked_of(std::span<const std::byte> text, NewNames& names);
/// Whether it can be an event: without a look at what it says.
[[nodiscard]] bool says_event(std::span<const std::byte> text);

/// What became of an event, and of a query with what was answered: nothing, where that has no room.
[[nodiscard]] LinkText answer_of(bool handled);
[[nodiscard]] LinkText answer_of(bool handled, GstQuery* query);
[[nodiscard]] bool read_answer(std::span<const std::byte> text);
[[nodiscard]] bool read_answer(std::span<const std::byte> text, GstQuery* query, NewNames& names);

}  // namespace gpumap::gst
