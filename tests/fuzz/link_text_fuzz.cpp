// SPDX-License-Identifier: MIT
// Any bytes as one of the texts that cross beside frames; the first says which: 'd' goes downstream (events, layouts,
// times), 'u' upstream (events and queries), 'a' is the answer of each query. What is taken for one is written and
// read again as the same, and may be given to what GStreamer's elements do with such a one.
#include <gst/gst.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fuzz_gstreamer.hpp"
#include "gst/channel/event_text.hpp"
#include "gst/channel/new_names.hpp"
#include "gst/channel/upstream_text.hpp"
#include "gst/ptr.hpp"

namespace {

using namespace gpumap::gst;        // NOLINT
using namespace gpumap::gst::fuzz;  // NOLINT

using Event = Ptr<GstEvent>;
using Query = Ptr<GstQuery>;

/// What has no room in it is left out, and changes nothing else.
NewNames names;  // NOLINT

void use(const GstSegment& segment) {
  expect(segment.rate != 0 && segment.applied_rate != 0);
  // As a gpumapsrc moves it, and as a sink calculates with it.
  GstSegment moved = segment;
  (void)gst_segment_offset_running_time(&moved, segment.format, -GST_SECOND);
  (void)gst_segment_to_running_time(&segment, segment.format, segment.start);
  (void)gst_segment_to_stream_time(&segment, segment.format, segment.start);
}

void use(GstEvent* event) {
  expect(gst_event_get_structure(event) != nullptr || !needs_structure(GST_EVENT_TYPE(event)));
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_STREAM_START: {
      const gchar* id = nullptr;
      gst_event_parse_stream_start(event, &id);
      expect(id != nullptr);
      guint group = 0;
      (void)gst_event_parse_group_id(event, &group);
      GstStreamFlags flags{};
      gst_event_parse_stream_flags(event, &flags);
      GstStream* stream = nullptr;
      gst_event_parse_stream(event, &stream);
      gst_clear_object(&stream);
      return;
    }
    case GST_EVENT_CAPS: {
      GstCaps* caps = nullptr;
      gst_event_parse_caps(event, &caps);
      expect(caps != nullptr && gst_caps_is_fixed(caps));
      GstVideoInfo video;
      (void)gst_video_info_from_caps(&video, caps);
      return;
    }
    case GST_EVENT_SEGMENT: {
      const GstSegment* segment = nullptr;
      gst_event_parse_segment(event, &segment);
      expect(segment != nullptr);
      return use(*segment);
    }
    case GST_EVENT_TAG: {
      GstTagList* tags = nullptr;
      gst_event_parse_tag(event, &tags);
      expect(tags != nullptr);
      const Ptr<GstTagList> merged(gst_tag_list_merge(tags, tags, GST_TAG_MERGE_APPEND));
      return;
    }
    case GST_EVENT_GAP: {
      GstClockTime timestamp = 0;
      gst_event_parse_gap(event, &timestamp, nullptr);
      expect(GST_CLOCK_TIME_IS_VALID(timestamp));
      GstGapFlags flags{};
      gst_event_parse_gap_flags(event, &flags);
      return;
    }
    case GST_EVENT_TOC: {
      GstToc* toc = nullptr;
      gboolean updated = FALSE;
      gst_event_parse_toc(event, &toc, &updated);
      const Ptr<GstToc> owned(toc);
      expect(toc != nullptr && gst_toc_get_entries(toc) != nullptr);
      (void)gst_toc_find_entry(toc, "a");
      return;
    }
    case GST_EVENT_STREAM_COLLECTION: {
      GstStreamCollection* collection = nullptr;
      gst_event_parse_stream_collection(event, &collection);
      const Ptr<GstStreamCollection> owned(collection);
      expect(collection != nullptr);
      for (guint n = 0; n < gst_stream_collection_get_size(collection); ++n) {
        expect(gst_stream_get_stream_id(gst_stream_collection_get_stream(collection, n)) != nullptr);
      }
      return;
    }
    case GST_EVENT_SINK_MESSAGE: {
      GstMessage* message = nullptr;
      gst_event_parse_sink_message(event, &message);
      const Ptr<GstMessage> owned(message);
      expect(message != nullptr && gst_message_get_structure(message) != nullptr);
      return;
    }
    case GST_EVENT_PROTECTION: {
      const gchar* system = nullptr;
      const gchar* origin = nullptr;
      GstBuffer* data = nullptr;
      gst_event_parse_protection(event, &system, &data, &origin);
      expect(system != nullptr && data != nullptr);
      return;
    }
    case GST_EVENT_INSTANT_RATE_CHANGE: {
      gdouble rate = 0;
      GstSegmentFlags flags{};
      gst_event_parse_instant_rate_change(event, &rate, &flags);
      expect(rate > 0 && std::isfinite(rate));
      gst_event_unref(gst_event_new_instant_rate_change(rate, flags));
      return;
    }
    case GST_EVENT_STREAM_GROUP_DONE: {
      guint group = 0;
      gst_event_parse_stream_group_done(event, &group);
      expect(group != GST_GROUP_ID_INVALID);
      return;
    }
    case GST_EVENT_FLUSH_STOP:
      return gst_event_parse_flush_stop(event, nullptr);
    case GST_EVENT_LATENCY:
      return gst_event_parse_latency(event, nullptr);
    case GST_EVENT_SEEK: {
      gdouble rate = 0;
      GstFormat format{};
      GstSeekFlags flags{};
      GstSeekType start_type{};
      GstSeekType stop_type{};
      gint64 start = 0;
      gint64 stop = 0;
      gst_event_parse_seek(event, &rate, &format, &flags, &start_type, &start, &stop_type, &stop);
      expect(rate != 0 && std::isfinite(rate));
      GstSegment segment;
      gst_segment_init(&segment, format);
      if ((flags & GST_SEEK_FLAG_INSTANT_RATE_CHANGE) != 0) expect(start_type == GST_SEEK_TYPE_NONE);
      (void)gst_segment_do_seek(&segment, rate, format, flags, start_type, static_cast<guint64>(start), stop_type,
                                static_cast<guint64>(stop), nullptr);
      return;
    }
    case GST_EVENT_QOS: {
      gdouble proportion = 0;
      gst_event_parse_qos(event, nullptr, &proportion, nullptr, nullptr);
      expect(proportion >= 0 && std::isfinite(proportion));
      return;
    }
    default:
      return;
  }
}

void use(GstQuery* query) {
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_POSITION:
      return gst_query_parse_position(query, nullptr, nullptr);
    case GST_QUERY_DURATION:
      return gst_query_parse_duration(query, nullptr, nullptr);
    case GST_QUERY_SEEKING:
      return gst_query_parse_seeking(query, nullptr, nullptr, nullptr, nullptr);
    case GST_QUERY_LATENCY:
      return gst_query_parse_latency(query, nullptr, nullptr, nullptr);
    case GST_QUERY_SEGMENT:
      return gst_query_parse_segment(query, nullptr, nullptr, nullptr, nullptr);
    case GST_QUERY_CONVERT:
      return gst_query_parse_convert(query, nullptr, nullptr, nullptr, nullptr);
    default:
      return;
  }
}

void read_downstream(std::span<const std::byte> text) {
  std::optional<VideoLayout> layout;
  if (read_layout(text, layout)) {
    std::optional<VideoLayout> again;
    expect(read_layout(text_of(layout), again) && again == layout);
    constexpr std::uint64_t bytes = 1U << 16U;
    const Ptr<GstBuffer> buffer(gst_buffer_new());
    if (layout) expect(add_layout(buffer.get(), *layout, bytes) == fits(*layout, bytes));
    if (const auto added = layout_of(buffer.get())) {
      expect(added->width == layout->width && added->planes == layout->planes);
      for (std::uint32_t plane = 0; plane < added->planes; ++plane) expect(added->offset[plane] <= bytes);
    }
    return;
  }
  if (Channel::FarTime time; read_time(text, time)) {
    const LinkText written = text_of(time);
    expect(std::equal(written.begin(), written.end(), text.begin(), text.end()));
    return;
  }
  const Event event(read([&] { return event_of(text, names); }));
  if (!event) return;
  const LinkText written = read([&] { return text_of(event.get()); });  // reads it, too
  const Event again(read([&] { return event_of(written, names); }));
  expect(again && read([&] { return text_of(again.get()); }) == written);
  expect(keeping_of(again.get()) == keeping_of(event.get()));
  expect(gst_event_get_seqnum(again.get()) == gst_event_get_seqnum(event.get()));
  use(event.get());
}

void read_upstream(std::span<const std::byte> text) {
  const UpstreamAsked asked = read([&] { return asked_of(text, names); });
  const Event event(asked.event);
  const Query query(asked.query);
  expect(!event || !query);
  if (event) {
    const LinkText written = text_of_upstream(event.get());
    const UpstreamAsked again = read([&] { return asked_of(written, names); });
    const Event same(again.event);
    expect(same && text_of_upstream(same.get()) == written);
    use(event.get());
  }
  if (query) {
    const LinkText written = text_of(query.get());
    const UpstreamAsked again = read([&] { return asked_of(written, names); });
    const Query same(again.query);
    expect(same && text_of(same.get()) == written);
    use(query.get());
    (void)read([&] { return read_answer(answer_of(true, query.get())); });
  }
}

void read_answers(std::span<const std::byte> text) {
  (void)read([&] { return read_answer(text); });
  GstQuery* const queries[] = {gst_query_new_position(GST_FORMAT_TIME),
                               gst_query_new_duration(GST_FORMAT_TIME),
                               gst_query_new_seeking(GST_FORMAT_TIME),
                               gst_query_new_latency(),
                               gst_query_new_segment(GST_FORMAT_TIME),
                               gst_query_new_convert(GST_FORMAT_TIME, 0, GST_FORMAT_BYTES),
                               gst_query_new_custom(GST_QUERY_CUSTOM, gst_structure_new_empty("mine"))};
  for (GstQuery* const one : queries) {
    const Query query(one);
    const gint fields = gst_structure_n_fields(gst_query_get_structure(one));
    const bool answered = read([&] { return read_answer(text, one, names); });
    if (answered) use(one);
    if (answered && GST_QUERY_TYPE(one) == GST_QUERY_LATENCY) {
      GstClockTime min = 0;
      GstClockTime max = 0;
      gst_query_parse_latency(one, nullptr, &min, &max);
      gst_query_set_latency(one, FALSE, min + GST_SECOND, max);
    }
    expect(GST_QUERY_TYPE(one) == GST_QUERY_CUSTOM || gst_structure_n_fields(gst_query_get_structure(one)) == fields);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*count*/, char*** /*arguments*/) {
  start_gstreamer();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span text(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  if (*data == 'd') read_downstream(text);
  if (*data == 'u') read_upstream(text);
  if (*data == 'a') read_answers(text);
  return 0;
}
