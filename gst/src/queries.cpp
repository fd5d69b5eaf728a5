// SPDX-License-Identifier: MIT
#include "gst/src/queries.hpp"

#include <memory>

#include "gst/channel/peer_query.hpp"
#include "gst/memory/caps.hpp"
#include "gst/sink/known_sinks.hpp"
#include "gst/src/stream.hpp"

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

/// As upstream of the gpumapsink answers.
bool ask_upstream(SrcStream& stream, GstPad* pad, GstQuery* query) {
  const PadPtr far(stream.far_pad());
  if (!far) return stream.ask_far(query);
  const PeerAnswer answer = peer_query(far.get(), query);
  if (answer == PeerAnswer::loop) {
    GST_ELEMENT_ERROR(GST_OBJECT_PARENT(pad), CORE, NEGOTIATION,
                      ("this gpumapsrc is upstream of the gpumapsink whose frames it takes: give one of them another "
                       "channel"),
                      (nullptr));
  }
  return answer == PeerAnswer::yes;
}

gboolean answer_latency(SrcStream& stream, GstPad* pad, GstQuery* query) {
  gboolean live = FALSE;
  GstClockTime min = 0;
  GstClockTime max = GST_CLOCK_TIME_NONE;
  GstQuery* upstream = gst_query_new_latency();
  if (ask_upstream(stream, pad, upstream)) gst_query_parse_latency(upstream, &live, &min, &max);
  gst_query_unref(upstream);
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

/// What frames are of now, in either memory, and which media types upstream of the sink can give. So an element with
/// pads of several kinds (a muxer) is linked at the right one, as behind a queue, and a branch may be added or replaced
/// while frames flow: upstream may give others. No more than that: formats that do not fit are refused once frames
/// flow, with the reason and the remedy, which a link has no words for.
gboolean answer_caps(GstPad* pad, GstPad* far, GstQuery* query) {
  GstQuery* upstream = gst_query_new_caps(nullptr);
  GstCaps* given = nullptr;
  if (peer_query(far, upstream) == PeerAnswer::yes) gst_query_parse_caps_result(upstream, &given);
  GstCaps* answer = given == nullptr || gst_caps_is_any(given) ? gst_caps_new_any() : media_types_of(given);
  gst_query_unref(upstream);
  if (GstCaps* now = gst_pad_get_current_caps(pad)) {
    GstCaps* plain = from_either_memory(now);
    answer = gst_caps_merge(in_either_memory(plain), answer);
    gst_caps_unref(plain);
    gst_caps_unref(now);
  }
  GstCaps* filter = nullptr;
  gst_query_parse_caps(query, &filter);
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
      return answer_latency(stream, pad, query);
    case GST_QUERY_SCHEDULING:
      gst_query_set_scheduling(query, GST_SCHEDULING_FLAG_SEQUENTIAL, 1, -1, 0);
      gst_query_add_scheduling_mode(query, GST_PAD_MODE_PUSH);
      return TRUE;
    case GST_QUERY_CAPS: {
      PadPtr far(stream.far_pad());
      if (!far) far.reset(pad_of_sole_sink(channel));
      if (!far || !gst_pad_is_linked(far.get())) break;
      return answer_caps(pad, far.get(), query);
    }
    case GST_QUERY_ACCEPT_CAPS:
    case GST_QUERY_ALLOCATION:
      break;
    default:  // upstream's to answer, as through a queue
      return static_cast<gboolean>(ask_upstream(stream, pad, query));
  }
  return gst_pad_query_default(pad, parent, query);
}

}  // namespace gpumap::gst
