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

/// Appends the bytes of `one`; a text with the zero at its end.
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
/// Appends and frees `one`.
inline void put_and_free(LinkText& text, gchar* one) {
  put(text, static_cast<const char*>(one));
  g_free(one);
}

/// Reads from the front. Once a read finds too few bytes, all that follow fail, too: they give zeros and empty texts.
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
  /// Takes all bytes that are left.
  std::span<const std::byte> rest() { return take_bytes(left_.size()); }
  [[nodiscard]] bool empty() const { return left_.empty(); }
  /// Every read succeeded, and no byte is left.
  [[nodiscard]] bool is_done() const { return whole_ && left_.empty(); }
  [[nodiscard]] bool is_whole() const { return whole_; }

 private:
  std::span<const std::byte> left_;
  bool whole_ = true;
};

// GStreamer's structures as bytes, between peers that do not trust each other. GStreamer writes and reads them as text,
// but its reader recurses for each bracket without a limit, and parses a text within a text once more for each level.
// So a text cannot be checked before it is parsed. Here each value has a kind and a length.
//
// Numbers, texts, enumerations, flags, fractions, ranges, lists, arrays, dates, bytes, caps, structures, tags,
// segments, buffers and samples cross. A field of another type (a pointer, an object), one nested more than
// `deepest_value` deep, and those after the first 16,384 are left out; the others cross. An enumeration or flags whose
// type or value the reading process does not know become their number; a set of flags becomes a plain GstFlagSet.

inline constexpr int deepest_value = 32;

/// Appends `structure`, so that `text` has at most `most` bytes: fields for which no room is left are left out, too.
/// Returns how many fields were left out, here and in nested structures.
[[nodiscard]] unsigned put_structure(LinkText& text, const GstStructure* structure, std::size_t most);
/// A new structure, or null. Invalid fields, and fields whose names have no room in `names`, are left out. `refused`,
/// if given and empty, gets the name of the field because of which caps, or the whole structure, are left out.
[[nodiscard]] GstStructure* take_structure(Reader& text, NewNames& names, std::string* refused = nullptr);

/// The same for caps, which cross whole or not at all. False: not all of them can be written.
[[nodiscard]] bool put_caps(LinkText& text, const GstCaps* caps, std::size_t most);
[[nodiscard]] GstCaps* take_caps(Reader& text, NewNames& names);

}  // namespace gpumap::gst
