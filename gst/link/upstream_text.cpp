// SPDX-License-Identifier: MIT
#include "gst/link/upstream_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gst/link/structure_text.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {
namespace {

enum class Kind : std::uint8_t { event = 1, query = 2, answer = 3 };

bool is_application_event(GstEventType type) {
  return type == GST_EVENT_NAVIGATION || type == GST_EVENT_RECONFIGURE || type == GST_EVENT_CUSTOM_UPSTREAM;
}

/// One with all fields that belong to it; null for types that do not cross.
GstEvent* plain_event(GstEventType type) {
  if (type == GST_EVENT_SEEK) {
    return gst_event_new_seek(1, GST_FORMAT_TIME, GST_SEEK_FLAG_NONE, GST_SEEK_TYPE_NONE, 0, GST_SEEK_TYPE_NONE, 0);
  }
  return type == GST_EVENT_QOS ? gst_event_new_qos(GST_QOS_TYPE_UNDERFLOW, 1, 0, 0) : nullptr;
}
GstQuery* plain_query(GstQueryType type) {
  switch (type) {
    case GST_QUERY_POSITION:
      return gst_query_new_position(GST_FORMAT_TIME);
    case GST_QUERY_DURATION:
      return gst_query_new_duration(GST_FORMAT_TIME);
    case GST_QUERY_SEEKING:
      return gst_query_new_seeking(GST_FORMAT_TIME);
    case GST_QUERY_LATENCY:
      return gst_query_new_latency();
    case GST_QUERY_SEGMENT:
      return gst_query_new_segment(GST_FORMAT_TIME);
    case GST_QUERY_CONVERT:
      return gst_query_new_convert(GST_FORMAT_TIME, 0, GST_FORMAT_BYTES);
    default:
      return nullptr;
  }
}

/// Those values of `from` whose field `to` has, with the same type.
void take_over(GstStructure* to, const GstStructure* from) {
  gst_structure_foreach(
      from,
      [](GQuark field, const GValue* value, gpointer user) -> gboolean {
        auto* structure = static_cast<GstStructure*>(user);
        const GValue* old = gst_structure_id_get_value(structure, field);
        if (old != nullptr && G_VALUE_TYPE(old) == G_VALUE_TYPE(value)) {
          gst_structure_id_set_value(structure, field, value);
        }
        return TRUE;
      },
      to);
}

LinkText write(Kind kind, std::uint32_t type, std::uint32_t number, const GstStructure* structure) {
  const Ptr<gchar> written(structure != nullptr ? gst_structure_to_string(structure) : g_strdup(""));
  const std::size_t length = std::strlen(written.get()) + 1;
  LinkText text(1 + sizeof type + sizeof number + length);
  text[0] = static_cast<std::byte>(kind);
  std::memcpy(&text[1], &type, sizeof type);
  std::memcpy(&text[1 + sizeof type], &number, sizeof number);
  std::memcpy(&text[1 + sizeof type + sizeof number], written.get(), length);
  return text;
}

/// As gst_event_new_seek() and gst_segment_do_seek() assert.
bool is_sane_seek(GstEvent* event) {
  gdouble rate = 0;
  GstSeekFlags flags{};
  GstSeekType start_type{};
  GstSeekType stop_type{};
  gint64 start = 0;
  gint64 stop = 0;
  gst_event_parse_seek(event, &rate, nullptr, &flags, &start_type, &start, &stop_type, &stop);
  if (rate == 0 || !std::isfinite(rate)) return false;
  const bool moves = start_type != GST_SEEK_TYPE_NONE || stop_type != GST_SEEK_TYPE_NONE;
  const bool flushes = (flags & GST_SEEK_FLAG_FLUSH) != 0;
  if ((flags & GST_SEEK_FLAG_INSTANT_RATE_CHANGE) != 0 && (moves || flushes)) return false;
  const bool both = start_type == GST_SEEK_TYPE_SET && stop_type == GST_SEEK_TYPE_SET && stop != -1;
  return !both || std::max<gint64>(start, 0) <= std::max<gint64>(stop, 0);
}

/// Elements calculate with it.
bool is_sane_qos(GstEvent* event) {
  gdouble proportion = 0;
  gst_event_parse_qos(event, nullptr, &proportion, nullptr, nullptr);
  return proportion >= 0 && std::isfinite(proportion);
}

bool is_sane(GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_SEEK) return is_sane_seek(event);
  return GST_EVENT_TYPE(event) != GST_EVENT_QOS || is_sane_qos(event);
}

/// Of an answer: elements and pipelines add latencies of their own, and assert that there is one.
bool is_sane(GstQuery* query) {
  if (GST_QUERY_TYPE(query) != GST_QUERY_LATENCY) return true;
  GstClockTime min = 0;
  GstClockTime max = 0;
  gst_query_parse_latency(query, nullptr, &min, &max);
  constexpr GstClockTime most = GstClockTime{100} * 366 * 24 * 3600 * GST_SECOND;
  // A least latency above the most there can be is what pipelines warn of, and no lie.
  return min < most && (!GST_CLOCK_TIME_IS_VALID(max) || max < most);
}

struct Read {
  Kind kind{};
  std::uint32_t type = 0, number = 0;
  Ptr<GstStructure> structure;
};

/// False for what write() did not write.
bool read(std::span<const std::byte> text, Read& read) {
  constexpr std::size_t head = 1 + sizeof read.type + sizeof read.number;
  if (text.size() <= head || text.back() != std::byte{0}) return false;
  read.kind = static_cast<Kind>(text.front());
  std::memcpy(&read.type, &text[1], sizeof read.type);
  std::memcpy(&read.number, &text[1 + sizeof read.type], sizeof read.number);
  const auto* written = reinterpret_cast<const char*>(text.data() + head);
  if (std::strlen(written) + 1 != text.size() - head) return false;
  if (*written == '\0') return true;
  read.structure.reset(structure_of(written));
  return read.structure != nullptr;
}

GstEvent* event_of(Read& read) {
  if (!is_known_value(GST_TYPE_EVENT_TYPE, static_cast<gint>(read.type))) return nullptr;
  const auto type = static_cast<GstEventType>(read.type);
  GstEvent* event = plain_event(type);
  if (event != nullptr && read.structure) {
    take_over(gst_event_writable_structure(event), read.structure.get());
  } else if (is_application_event(type) && (read.structure || type != GST_EVENT_NAVIGATION)) {
    event = gst_event_new_custom(type, read.structure.release());
  }
  if (event != nullptr && !is_sane(event)) gst_clear_event(&event);
  if (event != nullptr && read.number != GST_SEQNUM_INVALID) gst_event_set_seqnum(event, read.number);
  return event;
}

GstQuery* query_of(Read& read) {
  if (!is_known_value(GST_TYPE_QUERY_TYPE, static_cast<gint>(read.type))) return nullptr;
  const auto type = static_cast<GstQueryType>(read.type);
  if (type == GST_QUERY_CUSTOM && read.structure) return gst_query_new_custom(type, read.structure.release());
  GstQuery* query = plain_query(type);
  if (query != nullptr && read.structure) take_over(gst_query_writable_structure(query), read.structure.get());
  return query;
}

}  // namespace

LinkText text_of_upstream(GstEvent* event) {
  const GstEventType type = GST_EVENT_TYPE(event);
  if (type != GST_EVENT_SEEK && type != GST_EVENT_QOS && !is_application_event(type)) return {};
  return write(Kind::event, type, gst_event_get_seqnum(event), gst_event_get_structure(event));
}

LinkText text_of(GstQuery* query) {
  const GstQueryType type = GST_QUERY_TYPE(query);
  const bool crosses = type == GST_QUERY_CUSTOM || Ptr<GstQuery>(plain_query(type));
  return crosses ? write(Kind::query, type, 0, gst_query_get_structure(query)) : LinkText();
}

UpstreamAsked asked_of(std::span<const std::byte> text) {
  Read asked;
  if (!read(text, asked)) return {};
  if (asked.kind == Kind::event) return {event_of(asked), nullptr};
  if (asked.kind == Kind::query) return {nullptr, query_of(asked)};
  return {};
}

LinkText answer_of(bool handled) {
  return write(Kind::answer, handled ? 1 : 0, 0, nullptr);
}
LinkText answer_of(bool handled, GstQuery* query) {
  return write(Kind::answer, handled ? 1 : 0, 0, handled ? gst_query_get_structure(query) : nullptr);
}

bool read_answer(std::span<const std::byte> text) {
  Read answer;
  return read(text, answer) && answer.kind == Kind::answer && answer.type == 1;
}
bool read_answer(std::span<const std::byte> text, GstQuery* query) {
  Read answer;
  if (!read(text, answer) || answer.kind != Kind::answer || answer.type != 1 || !answer.structure) return false;
  GstStructure* own = gst_query_writable_structure(query);
  if (GST_QUERY_TYPE(query) != GST_QUERY_CUSTOM) {
    take_over(own, answer.structure.get());
    return is_sane(query);
  }
  gst_structure_foreach(
      answer.structure.get(),
      [](GQuark field, const GValue* value, gpointer to) -> gboolean {
        gst_structure_id_set_value(static_cast<GstStructure*>(to), field, value);
        return TRUE;
      },
      own);
  return true;
}

}  // namespace gpumap::gst
