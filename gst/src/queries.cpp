// SPDX-License-Identifier: MIT
#include "src_queries.hpp"

#include <memory>

#include "caps.hpp"
#include "known_sinks.hpp"
#include "src_stream.hpp"

namespace gpumap::gst {

namespace {

struct UnrefPad {
  void operator()(GstPad* pad) const { gst_object_unref(pad); }
};
using PadPtr = std::unique_ptr<GstPad, UnrefPad>;

/// For how long the ring holds frames back before upstream has to wait; without end where that is not known.
GstClockTime held_at_most(SrcStream& stream, GstPad* pad) {
  const guint64 slots = stream.slots();
  GstCaps* caps = gst_pad_get_current_caps(pad);
  if (caps == nullptr) return GST_CLOCK_TIME_NONE;
  gint frames = 0;
  gint seconds = 0;
  const bool known = gst_structure_get_fraction(gst_caps_get_structure(caps, 0), "framerate", &frames, &seconds) != 0 &&
                     frames > 0 && seconds > 0 && slots > 0;
  gst_caps_unref(caps);
  return known ? gst_util_uint64_scale(slots * static_cast<guint64>(seconds), GST_SECOND, static_cast<guint64>(frames))
               : GST_CLOCK_TIME_NONE;
}

gboolean answer_latency(SrcStream& stream, GstPad* pad, GstPad* far, GstQuery* query) {
  gboolean live = FALSE;
  GstClockTime min = 0;
  GstClockTime max = GST_CLOCK_TIME_NONE;
  if (far != nullptr) {
    GstQuery* upstream = gst_query_new_latency();
    if (gst_pad_peer_query(far, upstream)) gst_query_parse_latency(upstream, &live, &min, &max);
    gst_query_unref(upstream);
  }
  // The ring adds no delay of its own: a frame can be taken the moment it is published. But it can hold frames back.
  const GstClockTime held = held_at_most(stream, pad);
  max = GST_CLOCK_TIME_IS_VALID(max) && GST_CLOCK_TIME_IS_VALID(held) ? max + held : GST_CLOCK_TIME_NONE;
  gst_query_set_latency(query, static_cast<gboolean>(live || stream.is_live()), min, max);
  return TRUE;
}

/// The media types in `caps`, in either memory (transfer full).
GstCaps* media_types_of(const GstCaps* caps) {
  GstCaps* types = gst_caps_new_empty();
  for (guint i = 0; i < gst_caps_get_size(caps); ++i) {
    types = gst_caps_merge_structure(types,
                                     gst_structure_new_empty(gst_structure_get_name(gst_caps_get_structure(caps, i))));
  }
  GstCaps* both = in_either_memory(types);
  gst_caps_unref(types);
  return both;
}

/// Before caps are chosen: which media types upstream of the sink can give. So an element with pads of several kinds (a
/// muxer) is linked at the right one, as behind a queue. No more than that: formats that do not fit are refused once
/// frames flow, with the reason and the remedy, which a link has no words for.
gboolean answer_caps(GstPad* far, GstQuery* query) {
  GstCaps* filter = nullptr;
  gst_query_parse_caps(query, &filter);
  GstCaps* given = gst_pad_peer_query_caps(far, nullptr);
  GstCaps* answer = gst_caps_is_any(given) ? gst_caps_ref(given) : media_types_of(given);
  gst_caps_unref(given);
  if (filter != nullptr) {
    GstCaps* both = gst_caps_intersect_full(filter, answer, GST_CAPS_INTERSECT_FIRST);
    gst_caps_unref(answer);
    answer = both;
  }
  gst_query_set_caps_result(query, answer);
  gst_caps_unref(answer);
  return TRUE;
}

}  // namespace

gboolean answer_src_query(SrcStream& stream, const char* channel, GstPad* pad, GstQuery* query) {
  GstObject* parent = GST_OBJECT_PARENT(pad);
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_LATENCY:
      return answer_latency(stream, pad, PadPtr(stream.far_pad()).get(), query);
    case GST_QUERY_SCHEDULING:
      gst_query_set_scheduling(query, GST_SCHEDULING_FLAG_SEQUENTIAL, 1, -1, 0);
      gst_query_add_scheduling_mode(query, GST_PAD_MODE_PUSH);
      return TRUE;
    case GST_QUERY_CAPS: {
      // Caps of now do not stand in the way of another link: upstream may give others.
      if (gst_pad_has_current_caps(pad) && gst_pad_is_linked(pad)) break;
      PadPtr far(stream.far_pad());
      if (!far) far.reset(pad_of_sole_sink(channel));
      if (!far || !gst_pad_is_linked(far.get())) break;
      return answer_caps(far.get(), query);
    }
    case GST_QUERY_ACCEPT_CAPS:
    case GST_QUERY_ALLOCATION:
      break;
    default: {  // upstream's to answer, as through a queue
      const PadPtr far(stream.far_pad());
      return far ? gst_pad_peer_query(far.get(), query) : FALSE;
    }
  }
  return gst_pad_query_default(pad, parent, query);
}

}  // namespace gpumap::gst
