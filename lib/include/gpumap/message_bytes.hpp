// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

// The bytes of messages between processes: written at the end, read from the front.

namespace gpumap {

using Bytes = std::vector<std::byte>;

template <typename One>
void put(Bytes& bytes, const One& one) {
  static_assert(std::is_trivially_copyable_v<One> && !std::is_pointer_v<One>);
  const auto* begin = reinterpret_cast<const std::byte*>(&one);
  bytes.insert(bytes.end(), begin, begin + sizeof one);
}
/// With a zero at its end, so that `text` may hold none.
inline void put_text(Bytes& bytes, std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  bytes.insert(bytes.end(), begin, begin + text.size());
  bytes.push_back(std::byte{0});
}
/// Null as an empty one.
inline void put_text(Bytes& bytes, const char* text) {
  put_text(bytes, std::string_view(text != nullptr ? text : ""));
}
/// A length, and what `write` writes behind it.
template <typename Write>
void put_sized(Bytes& bytes, const Write& write) {
  const std::size_t at = bytes.size();
  put(bytes, std::uint32_t{0});
  write();
  const auto length = static_cast<std::uint32_t>(bytes.size() - at - sizeof(std::uint32_t));
  std::memcpy(&bytes[at], &length, sizeof length);
}

/// Reads from the front. Once a read finds too few bytes all that follow fail, too: they give zeros and empty texts.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}
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
  /// Points to the message's own bytes.
  const char* take_text() {
    const auto end = std::find(left_.begin(), left_.end(), std::byte{0});
    if (end == left_.end()) whole_ = false;
    if (!whole_) return "";
    return reinterpret_cast<const char*>(take_bytes(static_cast<std::size_t>(end - left_.begin()) + 1).data());
  }
  ByteReader take_sized() {
    const auto length = take<std::uint32_t>();
    return ByteReader(take_bytes(length));
  }
  /// Takes all bytes that are left.
  std::span<const std::byte> take_rest() { return take_bytes(left_.size()); }
  [[nodiscard]] bool empty() const { return left_.empty(); }
  /// Every read succeeded, and no byte is left.
  [[nodiscard]] bool is_done() const { return whole_ && left_.empty(); }
  [[nodiscard]] bool is_whole() const { return whole_; }

 private:
  std::span<const std::byte> left_;
  bool whole_ = true;
};

// The kinds of what crosses a link beside the frames: which numbers say what. They are part of what two processes of
// different versions understand: never renumber.

/// The first byte of a message.
enum class StreamMessage : std::uint8_t { event = 1, layout = 2, no_layout = 3, time = 4 };

/// The kind of a value of a structure or of caps. Its length and its bytes follow.
enum class StreamValue : std::uint8_t {
  boolean = 1,
  signed_char,
  unsigned_char,
  integer,
  unsigned_integer,
  long_integer,
  unsigned_long,
  int64,
  uint64,
  real,
  double_real,
  string,
  no_string,
  enumeration,
  flags,
  flag_set,
  fraction,
  int_range,
  int64_range,
  double_range,
  fraction_range,
  bitmask,
  list,
  array,
  date,
  date_time,
  bytes,
  type,
  caps,
  features,
  structure,
  tags,
  segment,
  buffer,
  sample,
  toc,
  stream,
  stream_collection,
  message,
};

}  // namespace gpumap
