// SPDX-License-Identifier: MIT
// Caps as text, as GStreamer writes them, and as bytes, as they cross a link (gst/link/structure_bytes.hpp), without
// GStreamer. Fixed caps of one structure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpumap/stream_bytes.hpp"

namespace gpumap::c {

/// A value of a field. Which members count says the kind.
struct CapsValue {
  StreamValue kind = StreamValue::no_string;
  std::int64_t number = 0, divisor = 1;  ///< whole numbers, fractions; of a flag set its flags and mask
  double real = 0;
  std::string text;                ///< strings; of enumerations and flags the name of their type
  std::vector<CapsValue> members;  ///< arrays
  std::vector<std::byte> bytes;    ///< buffers
};

struct CapsField {
  std::string name;
  CapsValue value;
};

struct Caps {
  std::string media_type;             ///< empty: there are none
  std::vector<std::string> features;  ///< empty: system memory
  std::vector<CapsField> fields;

  /// Null: there is no such field.
  [[nodiscard]] const CapsValue* find(std::string_view name) const noexcept;
  /// The whole number of a field that is one, else 0.
  [[nodiscard]] std::int64_t number(std::string_view name) const noexcept;
  /// The text of a field that is a string, else an empty one.
  [[nodiscard]] std::string_view text(std::string_view name) const noexcept;
};

/// Throws Error(invalid) with the place.
[[nodiscard]] Caps parse_caps(std::string_view text);
[[nodiscard]] std::string text_of(const Caps& caps);

/// The content of a value of kind StreamValue::caps.
[[nodiscard]] std::vector<std::byte> bytes_of(const Caps& caps);
/// Of bytes that another process wrote. A field of a kind that has no text is left out. False: they are not such caps.
[[nodiscard]] bool read_caps(std::span<const std::byte> bytes, Caps& caps);

}  // namespace gpumap::c
