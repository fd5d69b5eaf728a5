// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "gst/link/event_text.hpp"
#include "gst/link/new_names.hpp"

namespace gpumap::gst {

template <typename One>
void put(LinkText& text, const One& one) {
  static_assert(std::is_trivially_copyable_v<One>);
  const auto* begin = reinterpret_cast<const std::byte*>(&one);
  text.insert(text.end(), begin, begin + sizeof one);
}
inline void put(LinkText& text, const char* one) {
  const auto* begin = reinterpret_cast<const std::byte*>(one != nullptr ? one : "");
  text.insert(text.end(), begin, begin + std::strlen(reinterpret_cast<const char*>(begin)) + 1);
}
/// Takes it.
inline void put_and_free(LinkText& text, gchar* one) {
  put(text, static_cast<const char*>(one));
  g_free(one);
}

/// Reads from the front. Once something is missing, all that follows is, too.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> text) : left_(text) {}
  template <typename One>
  One take() {
    One one{};
    const auto bytes = take_bytes(sizeof one);
    if (whole_) std::memcpy(&one, bytes.data(), sizeof one);
    return one;
  }
  std::span<const std::byte> take_bytes(std::size_t count) {
    whole_ = whole_ && count <= left_.size();
    if (!whole_) return {};
    const auto bytes = left_.first(count);
    left_ = left_.subspan(count);
    return bytes;
  }
  const char* take_text() {
    const auto end = std::find(left_.begin(), left_.end(), std::byte{0});
    if (end == left_.end()) whole_ = false;
    if (!whole_) return "";
    return reinterpret_cast<const char*>(take_bytes(static_cast<std::size_t>(end - left_.begin()) + 1).data());
  }
  /// All that is left.
  std::span<const std::byte> rest() { return take_bytes(left_.size()); }
  [[nodiscard]] bool empty() const { return left_.empty(); }
  /// All was there, and nothing is left.
  [[nodiscard]] bool is_done() const { return whole_ && left_.empty(); }
  [[nodiscard]] bool is_whole() const { return whole_; }

 private:
  std::span<const std::byte> left_;
  bool whole_ = true;
};

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
