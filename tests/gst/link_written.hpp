// SPDX-License-Identifier: MIT
// Bytes as a peer writes them beside frames, and what is read of them.
#pragma once

#include <cstdint>
#include <string>

#include "gpumap/link.hpp"
#include "gst/channel/event_text.hpp"
#include "gst/channel/new_names.hpp"
#include "gst/channel/structure_bytes.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {

/// What GStreamer reads of a text of its own.
inline Ptr<GstStructure> parsed(const std::string& text) {
  Ptr<GstStructure> structure(gst_structure_from_string(text.c_str(), nullptr));
  EXPECT_TRUE(structure) << text;
  return structure;
}

inline LinkText bytes_of(const std::string& text) {
  LinkText bytes;
  put_text(bytes, text);
  return bytes;
}
template <typename Number>
LinkText numbers(Number one) {
  LinkText bytes;
  put(bytes, one);
  return bytes;
}
/// A value that is a string, and an int.
inline LinkText string_value(const std::string& text) {
  LinkText bytes{std::byte{12}};
  put(bytes, static_cast<std::uint32_t>(text.size() + 1));
  put_text(bytes, text);
  return bytes;
}
inline LinkText int_value(gint one) {
  LinkText bytes{std::byte{4}};
  put(bytes, std::uint32_t{4});
  put(bytes, one);
  return bytes;
}

/// What stands before an event's structure, downstream and upstream.
inline LinkText event_head(GstEventType type) {
  LinkText text{std::byte{1}};
  put(text, static_cast<std::uint32_t>(type));
  put(text, guint32{0});
  text.push_back(std::byte{1});
  return text;
}
/// An event's text that says `structure`, which is GStreamer's text; empty: none.
inline LinkText written(GstEventType type, const std::string& structure) {
  LinkText text = event_head(type);
  if (structure.empty()) {
    text.back() = std::byte{0};
  } else {
    (void)put_structure(text, parsed(structure).get(), max_link_message);
  }
  return text;
}

inline Ptr<GstStructure> read_structure(const LinkText& text) {
  NewNames names;
  ByteReader reader(text);
  return Ptr<GstStructure>(take_structure(reader, names));
}
inline Ptr<GstEvent> read_event(std::span<const std::byte> text) {
  NewNames names;
  return Ptr<GstEvent>(event_of(text, names));
}

}  // namespace gpumap::gst::test
