// SPDX-License-Identifier: MIT
#include "gst/src/src_queries.hpp"

#include "gst/channel/ends.hpp"
#include "gst/cuda/cuda_caps.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"
#include "gst/src/src_stream.hpp"

namespace gpumap::gst {

namespace {

/// For how long the ring holds frames back before upstream has to wait; without end where that is not known.
GstClockTime held_at_most(SrcStream& stream, GstPad* pad) {
  const guint64 slots = stream.slots();
  const Ptr<GstCaps> caps(gst_pad_get_current_caps(pad));
  if (!caps) return GST_CLOCK_TIME_NONE;
  gint frames = 0;
  gint seconds = 0;
  const bool known =
      gst_structure_get_fraction(gst_caps_get_structure(caps.get(), 0), "framerate", &frames, &seconds) != 0 &&
      frames > 0 && seconds > 0 && slots > 0;
  return known ? gst_util_uint64_scale(slots * static_cast<guint64>(seconds), GST_SECOND, static_cast<guint64>(frames))
               : GST_CLOCK_TIME_NONE;
}

/// As upstream of the gpumapsink answers.
bool ask_upstream(SrcStream& stream, GstPad* pad, GstQuery* query) {
  const Ptr<GstPad> far(stream.far_pad());
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
  const Ptr<GstQuery> upstream(gst_query_new_latency());
  if (ask_upstream(stream, pad, upstream.get())) {
    stream.add_sink_latency(upstream.get());
    gst_query_parse_latency(upstream.get(), &live, &min, &max);
  }
  // The ring adds no delay of its own: a frame can be taken the moment it is published. But it can hold frames back.
  const GstClockTime held = held_at_most(stream, pad);
  max = GST_CLOCK_TIME_IS_VALID(max) && GST_CLOCK_TIME_IS_VALID(held) ? max + held : GST_CLOCK_TIME_NONE;
  gst_query_set_latency(query, static_cast<gboolean>(live || stream.is_live()), min, max);
  return TRUE;
}

/// The media types in `caps`, in every memory (transfer full).
GstCaps* media_types_of(const GstCaps* caps) {
  GstCaps* all = of_each_structure(caps, [](GstCaps* made, const GstStructure* structure, const auto*) {
    gst_caps_append_structure(made, gst_structure_new_empty(gst_structure_get_name(structure)));
  });
  const Ptr<GstCaps> types(gst_caps_merge(gst_caps_new_empty(), all));  // each once
  return offer_cuda(in_either_memory(types.get()));
}

}  // namespace

gboolean answer_caps(GstPad* pad, GstPad* sinkpad, GstQuery* query) {
  const Ptr<GstQuery> upstream(gst_query_new_caps(nullptr));
  GstCaps* given = nullptr;
  if (peer_query(sinkpad, upstream.get()) == PeerAnswer::yes) gst_query_parse_caps_result(upstream.get(), &given);
  Ptr<GstCaps> answer(given == nullptr || gst_caps_is_any(given) ? gst_caps_new_any() : media_types_of(given));
  if (const Ptr<GstCaps> now{gst_pad_get_current_caps(pad)}) {
    const Ptr<GstCaps> plain(from_either_memory(now.get(), cuda_feature_name));
    answer.reset(gst_caps_merge(offer_cuda(in_either_memory(plain.get())), answer.release()));
  }
  GstCaps* filter = nullptr;
  gst_query_parse_caps(query, &filter);
  if (filter != nullptr) answer.reset(gst_caps_intersect_full(filter, answer.get(), GST_CAPS_INTERSECT_FIRST));
  gst_query_set_caps_result(query, answer.get());
  return TRUE;
}

gboolean answer_src_query(SrcStream& stream, const SrcSettings& settings, GstPad* pad, GstQuery* query) {
  GstObject* parent = GST_OBJECT_PARENT(pad);
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_LATENCY:
      return answer_latency(stream, pad, query);
    case GST_QUERY_SCHEDULING:
      gst_query_set_scheduling(query, GST_SCHEDULING_FLAG_SEQUENTIAL, 1, -1, 0);
      gst_query_add_scheduling_mode(query, GST_PAD_MODE_PUSH);
      return TRUE;
    case GST_QUERY_CAPS: {
      Ptr<GstPad> far(stream.far_pad());
      if (!far) far.reset(pad_of_sole_sink(GST_ELEMENT_CAST(parent), settings.channel, settings.socket_path));
      if (!far || !gst_pad_is_linked(far.get())) break;
      return answer_caps(pad, far.get(), query);
    }
    case GST_QUERY_ACCEPT_CAPS:
    case GST_QUERY_ALLOCATION:
      break;
    case GST_QUERY_CONTEXT:
      if (stream.answer_context(query)) return TRUE;
      return static_cast<gboolean>(ask_upstream(stream, pad, query));
    default:
      if (asks_for_gpu_memory(query)) return static_cast<gboolean>(stream.gives_gpu_memory());
      // upstream's to answer, as through a queue
      return static_cast<gboolean>(ask_upstream(stream, pad, query));
  }
  return gst_pad_query_default(pad, parent, query);
}

}  // namespace gpumap::gst
