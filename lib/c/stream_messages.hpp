// SPDX-License-Identifier: MIT
// The messages beside the frames of a link, as gpumapsink writes and gpumapsrc reads them (gst/channel/event_text.hpp),
// as far as a program without GStreamer has to do with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/gpumap.h"
#include "gpumap/message_bytes.hpp"

// Caps as text, as GStreamer writes them, and as bytes, as they cross a link (gst/channel/structure_bytes.hpp), without
// GStreamer. Fixed caps of one structure.

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

/// The usual layout of frames with such caps; empty where gpumap does not know them.
[[nodiscard]] std::optional<gpumap_layout> layout_of(const Caps& caps);
/// Of the output of a kernel that declares these caps (its line `output`), of an input like `in`: as GStreamer's side
/// makes caps of them, what they leave open is the input's. Empty: the input does not say that, either. Throws
/// Error(invalid) for what has no value, cannot be read or is none that gpumap knows.
[[nodiscard]] std::optional<gpumap_layout> layout_of_output(std::string_view declared, const gpumap_layout& in,
                                                            Variables params);

/// GStreamer's number for a video format (GstVideoFormat), 0: none; and the other way round, GPUMAP_FORMAT_VIDEO_OTHER
/// where gpumap does not know it.
[[nodiscard]] std::uint32_t gst_number_of(std::uint32_t format) noexcept;
[[nodiscard]] std::uint32_t format_of_gst(std::uint32_t number) noexcept;

/// As gpumap_layout_of_picture(), and of frames that are interlaced so; empty: it is no picture.
[[nodiscard]] std::optional<gpumap_layout> usual_layout(std::uint32_t format, std::int64_t width, std::int64_t height,
                                                        std::uint32_t interlace = 0);
[[nodiscard]] bool is_picture(std::uint32_t format) noexcept;
[[nodiscard]] bool is_yuv(std::uint32_t format) noexcept;
[[nodiscard]] bool is_gray(std::uint32_t format) noexcept;  ///< brightness alone
/// Of a frame with these GstBufferFlags, whether each field has rows of chroma of its own, in turns; and whether in
/// `bytes` there is room for these.
[[nodiscard]] bool is_by_field(const gpumap_layout& layout, std::uint32_t flags) noexcept;
[[nodiscard]] bool has_room_by_field(const gpumap_layout& layout, std::uint64_t bytes) noexcept;
/// Whether caps of several structures with lists and ranges, as a kernel's `input` line has them, agree with the
/// layout: with its media type, format, size, channels and rate. Of what else they say a layout knows nothing, nor of
/// other media types, which are taken.
[[nodiscard]] bool takes(std::string_view caps, const gpumap_layout& layout);
/// Throws Error(invalid) for a layout that leaves a frame of `bytes`, or has no planes.
void check_layout(const gpumap_layout& layout, std::uint64_t bytes);

/// What a client that connects later receives first, in this order; gst/channel does the same.
enum class Kept : std::uint32_t { time = 1, stream_start = 2, caps = 3, segment = 4, layout = 7, end = 8 };
[[nodiscard]] constexpr std::uint32_t key_of(Kept kept) noexcept {
  constexpr unsigned bits_of_number = 24;
  return static_cast<std::uint32_t>(kept) << bits_of_number;
}

/// `base_ns`: the moment of CLOCK_MONOTONIC at which pts 0 is due.
[[nodiscard]] Bytes time_message(std::int64_t base_ns);
[[nodiscard]] Bytes stream_start_message(std::string_view id);
[[nodiscard]] Bytes caps_message(const Caps& caps);
/// Of times, from 0 on.
[[nodiscard]] Bytes segment_message();
/// Null: the frames lie as their caps say.
[[nodiscard]] Bytes layout_message(const gpumap_layout* layout);
[[nodiscard]] Bytes end_message();

/// What a message of another process says. Not to be trusted.
struct StreamNews {
  enum class Kind { other, caps, layout, end } kind = Kind::other;
  Caps caps;
  std::optional<gpumap_layout> layout;
};
[[nodiscard]] StreamNews read_message(std::span<const std::byte> message);

}  // namespace gpumap::c
