// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <cstddef>
#include <string>

#include "gst/link/byte_text.hpp"
#include "gst/link/new_names.hpp"

namespace gpumap::gst {

// GStreamer's structures as bytes, for a peer that is not believed. GStreamer writes and reads them as text, but its
// reader calls itself for each bracket, knows no limit, and takes a text within a text apart once more for each level:
// what a text says cannot be told from what it hides. Here each value has a kind and a length.
//
// Numbers, texts, enumerations, flags, fractions, ranges, lists, arrays, dates, bytes, caps, structures, tags,
// segments, buffers and samples cross. A field of another type (a pointer, an object), or nested more than
// `deepest_value` deep, or behind 16,384 others, is left out, and the others cross. An enumeration, or flags, whose
// type or value the reading process does not know, becomes its number; a set of flags a plain GstFlagSet.

inline constexpr int deepest_value = 32;

/// Behind what is there. With it `text` has at most `most` bytes: fields for which no room is left are left out, too.
/// How many were left out, here and within.
[[nodiscard]] unsigned put_structure(LinkText& text, const GstStructure* structure, std::size_t most);
/// A new structure, or null. Fields that cannot be, or whose names have no room in `names`, are left out. `refused`, if
/// given and empty, gets the name of the field for which caps in it, or all of it, are left out.
[[nodiscard]] GstStructure* take_structure(Reader& text, NewNames& names, std::string* refused = nullptr);

/// The same. Caps are whole, or none: false where not all of them can be written.
[[nodiscard]] bool put_caps(LinkText& text, const GstCaps* caps, std::size_t most);
[[nodiscard]] GstCaps* take_caps(Reader& text, NewNames& names);

}  // namespace gpumap::gst
