// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gpumap/message_bytes.hpp"
#include "gst/channel/event_text.hpp"
#include "gst/channel/new_names.hpp"

namespace gpumap::gst {

/// Appends and frees `one`.
inline void put_and_free(LinkText& text, gchar* one) {
  put_text(text, one);
  g_free(one);
}

// GStreamer's structures as bytes, between peers that do not trust each other. GStreamer writes and reads them as text,
// but its reader recurses for each bracket without a limit, and parses a text within a text once more for each level.
// So a text cannot be checked before it is parsed. Here each value has a kind and a length.
//
// Numbers, texts, enumerations, flags, fractions, ranges, lists, arrays, dates, bytes, caps, structures, tags,
// segments, buffers and samples cross, and as structures (as_structure.hpp) tables of contents, streams, their
// collections, and messages of elements. A field of another type (a pointer, an object), one nested more than
// `deepest_value` deep, and those after the first 16,384 are left out; the others cross. An enumeration or flags whose
// type or value the reading process does not know become their number; a set of flags becomes a plain GstFlagSet.

inline constexpr int deepest_value = 32;
/// A limit, because the time for fields grows with the square of their number.
inline constexpr std::uint32_t most_members = 4096;
/// In a message: an empty value takes a few bytes there, and hundreds in memory.
inline constexpr std::uint32_t most_values = 16'384;

/// Appends `structure`, so that `text` has at most `most` bytes: fields for which no room is left are left out, too.
/// Returns how many fields were left out, here and in nested structures.
[[nodiscard]] unsigned put_structure(LinkText& text, const GstStructure* structure, std::size_t most);
/// A new structure, or null. Invalid fields, and fields whose names have no room in `names`, are left out. `refused`,
/// if given and empty, gets the name of the field because of which caps, or the whole structure, are left out.
[[nodiscard]] GstStructure* take_structure(ByteReader& text, NewNames& names, std::string* refused = nullptr);

/// The same for caps, which cross whole or not at all. False: not all of them can be written.
[[nodiscard]] bool put_caps(LinkText& text, const GstCaps* caps, std::size_t most);
[[nodiscard]] GstCaps* take_caps(ByteReader& text, NewNames& names);

}  // namespace gpumap::gst
