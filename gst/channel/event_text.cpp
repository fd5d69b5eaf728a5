// SPDX-License-Identifier: MIT
#include "gst/channel/event_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>

#include "gpumap/link.hpp"
#include "gpumap/message_bytes.hpp"
#include "gst/channel/structure_bytes.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {
namespace {

using Kind = StreamMessage;

/// A field that GStreamer's reader of the event takes for granted.
struct Field {
  const char* name = nullptr;
  GType (*type)() = nullptr;
};
struct KnownEvent {
  GstEventType type;
  std::array<Field, 2> required{};
};

/// G_TYPE_STRING and its like are no functions.
template <GType type>
GType basic() {
  return type;
}
GType type_of_buffer() {
  return GST_TYPE_BUFFER;
}
GType type_of_message() {
  return GST_TYPE_MESSAGE;
}

constexpr std::array known_events{
    KnownEvent{GST_EVENT_STREAM_START, {{{"stream-id", basic<G_TYPE_STRING>}}}},
    KnownEvent{GST_EVENT_CAPS, {{{"caps", gst_caps_get_type}}}},
    KnownEvent{GST_EVENT_SEGMENT, {{{"segment", gst_segment_get_type}}}},
    KnownEvent{GST_EVENT_STREAM_COLLECTION, {{{"collection", gst_stream_collection_get_type}}}},
    KnownEvent{GST_EVENT_TAG, {{{"taglist", gst_tag_list_get_type}}}},
    KnownEvent{GST_EVENT_SINK_MESSAGE, {{{"message", type_of_message}}}},
    KnownEvent{GST_EVENT_STREAM_GROUP_DONE, {{{"group-id", basic<G_TYPE_UINT>}}}},
    KnownEvent{GST_EVENT_EOS},
    KnownEvent{GST_EVENT_TOC, {{{"toc", gst_toc_get_type}, {"updated", basic<G_TYPE_BOOLEAN>}}}},
    KnownEvent{GST_EVENT_PROTECTION, {{{"data", type_of_buffer}, {"system_id", basic<G_TYPE_STRING>}}}},
    KnownEvent{GST_EVENT_SEGMENT_DONE, {{{"position", basic<G_TYPE_INT64>}, {"format", gst_format_get_type}}}},
    KnownEvent{GST_EVENT_GAP, {{{"timestamp", basic<G_TYPE_UINT64>}, {"duration", basic<G_TYPE_UINT64>}}}},
    KnownEvent{GST_EVENT_INSTANT_RATE_CHANGE,
               {{{"rate", basic<G_TYPE_DOUBLE>}, {"flags", gst_segment_flags_get_type}}}},
    KnownEvent{GST_EVENT_CUSTOM_DOWNSTREAM},
    KnownEvent{GST_EVENT_CUSTOM_DOWNSTREAM_STICKY},
    KnownEvent{GST_EVENT_FLUSH_START},
    KnownEvent{GST_EVENT_FLUSH_STOP, {{{"reset-time", basic<G_TYPE_BOOLEAN>}}}},
    KnownEvent{GST_EVENT_LATENCY, {{{"latency", basic<G_TYPE_UINT64>}}}},
    KnownEvent{GST_EVENT_CUSTOM_DOWNSTREAM_OOB},
    KnownEvent{GST_EVENT_CUSTOM_BOTH},
    KnownEvent{GST_EVENT_CUSTOM_BOTH_OOB},
};

const KnownEvent* known(std::uint32_t type) {
  for (const KnownEvent& one : known_events) {
    if (static_cast<std::uint32_t>(one.type) == type) return &one;
  }
  return nullptr;
}

/// As GStreamer asserts of one that is played backwards: from its stop, or else from its duration's end.
bool has_end(const GstSegment& segment) {
  const bool by_duration = segment.stop == GST_CLOCK_TIME_NONE && segment.duration != GST_CLOCK_TIME_NONE;
  const guint64 end = by_duration ? segment.start + segment.duration : segment.stop;
  return end != GST_CLOCK_TIME_NONE && end >= segment.offset;
}

/// GStreamer asserts that rates are not 0.
bool is_rate(gdouble rate) {
  return rate != 0 && std::isfinite(rate);
}
bool is_sane(const GstSegment& segment) {
  if (segment.rate < 0 && !has_end(segment)) return false;
  return is_rate(segment.rate) && is_rate(segment.applied_rate) && gst_format_get_details(segment.format) != nullptr;
}

/// Whether a field is there with its type, and is not a null string.
bool has_value(const GstStructure* structure, const char* field, GType type) {
  const GValue* value = structure != nullptr ? gst_structure_get_value(structure, field) : nullptr;
  if (value == nullptr || !G_VALUE_HOLDS(value, type)) return false;
  if (G_VALUE_HOLDS_STRING(value)) return g_value_get_string(value) != nullptr;
  if (!G_VALUE_HOLDS_BOXED(value)) return true;
  const auto* boxed = g_value_get_boxed(value);
  if (boxed == nullptr) return false;
  if (type == GST_TYPE_CAPS) return gst_caps_is_fixed(static_cast<const GstCaps*>(boxed)) != 0;
  return type != GST_TYPE_SEGMENT || is_sane(*static_cast<const GstSegment*>(boxed));
}

/// Whether the required fields, which are there, have values with which GStreamer's functions make such an event.
bool is_sane(GstEventType type, const GstStructure* structure) {
  const auto value = [structure](const char* field) { return gst_structure_get_value(structure, field); };
  switch (type) {
    case GST_EVENT_GAP:
      return GST_CLOCK_TIME_IS_VALID(g_value_get_uint64(value("timestamp")));
    case GST_EVENT_LATENCY:
      return GST_CLOCK_TIME_IS_VALID(g_value_get_uint64(value("latency")));
    case GST_EVENT_STREAM_GROUP_DONE:
      return g_value_get_uint(value("group-id")) != GST_GROUP_ID_INVALID;
    case GST_EVENT_SEGMENT_DONE: {
      const gint format = g_value_get_enum(value("format"));
      return format >= GST_FORMAT_UNDEFINED && format <= GST_FORMAT_PERCENT;
    }
    case GST_EVENT_INSTANT_RATE_CHANGE: {
      constexpr auto instant = static_cast<guint>(GST_SEGMENT_FLAG_TRICKMODE) |
                               static_cast<guint>(GST_SEGMENT_FLAG_TRICKMODE_KEY_UNITS) |
                               static_cast<guint>(GST_SEGMENT_FLAG_TRICKMODE_FORWARD_PREDICTED) |
                               static_cast<guint>(GST_SEGMENT_FLAG_TRICKMODE_NO_AUDIO);
      // It keeps the direction: GStreamer's sinks assert what they need to play backwards.
      const gdouble rate = g_value_get_double(value("rate"));
      return is_playable_rate(rate) && rate > 0 && (g_value_get_flags(value("flags")) & ~instant) == 0;
    }
    case GST_EVENT_TOC:
      // Encoders look at the first entry.
      return gst_toc_get_entries(static_cast<const GstToc*>(g_value_get_boxed(value("toc")))) != nullptr;
    default:
      // Muxers compare what such an event says.
      return !needs_structure(type) || gst_structure_has_name(structure, "application/x-gst-dvd") == 0 ||
             has_value(structure, "event", G_TYPE_STRING);
  }
}

/// Takes out what GStreamer's functions do not take, or assert, where they read an event: a field of another type than
/// GStreamer's own, and the number of no group.
void leave_out_odd_fields(GstEventType type, GstStructure* structure) {
  struct Odd {
    GstEventType event;
    const char* name;
    GType type;
  };
  const Odd fields[] = {
      {GST_EVENT_STREAM_START, "group-id", G_TYPE_UINT},   {GST_EVENT_STREAM_START, "flags", GST_TYPE_STREAM_FLAGS},
      {GST_EVENT_STREAM_START, "stream", GST_TYPE_STREAM}, {GST_EVENT_GAP, "gap-flags", GST_TYPE_GAP_FLAGS},
      {GST_EVENT_PROTECTION, "origin", G_TYPE_STRING},
  };
  for (const Odd& field : fields) {
    const GValue* value = field.event == type ? gst_structure_get_value(structure, field.name) : nullptr;
    if (value == nullptr) continue;
    const bool is_no_group = G_VALUE_HOLDS_UINT(value) && g_value_get_uint(value) == GST_GROUP_ID_INVALID;
    if (G_VALUE_TYPE(value) != field.type || is_no_group) gst_structure_remove_field(structure, field.name);
  }
}

void append(LinkText& text, const void* bytes, std::size_t count) {
  const auto* begin = static_cast<const std::byte*>(bytes);
  text.insert(text.end(), begin, begin + count);
}

}  // namespace

LinkText text_of(GstEvent* event, unsigned* left_out) {
  LinkText text;
  const auto type = static_cast<std::uint32_t>(GST_EVENT_TYPE(event));
  if (known(type) == nullptr) return text;
  const GstStructure* structure = gst_event_get_structure(event);
  const guint32 number = gst_event_get_seqnum(event);
  text.push_back(static_cast<std::byte>(Kind::event));
  append(text, &type, sizeof type);
  append(text, &number, sizeof number);
  text.push_back(std::byte{static_cast<unsigned char>(structure != nullptr ? 1 : 0)});
  const unsigned missing = structure != nullptr ? put_structure(text, structure, max_link_message) : 0;
  if (left_out != nullptr) *left_out = missing;
  // An event that lacks a field of its kind is not sent.
  NewNames own = NewNames::of_own();
  if (text.size() > max_link_message || !Ptr<GstEvent>(event_of(text, own))) return {};
  return text;
}

bool crosses(GstEventType type) {
  return known(static_cast<std::uint32_t>(type)) != nullptr;
}

bool needs_structure(GstEventType type) {
  return type == GST_EVENT_NAVIGATION || type >= GST_EVENT_CUSTOM_UPSTREAM;  // from there on all are custom
}

bool is_out_of_band(GstEventType type) {
  return type == GST_EVENT_CUSTOM_DOWNSTREAM_OOB || type == GST_EVENT_CUSTOM_BOTH_OOB;
}

bool is_playable_rate(gdouble rate) {
  constexpr gdouble slowest = 1e-6, fastest = 1e6;
  return std::abs(rate) >= slowest && std::abs(rate) <= fastest;
}

bool is_known_value(GType type, gint value) {
  auto* const values = static_cast<GEnumClass*>(g_type_class_ref(type));
  const bool known = g_enum_get_value(values, value) != nullptr;
  g_type_class_unref(values);
  return known;
}

GstEventType type_of_event(std::span<const std::byte> text) {
  ByteReader reader(text);
  const auto kind = reader.take<Kind>();
  const KnownEvent* const event = known(reader.take<std::uint32_t>());
  return reader.is_whole() && kind == Kind::event && event != nullptr ? event->type : GST_EVENT_UNKNOWN;
}

GstEvent* event_of(std::span<const std::byte> text, NewNames& names, std::string* refused) {
  ByteReader reader(text);
  const auto kind = reader.take<Kind>();
  const auto type = reader.take<std::uint32_t>();
  const auto number = reader.take<guint32>();
  const bool says_something = reader.take<std::uint8_t>() != 0;
  if (!reader.is_whole() || kind != Kind::event || reader.empty() == says_something) return nullptr;
  const KnownEvent* event = known(type);
  if (event == nullptr) return nullptr;
  Ptr<GstStructure> structure(says_something ? take_structure(reader, names, refused) : nullptr);
  const auto is_there = [&](const Field& field) {
    return field.name == nullptr || has_value(structure.get(), field.name, field.type());
  };
  const bool whole = std::all_of(event->required.begin(), event->required.end(), is_there);
  if (!whole || (!structure && (says_something || needs_structure(event->type)))) return nullptr;
  if (!is_sane(event->type, structure.get())) return nullptr;
  if (structure) leave_out_odd_fields(event->type, structure.get());
  GstEvent* made =
      event->type == GST_EVENT_EOS ? gst_event_new_eos() : gst_event_new_custom(event->type, structure.release());
  if (number != GST_SEQNUM_INVALID) gst_event_set_seqnum(made, number);
  return made;
}

Keeping keeping_of(const GstEvent* event) {
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_STREAM_START:
      return Keeping::stream_start;
    case GST_EVENT_CAPS:
      return Keeping::caps;
    case GST_EVENT_SEGMENT:
      return Keeping::segment;
    case GST_EVENT_INSTANT_RATE_CHANGE:
      return Keeping::rate;
    case GST_EVENT_TAG:
      return Keeping::tags;
    case GST_EVENT_STREAM_GROUP_DONE:
      return Keeping::group_done;
    case GST_EVENT_STREAM_COLLECTION:
    case GST_EVENT_TOC:
    case GST_EVENT_PROTECTION:
    case GST_EVENT_SINK_MESSAGE:
    case GST_EVENT_CUSTOM_DOWNSTREAM_STICKY:
      return Keeping::custom;
    case GST_EVENT_SEGMENT_DONE:
    case GST_EVENT_EOS:
      return Keeping::end;
    default:
      return Keeping::none;
  }
}

VideoLayout layout_of(const GstVideoMeta& meta) {
  VideoLayout layout;
  layout.format = static_cast<std::uint32_t>(meta.format);
  layout.width = meta.width;
  layout.height = meta.height;
  layout.planes = meta.n_planes;
  for (guint plane = 0; plane < std::min<guint>(meta.n_planes, GST_VIDEO_MAX_PLANES); ++plane) {
    layout.offset[plane] = meta.offset[plane];
    layout.stride[plane] = meta.stride[plane];
  }
  return layout;
}

const GstVideoMeta* layout_meta_of(GstBuffer* buffer) {
  const GstVideoMeta* meta = gst_buffer_get_video_meta(buffer);
  // Without planes there is no layout.
  const bool plain = meta != nullptr && meta->flags == GST_VIDEO_FRAME_FLAG_NONE && meta->id == 0 && meta->n_planes > 0;
  return plain ? meta : nullptr;
}

std::optional<VideoLayout> layout_of(GstBuffer* buffer) {
  const GstVideoMeta* meta = layout_meta_of(buffer);
  return meta != nullptr ? std::optional(layout_of(*meta)) : std::nullopt;
}

LinkText text_of(const std::optional<VideoLayout>& layout) {
  static_assert(std::is_trivially_copyable_v<VideoLayout>);
  LinkText text{static_cast<std::byte>(layout ? Kind::layout : Kind::no_layout)};
  if (layout) append(text, &*layout, sizeof *layout);
  return text;
}

bool says_layout(std::span<const std::byte> text) {
  const auto is = [&](Kind kind) { return text.front() == static_cast<std::byte>(kind); };
  return !text.empty() && (is(Kind::layout) || is(Kind::no_layout));
}

bool is_sane(const VideoLayout& layout) {
  const bool known_format = layout.format > GST_VIDEO_FORMAT_ENCODED &&
                            is_known_value(GST_TYPE_VIDEO_FORMAT, static_cast<gint>(layout.format));
  if (!known_format || layout.planes == 0 || layout.planes > GST_VIDEO_MAX_PLANES) return false;
  const GstVideoFormatInfo* format = gst_video_format_get_info(static_cast<GstVideoFormat>(layout.format));
  return layout.planes == GST_VIDEO_FORMAT_INFO_N_PLANES(format);
}

bool read_layout(std::span<const std::byte> text, std::optional<VideoLayout>& layout) {
  if (text.size() == 1 && text.front() == static_cast<std::byte>(Kind::no_layout)) {
    layout.reset();
    return true;
  }
  if (text.size() != 1 + sizeof(VideoLayout) || text.front() != static_cast<std::byte>(Kind::layout)) return false;
  VideoLayout read;
  std::memcpy(&read, text.data() + 1, sizeof read);
  if (!is_sane(read)) return false;
  layout = read;
  return true;
}

LinkText text_of(const Channel::FarTime& time) {
  static_assert(std::is_trivially_copyable_v<Channel::FarTime>);
  LinkText text{static_cast<std::byte>(Kind::time), static_cast<std::byte>(time.clockless ? 2 : time.playing ? 1 : 0)};
  append(text, &time.base, sizeof time.base);
  append(text, &time.stopped, sizeof time.stopped);
  append(text, &time.ahead, sizeof time.ahead);
  return text;
}

bool read_time(std::span<const std::byte> text, Channel::FarTime& time) {
  constexpr std::size_t head = 2;
  if (text.size() != head + sizeof time.base + sizeof time.stopped + sizeof time.ahead) return false;
  if (text.front() != static_cast<std::byte>(Kind::time) || text[1] > std::byte{2}) return false;
  time.playing = text[1] == std::byte{1};
  time.clockless = text[1] == std::byte{2};
  std::memcpy(&time.base, &text[head], sizeof time.base);
  std::memcpy(&time.stopped, &text[head + sizeof time.base], sizeof time.stopped);
  std::memcpy(&time.ahead, &text[head + sizeof time.base + sizeof time.stopped], sizeof time.ahead);
  // A clock by NTP counts from 1900, and until 2036. Sums of two such times do not overflow.
  constexpr auto most = static_cast<GstClockTimeDiff>(140ULL * 366 * 24 * 3600 * GST_SECOND);
  const auto sane = [](GstClockTimeDiff one) { return one > -most && one < most; };
  return sane(time.base) && sane(time.stopped) && sane(time.ahead) && sane(time.base - time.ahead);
}

namespace {

/// The fewest bytes that a row of a plane has: those of the longest component that lies in it.
std::uint64_t row_bytes(const GstVideoInfo& usual, std::uint32_t plane, const gint* components) {
  std::uint64_t most = 0;
  for (int n = 0; n < GST_VIDEO_MAX_COMPONENTS && components[n] >= 0; ++n) {
    const auto pixel = static_cast<std::uint64_t>(GST_VIDEO_FORMAT_INFO_PSTRIDE(usual.finfo, components[n]));
    // When several pixels share bytes, rows are as GStreamer has them.
    if (pixel == 0) return static_cast<std::uint64_t>(GST_VIDEO_INFO_PLANE_STRIDE(&usual, plane));
    const gint pixels = GST_VIDEO_FORMAT_INFO_SCALE_WIDTH(usual.finfo, components[n], GST_VIDEO_INFO_WIDTH(&usual));
    most = std::max(most, pixel * static_cast<std::uint64_t>(pixels));
  }
  return most;
}

/// The stride of tiles is how many lie beside each other and above each other: no fewer than usual. It has 16 bits for
/// each of the two numbers, beyond which the usual ones would wrap round.
bool tiles_fit(const GstVideoInfo& usual, std::uint32_t plane, const VideoLayout& layout, std::uint64_t left) {
  if (layout.width > G_MAXUINT16 || layout.height > G_MAXUINT16) return false;
  const auto across = [](gint stride) { return static_cast<std::uint64_t>(GST_VIDEO_TILE_X_TILES(stride)); };
  const auto down = [](gint stride) { return static_cast<std::uint64_t>(GST_VIDEO_TILE_Y_TILES(stride)); };
  const gint own = layout.stride[plane];
  const gint least = GST_VIDEO_INFO_PLANE_STRIDE(&usual, plane);
  const auto tile = static_cast<std::uint64_t>(GST_VIDEO_FORMAT_INFO_TILE_SIZE(usual.finfo, plane));
  return own > 0 && tile > 0 && across(own) >= across(least) && down(own) >= down(least) &&
         across(own) * down(own) <= left / tile;
}

/// The last row may have no bytes behind its pixels. When the stride is negative, the first row lies last.
bool rows_fit(const GstVideoInfo& usual, std::uint32_t plane, const VideoLayout& layout, std::uint64_t left) {
  gint components[GST_VIDEO_MAX_COMPONENTS];
  gst_video_format_info_component(usual.finfo, plane, components);
  const auto rows = static_cast<std::uint64_t>(
      GST_VIDEO_FORMAT_INFO_SCALE_HEIGHT(usual.finfo, components[0], GST_VIDEO_INFO_HEIGHT(&usual)));
  const auto stride = static_cast<std::uint64_t>(std::abs(std::int64_t{layout.stride[plane]}));
  const std::uint64_t row = row_bytes(usual, plane, components);
  if (stride < row || row > left || stride == 0 || rows == 0) return false;
  const std::uint64_t room = layout.stride[plane] > 0 ? left - row : layout.offset[plane];
  return rows - 1 <= room / stride;
}

/// Colours of 4 bytes.
bool palette_fits(const GstVideoInfo& usual, std::uint32_t plane, const VideoLayout& layout, std::uint64_t left) {
  constexpr std::uint64_t palette = std::uint64_t{256} * 4;
  return layout.stride[plane] == GST_VIDEO_INFO_PLANE_STRIDE(&usual, plane) && palette <= left;
}

}  // namespace

bool fits(const VideoLayout& layout, std::uint64_t bytes) {
  GstVideoInfo usual;
  if (!is_sane(layout) || layout.width > G_MAXINT || layout.height > G_MAXINT) return false;
  if (gst_video_info_set_format(&usual, static_cast<GstVideoFormat>(layout.format), layout.width, layout.height) == 0) {
    return false;
  }
  for (std::uint32_t plane = 0; plane < layout.planes; ++plane) {
    if (layout.offset[plane] > bytes) return false;
    const std::uint64_t left = bytes - layout.offset[plane];
    const bool is_palette = GST_VIDEO_FORMAT_INFO_HAS_PALETTE(usual.finfo) && plane == GST_VIDEO_COMP_PALETTE;
    const auto plane_fits = is_palette                                    ? palette_fits
                            : GST_VIDEO_FORMAT_INFO_IS_TILED(usual.finfo) ? tiles_fit
                                                                          : rows_fit;
    if (!plane_fits(usual, plane, layout, left)) return false;
  }
  return true;
}

GstVideoMeta* add_video_meta(GstBuffer* buffer, const VideoLayout& layout, GstVideoFrameFlags flags) {
  gsize offset[GST_VIDEO_MAX_PLANES] = {};
  std::copy(std::begin(layout.offset), std::end(layout.offset), offset);
  gint stride[GST_VIDEO_MAX_PLANES] = {};
  std::copy(std::begin(layout.stride), std::end(layout.stride), stride);
  return gst_buffer_add_video_meta_full(buffer, flags, static_cast<GstVideoFormat>(layout.format), layout.width,
                                        layout.height, layout.planes, offset, stride);
}

bool add_layout(GstBuffer* buffer, const VideoLayout& layout, std::uint64_t bytes) {
  if (!fits(layout, bytes)) return false;
  add_video_meta(buffer, layout, GST_VIDEO_FRAME_FLAG_NONE);
  return true;
}

}  // namespace gpumap::gst
