// SPDX-License-Identifier: MIT
#include "c/stream_messages.hpp"

#include <array>
#include <limits>

#include "c/c_layout.hpp"
#include "gpumap/stream_bytes.hpp"

namespace gpumap::c {
namespace {

/// GstEventType: a number, and how such events travel (downstream, serialised, sticky).
constexpr std::uint32_t sticky = 0xe;
constexpr std::uint32_t event_type(std::uint32_t number) noexcept {
  constexpr unsigned bits_of_flags = 8;
  return number << bits_of_flags | sticky;
}
constexpr std::uint32_t stream_start_event = event_type(40), caps_event = event_type(50),
                        segment_event = event_type(70), end_event = event_type(110);

constexpr std::size_t max_planes = 4;

/// VideoLayout of gst/link/event_text.hpp.
struct LinkLayout {
  std::uint32_t format = 0;  ///< GstVideoFormat
  std::uint32_t width = 0, height = 0, planes = 0;
  std::array<std::uint64_t, max_planes> offset{};
  std::array<std::int32_t, max_planes> stride{};
};

Bytes event(std::uint32_t type, bool has_structure) {
  Bytes bytes;
  put(bytes, StreamMessage::event);
  put(bytes, type);
  put(bytes, std::uint32_t{0});  // no sequence number
  put(bytes, static_cast<std::uint8_t>(has_structure ? 1 : 0));
  return bytes;
}

/// Name and number of fields of a structure.
void begin_structure(Bytes& bytes, std::string_view name, std::uint32_t fields) {
  put_text(bytes, name);
  put(bytes, fields);
}

template <typename Write>
void put_field(Bytes& bytes, std::string_view name, StreamValue kind, const Write& write) {
  put_text(bytes, name);
  put(bytes, kind);
  put_sized(bytes, write);
}

}  // namespace

Bytes time_message(std::int64_t base_ns) {
  Bytes bytes;
  put(bytes, StreamMessage::time);
  put(bytes, std::uint8_t{1});  // it plays
  put(bytes, base_ns);
  put(bytes, std::int64_t{0});  // the running time at which it stopped
  put(bytes, std::int64_t{0});  // its clock is CLOCK_MONOTONIC
  return bytes;
}

Bytes stream_start_message(std::string_view id) {
  Bytes bytes = event(stream_start_event, true);
  begin_structure(bytes, "GstEventStreamStart", 2);
  put_field(bytes, "stream-id", StreamValue::string, [&] { put_text(bytes, id); });
  put_field(bytes, "flags", StreamValue::flags, [&] {
    put_text(bytes, "GstStreamFlags");
    put(bytes, std::uint32_t{0});
  });
  return bytes;
}

Bytes caps_message(const Caps& caps) {
  Bytes bytes = event(caps_event, true);
  begin_structure(bytes, "GstEventCaps", 1);
  put_field(bytes, "caps", StreamValue::caps, [&] {
    const Bytes content = bytes_of(caps);
    bytes.insert(bytes.end(), content.begin(), content.end());
  });
  return bytes;
}

Bytes segment_message() {
  constexpr std::int32_t time_format = 3;  // GST_FORMAT_TIME
  constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  Bytes bytes = event(segment_event, true);
  begin_structure(bytes, "GstEventSegment", 1);
  put_field(bytes, "segment", StreamValue::segment, [&] {
    put(bytes, std::uint32_t{0});  // flags
    put(bytes, time_format);
    put(bytes, 1.0);  // rate
    put(bytes, 1.0);  // applied rate
    // base, offset, start, stop, time, position, duration
    for (const std::uint64_t one :
         {std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{0}, none, std::uint64_t{0}, std::uint64_t{0}, none}) {
      put(bytes, one);
    }
  });
  return bytes;
}

Bytes layout_message(const gpumap_layout* layout) {
  Bytes bytes;
  const std::uint32_t format = layout != nullptr ? gst_number_of(layout->format) : 0;
  // What is no video has no such message: its caps say all.
  if (format == 0) {
    put(bytes, StreamMessage::no_layout);
    return bytes;
  }
  put(bytes, StreamMessage::layout);
  LinkLayout crossing;
  crossing.format = format;
  crossing.width = layout->width;
  crossing.height = layout->height;
  crossing.planes = layout->planes;
  for (std::size_t plane = 0; plane < max_planes; ++plane) {
    crossing.offset[plane] = layout->offset[plane];
    crossing.stride[plane] = layout->stride[plane];
  }
  put(bytes, crossing);
  return bytes;
}

Bytes end_message() {
  return event(end_event, false);
}

namespace {

void read_event(ByteReader& from, StreamNews& news) {
  const auto type = from.take<std::uint32_t>();
  static_cast<void>(from.take<std::uint32_t>());  // its sequence number
  const bool has_structure = from.take<std::uint8_t>() != 0;
  if (!from.is_whole()) return;
  if (type == end_event) news.kind = StreamNews::Kind::end;
  if (type != caps_event || !has_structure) return;
  static_cast<void>(from.take_text());  // "GstEventCaps"
  const auto fields = from.take<std::uint32_t>();
  for (std::uint32_t field = 0; field < fields && from.is_whole(); ++field) {
    const std::string name = from.take_text();
    const auto kind = from.take<StreamValue>();
    ByteReader content = from.take_sized();
    if (name != "caps" || kind != StreamValue::caps || !from.is_whole()) continue;
    if (read_caps(content.take_rest(), news.caps)) news.kind = StreamNews::Kind::caps;
  }
}

void read_layout(ByteReader& from, StreamNews& news) {
  const auto crossing = from.take<LinkLayout>();
  if (!from.is_whole() || !from.empty() || crossing.planes == 0 || crossing.planes > max_planes) return;
  gpumap_layout made{};
  made.struct_size = sizeof made;
  made.format = format_of_gst(crossing.format);
  made.width = crossing.width;
  made.height = crossing.height;
  made.planes = crossing.planes;
  for (std::size_t plane = 0; plane < max_planes; ++plane) {
    made.offset[plane] = crossing.offset[plane];
    made.stride[plane] = crossing.stride[plane];
  }
  news.kind = StreamNews::Kind::layout;
  news.layout = made;
}

}  // namespace

StreamNews read_message(std::span<const std::byte> message) {
  StreamNews news;
  ByteReader from(message);
  switch (from.take<StreamMessage>()) {
    case StreamMessage::event:
      read_event(from, news);
      break;
    case StreamMessage::layout:
      read_layout(from, news);
      break;
    case StreamMessage::no_layout:
      news.kind = StreamNews::Kind::layout;
      break;
    case StreamMessage::time:
      break;
  }
  return news;
}

}  // namespace gpumap::c
