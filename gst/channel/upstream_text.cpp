// SPDX-License-Identifier: MIT
#include "gst/channel/upstream_text.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gpumap/link.hpp"
#include "gst/channel/structure_bytes.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {
namespace {

enum class Kind : std::uint8_t { event = 1, query = 2, answer = 3 };

/// Not CUSTOM_BOTH: it is serialized, and upstream it waits for the streaming thread.
bool is_application_event(GstEventType type) {
  return type == GST_EVENT_NAVIGATION || type == GST_EVENT_RECONFIGURE || type == GST_EVENT_CUSTOM_UPSTREAM ||
         type == GST_EVENT_CUSTOM_BOTH_OOB;
}

/// An event with all fields of its type; null for types that do not cross.
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

/// Takes over the values of `from` whose field exists in `to` with the same type.
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

/// Writes at most `most` bytes; fields without room are left out.
LinkText write(Kind kind, std::uint32_t type, std::uint32_t number, const GstStructure* structure, std::size_t most,
               unsigned* left_out = nullptr) {
  LinkText text;
  put(text, kind);
  put(text, type);
  put(text, number);
  put(text, static_cast<std::uint8_t>(structure != nullptr ? 1 : 0));
  const unsigned missing = structure != nullptr ? put_structure(text, structure, most) : 0;
  if (left_out != nullptr) *left_out = missing;
  return text;
}

bool is_format(GstFormat one) {
  return one != GST_FORMAT_UNDEFINED && gst_format_get_details(one) != nullptr;
}

/// A live source waits for the time that it is to begin at. For more than 292 years GStreamer's clock cannot be asked.
bool is_place(GstFormat format, GstSeekType type, gint64 value) {
  constexpr auto latest = static_cast<gint64>(140ULL * 366 * 24 * 3600 * GST_SECOND);
  return format != GST_FORMAT_TIME || type != GST_SEEK_TYPE_SET || value <= latest;
}

/// Whether gst_event_new_seek() and gst_segment_do_seek() would take it, and elements that ask for a duration in its
/// format.
bool is_sane_seek(GstEvent* event) {
  gdouble rate = 0;
  GstFormat format{};
  GstSeekFlags flags{};
  GstSeekType start_type{};
  GstSeekType stop_type{};
  gint64 start = 0;
  gint64 stop = 0;
  gst_event_parse_seek(event, &rate, &format, &flags, &start_type, &start, &stop_type, &stop);
  if (!is_playable_rate(rate) || !is_format(format)) return false;
  if (!is_place(format, start_type, start) || !is_place(format, stop_type, stop)) return false;
  const bool moves = start_type != GST_SEEK_TYPE_NONE || stop_type != GST_SEEK_TYPE_NONE;
  const bool flushes = (flags & GST_SEEK_FLAG_FLUSH) != 0;
  if ((flags & GST_SEEK_FLAG_INSTANT_RATE_CHANGE) != 0 && (moves || flushes)) return false;
  const bool both = start_type == GST_SEEK_TYPE_SET && stop_type == GST_SEEK_TYPE_SET && stop != -1;
  return !both || std::max<gint64>(start, 0) <= std::max<gint64>(stop, 0);
}

/// Elements calculate with its time, and assert that there is one.
bool is_sane_qos(GstEvent* event) {
  gdouble proportion = 0;
  GstClockTime timestamp = 0;
  gst_event_parse_qos(event, nullptr, &proportion, nullptr, &timestamp);
  constexpr auto most = static_cast<GstClockTime>(std::numeric_limits<GstClockTimeDiff>::max());
  return proportion >= 0 && std::isfinite(proportion) && timestamp <= most;
}

bool is_sane(GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_SEEK) return is_sane_seek(event);
  return GST_EVENT_TYPE(event) != GST_EVENT_QOS || is_sane_qos(event);
}

/// Whether it is valid as a question. Elements assert that there is a format.
bool may_be_asked(GstQuery* query) {
  GstFormat format = GST_FORMAT_TIME;
  GstFormat to = GST_FORMAT_TIME;
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_POSITION:
      gst_query_parse_position(query, &format, nullptr);
      break;
    case GST_QUERY_DURATION:
      gst_query_parse_duration(query, &format, nullptr);
      break;
    case GST_QUERY_SEEKING:
      gst_query_parse_seeking(query, &format, nullptr, nullptr, nullptr);
      break;
    case GST_QUERY_SEGMENT:
      gst_query_parse_segment(query, nullptr, &format, nullptr, nullptr);
      break;
    case GST_QUERY_CONVERT:
      gst_query_parse_convert(query, &format, nullptr, &to, nullptr);
      break;
    default:
      break;
  }
  return is_format(format) && is_format(to);
}

/// Whether it is valid as an answer. Elements and pipelines add latencies of their own, and assert that there is one.
bool is_sane(GstQuery* query) {
  if (GST_QUERY_TYPE(query) != GST_QUERY_LATENCY) return true;
  GstClockTime min = 0;
  GstClockTime max = 0;
  gst_query_parse_latency(query, nullptr, &min, &max);
  constexpr GstClockTime most = GstClockTime{100} * 366 * 24 * 3600 * GST_SECOND;
  // A minimum above the maximum is valid: pipelines warn about it.
  return min < most && (!GST_CLOCK_TIME_IS_VALID(max) || max < most);
}

struct Read {
  Kind kind{};
  std::uint32_t type = 0, number = 0;
  Ptr<GstStructure> structure;
};

/// False when write() did not write it.
bool read(std::span<const std::byte> text, Read& read, NewNames& names) {
  ByteReader reader(text);
  read.kind = reader.take<Kind>();
  read.type = reader.take<std::uint32_t>();
  read.number = reader.take<std::uint32_t>();
  const bool says_something = reader.take<std::uint8_t>() != 0;
  if (!reader.is_whole() || reader.empty() == says_something) return false;
  if (!says_something) return true;
  read.structure.reset(take_structure(reader, names));
  return read.structure != nullptr;
}

GstEvent* event_of(Read& read) {
  if (!is_known_value(GST_TYPE_EVENT_TYPE, static_cast<gint>(read.type))) return nullptr;
  const auto type = static_cast<GstEventType>(read.type);
  GstEvent* event = plain_event(type);
  if (event != nullptr && read.structure) {
    take_over(gst_event_writable_structure(event), read.structure.get());
  } else if (is_application_event(type) && (read.structure || !needs_structure(type))) {
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
  // A latency query has answers only.
  if (query != nullptr && type != GST_QUERY_LATENCY && read.structure) {
    take_over(gst_query_writable_structure(query), read.structure.get());
  }
  if (query != nullptr && !may_be_asked(query)) gst_clear_query(&query);
  return query;
}

}  // namespace

LinkText text_of_upstream(GstEvent* event) {
  const GstEventType type = GST_EVENT_TYPE(event);
  if (type != GST_EVENT_SEEK && type != GST_EVENT_QOS && !is_application_event(type)) return {};
  const GstStructure* const structure = gst_event_get_structure(event);
  if (structure == nullptr && needs_structure(type)) return {};
  return write(Kind::event, type, gst_event_get_seqnum(event), structure, max_link_question);
}

LinkText text_of(GstQuery* query) {
  const GstQueryType type = GST_QUERY_TYPE(query);
  const bool crosses = type == GST_QUERY_CUSTOM || Ptr<GstQuery>(plain_query(type));
  return crosses ? write(Kind::query, type, 0, gst_query_get_structure(query), max_link_question) : LinkText();
}

bool says_event(std::span<const std::byte> text) {
  return !text.empty() && text.front() == static_cast<std::byte>(Kind::event);
}

bool says_qos(std::span<const std::byte> text) {
  ByteReader reader(text);
  const auto kind = reader.take<Kind>();
  return reader.take<std::uint32_t>() == static_cast<std::uint32_t>(GST_EVENT_QOS) && kind == Kind::event;
}

UpstreamAsked asked_of(std::span<const std::byte> text, NewNames& names) {
  Read asked;
  if (!read(text, asked, names)) return {};
  if (asked.kind == Kind::event) return {event_of(asked), nullptr};
  if (asked.kind == Kind::query) return {nullptr, query_of(asked)};
  return {};
}

LinkText answer_of(bool handled) {
  return write(Kind::answer, handled ? 1 : 0, 0, nullptr, max_link_answer);
}
LinkText answer_of(bool handled, GstQuery* query) {
  unsigned left_out = 0;
  const GstStructure* const structure = handled ? gst_query_get_structure(query) : nullptr;
  const LinkText text = write(Kind::answer, handled ? 1 : 0, 0, structure, max_link_answer, &left_out);
  return left_out == 0 ? text : answer_of(false);  // an answer crosses whole or not at all
}

bool read_answer(std::span<const std::byte> text) {
  NewNames none(0);
  Read answer;
  return read(text, answer, none) && answer.kind == Kind::answer && answer.type == 1;
}
bool read_answer(std::span<const std::byte> text, GstQuery* query, NewNames& names) {
  Read answer;
  if (!read(text, answer, names) || answer.kind != Kind::answer || answer.type != 1 || !answer.structure) return false;
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
