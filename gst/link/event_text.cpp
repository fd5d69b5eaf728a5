// SPDX-License-Identifier: MIT
#include "gst/link/event_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>

#include "gst/link/structure_text.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {
namespace {

enum class Kind : std::uint8_t { event = 1, layout = 2, no_layout = 3, time = 4 };

struct KnownEvent {
  GstEventType type;
  const char* field;  ///< that it must have, of the type that comes next; null: none
  GType (*field_type)();
  const char* other_field = nullptr;  ///< the same, of the same type
};

GType type_of_string() {
  return G_TYPE_STRING;
}
GType type_of_time() {
  return G_TYPE_UINT64;
}
GType type_of_bool() {
  return G_TYPE_BOOLEAN;
}

constexpr std::array known_events{
    KnownEvent{GST_EVENT_STREAM_START, "stream-id", type_of_string},
    KnownEvent{GST_EVENT_CAPS, "caps", gst_caps_get_type},
    KnownEvent{GST_EVENT_SEGMENT, "segment", gst_segment_get_type},
    KnownEvent{GST_EVENT_TAG, "taglist", gst_tag_list_get_type},
    KnownEvent{GST_EVENT_CUSTOM_DOWNSTREAM_STICKY, nullptr, nullptr},
    KnownEvent{GST_EVENT_EOS, nullptr, nullptr},
    KnownEvent{GST_EVENT_GAP, "timestamp", type_of_time, "duration"},
    KnownEvent{GST_EVENT_CUSTOM_DOWNSTREAM, nullptr, nullptr},
    KnownEvent{GST_EVENT_FLUSH_START, nullptr, nullptr},
    KnownEvent{GST_EVENT_FLUSH_STOP, "reset-time", type_of_bool},
    KnownEvent{GST_EVENT_LATENCY, "latency", type_of_time},
    KnownEvent{GST_EVENT_CUSTOM_DOWNSTREAM_OOB, nullptr, nullptr},
};

const KnownEvent* known(std::uint32_t type) {
  for (const KnownEvent& one : known_events) {
    if (static_cast<std::uint32_t>(one.type) == type) return &one;
  }
  return nullptr;
}

/// GStreamer asserts that a segment's rates are not 0.
bool is_sane(const GstSegment& segment) {
  const auto is_rate = [](gdouble rate) { return rate != 0 && std::isfinite(rate); };
  return is_rate(segment.rate) && is_rate(segment.applied_rate) && gst_format_get_details(segment.format) != nullptr;
}

/// That a field is there with its type, and is something: a text may say NULL for strings and boxed values.
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

/// Of a gap or a latency: GStreamer's functions that make such an event take no other.
bool is_some_time(const GstStructure* structure, const char* field) {
  return GST_CLOCK_TIME_IS_VALID(g_value_get_uint64(gst_structure_get_value(structure, field)));
}

/// Whether each of a tag's values is one of its type.
bool fits_tag(const GstTagList* list, const gchar* tag) {
  const GType type = gst_tag_get_type(tag);
  const guint count = gst_tag_list_get_tag_size(list, tag);
  for (guint index = 0; index < count; ++index) {
    const GValue* value = gst_tag_list_get_value_index(list, tag, index);
    if (!G_VALUE_HOLDS(value, type) || (G_VALUE_HOLDS_STRING(value) && g_value_get_string(value) == nullptr) ||
        (G_VALUE_HOLDS_BOXED(value) && g_value_get_boxed(value) == nullptr)) {
      return false;
    }
  }
  return count > 0;
}

/// Leaves out of an event's tags what this process does not know, as tags of a newer GStreamer or of an application
/// that registers its own, or has with other types: GStreamer's functions complain of them wherever they are merged.
void keep_known_tags(GstStructure* structure, const char* field) {
  const auto* list = static_cast<const GstTagList*>(g_value_get_boxed(gst_structure_get_value(structure, field)));
  std::vector<std::string> foreign;
  for (gint index = 0; index < gst_tag_list_n_tags(list); ++index) {
    const gchar* const tag = gst_tag_list_nth_tag_name(list, static_cast<guint>(index));
    if (gst_tag_exists(tag) == 0 || !fits_tag(list, tag)) foreign.emplace_back(tag);
  }
  if (foreign.empty()) return;
  GstTagList* const known = gst_tag_list_copy(list);
  for (const std::string& tag : foreign) gst_tag_list_remove_tag(known, tag.c_str());
  gst_structure_set(structure, field, GST_TYPE_TAG_LIST, known, nullptr);
  gst_tag_list_unref(known);
}

void append(LinkText& text, const void* bytes, std::size_t count) {
  const auto* begin = static_cast<const std::byte*>(bytes);
  text.insert(text.end(), begin, begin + count);
}

}  // namespace

LinkText text_of(GstEvent* event) {
  LinkText text;
  const auto type = static_cast<std::uint32_t>(GST_EVENT_TYPE(event));
  if (known(type) == nullptr) return text;
  const GstStructure* structure = gst_event_get_structure(event);
  const Ptr<gchar> written(structure != nullptr ? gst_structure_to_string(structure) : g_strdup(""));
  const guint32 number = gst_event_get_seqnum(event);
  text.push_back(static_cast<std::byte>(Kind::event));
  append(text, &type, sizeof type);
  append(text, &number, sizeof number);
  append(text, written.get(), std::strlen(written.get()) + 1);
  // What cannot be read again (a pointer in an application's structure) is not sent.
  if (!Ptr<GstEvent>(event_of(text))) return {};
  return text;
}

bool is_known_value(GType type, gint value) {
  auto* const values = static_cast<GEnumClass*>(g_type_class_ref(type));
  const bool known = g_enum_get_value(values, value) != nullptr;
  g_type_class_unref(values);
  return known;
}

GstEvent* event_of(std::span<const std::byte> text) {
  std::uint32_t type = 0;
  guint32 number = 0;
  constexpr std::size_t head = 1 + sizeof type + sizeof number;
  if (text.size() <= head || text.front() != static_cast<std::byte>(Kind::event) || text.back() != std::byte{0}) {
    return nullptr;
  }
  std::memcpy(&type, text.data() + 1, sizeof type);
  std::memcpy(&number, text.data() + 1 + sizeof type, sizeof number);
  const KnownEvent* event = known(type);
  const auto* written = reinterpret_cast<const char*>(text.data() + head);
  if (event == nullptr || std::strlen(written) + 1 != text.size() - head) return nullptr;
  Ptr<GstStructure> structure(*written != '\0' ? structure_of(written) : nullptr);
  if (!structure && (event->field != nullptr || *written != '\0')) return nullptr;
  const auto has = [&](const char* field) {
    return field == nullptr || has_value(structure.get(), field, event->field_type());
  };
  if (!has(event->field) || !has(event->other_field)) return nullptr;
  if (event->field_type == type_of_time && !is_some_time(structure.get(), event->field)) return nullptr;
  if (event->type == GST_EVENT_TAG) keep_known_tags(structure.get(), event->field);
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
    case GST_EVENT_TAG:
      return Keeping::tags;
    case GST_EVENT_CUSTOM_DOWNSTREAM_STICKY:
      return Keeping::custom;
    default:
      return Keeping::none;
  }
}

std::optional<VideoLayout> layout_of(GstBuffer* buffer) {
  const GstVideoMeta* meta = gst_buffer_get_video_meta(buffer);
  if (meta == nullptr) return std::nullopt;
  VideoLayout layout;
  layout.format = static_cast<std::uint32_t>(meta->format);
  layout.width = meta->width;
  layout.height = meta->height;
  layout.planes = meta->n_planes;
  for (guint plane = 0; plane < meta->n_planes; ++plane) {
    layout.offset[plane] = meta->offset[plane];
    layout.stride[plane] = meta->stride[plane];
  }
  return layout;
}

LinkText text_of(const std::optional<VideoLayout>& layout) {
  static_assert(std::is_trivially_copyable_v<VideoLayout>);
  LinkText text{static_cast<std::byte>(layout ? Kind::layout : Kind::no_layout)};
  if (layout) append(text, &*layout, sizeof *layout);
  return text;
}

bool read_layout(std::span<const std::byte> text, std::optional<VideoLayout>& layout) {
  if (text.size() == 1 && text.front() == static_cast<std::byte>(Kind::no_layout)) {
    layout.reset();
    return true;
  }
  if (text.size() != 1 + sizeof(VideoLayout) || text.front() != static_cast<std::byte>(Kind::layout)) return false;
  VideoLayout read;
  std::memcpy(&read, text.data() + 1, sizeof read);
  const bool known_format =
      read.format > GST_VIDEO_FORMAT_ENCODED && is_known_value(GST_TYPE_VIDEO_FORMAT, static_cast<gint>(read.format));
  if (!known_format || read.planes == 0 || read.planes > GST_VIDEO_MAX_PLANES) return false;
  const GstVideoFormatInfo* format = gst_video_format_get_info(static_cast<GstVideoFormat>(read.format));
  if (read.planes != GST_VIDEO_FORMAT_INFO_N_PLANES(format)) return false;
  layout = read;
  return true;
}

LinkText text_of(const Channel::FarTime& time) {
  static_assert(std::is_trivially_copyable_v<Channel::FarTime>);
  LinkText text{static_cast<std::byte>(Kind::time), static_cast<std::byte>(time.playing ? 1 : 0)};
  append(text, &time.base, sizeof time.base);
  append(text, &time.stopped, sizeof time.stopped);
  append(text, &time.ahead, sizeof time.ahead);
  return text;
}

bool read_time(std::span<const std::byte> text, Channel::FarTime& time) {
  constexpr std::size_t head = 2;
  if (text.size() != head + sizeof time.base + sizeof time.stopped + sizeof time.ahead) return false;
  if (text.front() != static_cast<std::byte>(Kind::time) || text[1] > std::byte{1}) return false;
  time.playing = text[1] == std::byte{1};
  std::memcpy(&time.base, &text[head], sizeof time.base);
  std::memcpy(&time.stopped, &text[head + sizeof time.base], sizeof time.stopped);
  std::memcpy(&time.ahead, &text[head + sizeof time.base + sizeof time.stopped], sizeof time.ahead);
  // Sums of them must not overflow: no clock shows more than a hundred years.
  constexpr auto most = static_cast<GstClockTimeDiff>(100ULL * 366 * 24 * 3600 * GST_SECOND);
  const auto sane = [](GstClockTimeDiff one) { return one > -most && one < most; };
  return sane(time.base) && sane(time.stopped) && sane(time.ahead);
}

namespace {

/// Bytes that a row of a plane has at least: of the longest of the components that lie in it.
std::uint64_t row_bytes(const GstVideoInfo& usual, std::uint32_t plane, const gint* components) {
  std::uint64_t most = 0;
  for (int n = 0; n < GST_VIDEO_MAX_COMPONENTS && components[n] >= 0; ++n) {
    const auto pixel = static_cast<std::uint64_t>(GST_VIDEO_FORMAT_INFO_PSTRIDE(usual.finfo, components[n]));
    // Where pixels have no bytes of their own, rows are as GStreamer has them.
    if (pixel == 0) return static_cast<std::uint64_t>(GST_VIDEO_INFO_PLANE_STRIDE(&usual, plane));
    const gint pixels = GST_VIDEO_FORMAT_INFO_SCALE_WIDTH(usual.finfo, components[n], GST_VIDEO_INFO_WIDTH(&usual));
    most = std::max(most, pixel * static_cast<std::uint64_t>(pixels));
  }
  return most;
}

/// What a stride says is not bytes in a row where there are tiles, and a palette has no rows: those are as GStreamer
/// has them, or not at all.
bool is_usual(const GstVideoInfo& usual, const VideoLayout& layout, std::uint64_t bytes) {
  for (std::uint32_t plane = 0; plane < layout.planes; ++plane) {
    if (layout.offset[plane] != GST_VIDEO_INFO_PLANE_OFFSET(&usual, plane)) return false;
    if (layout.stride[plane] != GST_VIDEO_INFO_PLANE_STRIDE(&usual, plane)) return false;
  }
  return GST_VIDEO_INFO_SIZE(&usual) <= bytes;
}

bool fits(const GstVideoInfo& usual, const VideoLayout& layout, std::uint64_t bytes) {
  for (std::uint32_t plane = 0; plane < layout.planes; ++plane) {
    gint components[GST_VIDEO_MAX_COMPONENTS];
    gst_video_format_info_component(usual.finfo, plane, components);
    const auto rows = static_cast<std::uint64_t>(
        GST_VIDEO_FORMAT_INFO_SCALE_HEIGHT(usual.finfo, components[0], GST_VIDEO_INFO_HEIGHT(&usual)));
    if (layout.stride[plane] <= 0 || layout.offset[plane] > bytes) return false;
    const auto wide = static_cast<std::uint64_t>(layout.stride[plane]);
    if (wide < row_bytes(usual, plane, components) || rows > (bytes - layout.offset[plane]) / wide) return false;
  }
  return true;
}

}  // namespace

void add_layout(GstBuffer* buffer, const VideoLayout& layout, std::uint64_t bytes) {
  GstVideoInfo usual;
  if (layout.width > G_MAXINT || layout.height > G_MAXINT) return;
  if (gst_video_info_set_format(&usual, static_cast<GstVideoFormat>(layout.format), layout.width, layout.height) == 0) {
    return;
  }
  const bool has_rows = !GST_VIDEO_FORMAT_INFO_IS_TILED(usual.finfo) && !GST_VIDEO_FORMAT_INFO_HAS_PALETTE(usual.finfo);
  if (!(has_rows ? fits(usual, layout, bytes) : is_usual(usual, layout, bytes))) return;
  gsize offset[GST_VIDEO_MAX_PLANES] = {};
  std::copy(std::begin(layout.offset), std::end(layout.offset), offset);
  gint stride[GST_VIDEO_MAX_PLANES] = {};
  std::copy(std::begin(layout.stride), std::end(layout.stride), stride);
  gst_buffer_add_video_meta_full(buffer, GST_VIDEO_FRAME_FLAG_NONE, static_cast<GstVideoFormat>(layout.format),
                                 layout.width, layout.height, layout.planes, offset, stride);
}

}  // namespace gpumap::gst
