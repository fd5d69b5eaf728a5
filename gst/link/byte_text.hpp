// SPDX-License-Identifier: MIT
#pragma once

#include <glib.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include "gst/link/event_text.hpp"

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

}  // namespace gpumap::gst
