// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <cstddef>
#include <span>

#include "gst/channel/event_text.hpp"
#include "gst/channel/new_names.hpp"

namespace gpumap::gst {

// Events and queries that a gpumapsrc sends upstream in another process, as bytes. Neither side trusts the other: only
// the fields that such an event or query has are taken over, with values of their types.

/// Seeks, QoS, navigation, reconfigure and an application's events. Empty for others, and for those that lack the
/// structure which elements ask for.
[[nodiscard]] LinkText text_of_upstream(GstEvent* event);
/// Position, duration, seeking, latency, segment, convert and an application's queries. Empty for others.
[[nodiscard]] LinkText text_of(GstQuery* query);

/// An event or a query; at most one of the two is not null.
struct UpstreamAsked {
  GstEvent* event = nullptr;  ///< transfer full
  GstQuery* query = nullptr;  ///< transfer full
};
[[nodiscard]] UpstreamAsked asked_of(std::span<const std::byte> text, NewNames& names);
/// Whether the text is a QoS event, without a check of its content.
[[nodiscard]] bool says_qos(std::span<const std::byte> text);
/// Whether the text is an event, without a check of its content.
[[nodiscard]] bool says_event(std::span<const std::byte> text);

/// Whether an event was handled; and a query, with its answer. An answer that has no room counts as not handled.
[[nodiscard]] LinkText answer_of(bool handled);
[[nodiscard]] LinkText answer_of(bool handled, GstQuery* query);
[[nodiscard]] bool read_answer(std::span<const std::byte> text);
[[nodiscard]] bool read_answer(std::span<const std::byte> text, GstQuery* query, NewNames& names);

}  // namespace gpumap::gst
