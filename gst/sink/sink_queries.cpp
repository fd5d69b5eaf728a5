// SPDX-License-Identifier: MIT
#include "gst/sink/sink_queries.hpp"

#include <gst/video/video.h>

#include <algorithm>

#include "gst/channel/ends.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/cuda/cuda_caps.hpp"
#include "gst/cuda/cuda_slots.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"
#include "gst/radio/radio_metas.hpp"
#include "gst/sink/pool.hpp"
#include "gst/sink/upstream.hpp"

namespace gpumap::gst {

namespace {

/// What follows `srcpad` takes of `offered`, in system memory; null where there is no one to ask.
Ptr<GstCaps> taken_downstream(GstPad* srcpad, GstCaps* offered) {
  if (srcpad == nullptr || gst_pad_is_linked(srcpad) == 0) return nullptr;
  // As a filter, so that the order in which upstream prefers its formats holds, as through a queue.
  const Ptr<GstCaps> filter(gst_caps_is_any(offered) ? nullptr : offer_cuda(in_either_memory(offered)));
  const Ptr<GstQuery> query(gst_query_new_caps(filter.get()));
  GstCaps* takes = nullptr;
  if (peer_query(srcpad, query.get()) == PeerAnswer::yes) gst_query_parse_caps_result(query.get(), &takes);
  return Ptr<GstCaps>(takes != nullptr ? from_either_memory(takes, cuda_feature_name) : nullptr);
}

/// What upstream names in its question is what it can give: it is not asked in turn, for it may hold locks.
Ptr<GstCaps> taken(GstPad* srcpad, GstCaps* filter) {
  Ptr<GstCaps> offered(filter != nullptr ? system_only(filter) : gst_caps_new_any());
  Ptr<GstCaps> takes = taken_downstream(srcpad, offered.get());
  if (takes && !gst_caps_is_any(takes.get()) && !gst_caps_is_empty(takes.get())) return takes;
  return offered;
}

/// What follows takes raw video of `caps` in CUDA memory, by name and not because it takes anything.
bool goes_to_cuda(const SinkCore& core, const GstCaps* caps) {
  const auto channel = core.channel();
  const Ptr<GstPad> srcpad(channel ? channel->src_pad() : nullptr);
  if (!srcpad || gst_pad_is_linked(srcpad.get()) == 0) return false;
  const auto takes = [&](const Ptr<GstCaps>& asked) {
    const Ptr<GstQuery> query(gst_query_new_caps(asked.get()));
    GstCaps* answer = nullptr;
    if (peer_query(srcpad.get(), query.get()) == PeerAnswer::yes) gst_query_parse_caps_result(query.get(), &answer);
    return answer != nullptr && gst_caps_can_intersect(answer, asked.get()) != 0;
  };
  const Ptr<GstCaps> cuda(in_cuda_memory(caps));
  return !gst_caps_is_empty(cuda.get()) && takes(cuda) && !takes(Ptr<GstCaps>(with_feature(caps, true)));
}

}  // namespace

void propose_slots(GstPad* pad, SinkCore& core, const Gather& gather, GstAllocator* allocator, GstQuery* query) {
  GstCaps* caps = nullptr;
  gboolean need_pool = FALSE;
  gst_query_parse_allocation(query, &caps, &need_pool);
  gst_query_add_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr);
  // Without caps (filesrc) nothing is known of the buffers' size; those are copied.
  if (caps == nullptr) return;
  core.set_upstream(find_upstream(pad, caps));
  GstVideoInfo info;
  if (gst_structure_has_name(gst_caps_get_structure(caps, 0), "video/x-raw") && gst_video_info_from_caps(&info, caps)) {
    const auto bytes = static_cast<guint>(info.size);
    if (!need_pool) {
      gst_query_add_allocation_pool(query, nullptr, bytes, 0, 0);
      return;
    }
    const Ptr<GstBufferPool> pool(pool_new(core.shared_from_this(), goes_to_cuda(core, caps) ? cuda_row_bytes : 1));
    GstStructure* config = gst_buffer_pool_get_config(pool.get());
    gst_buffer_pool_config_set_params(config, caps, bytes, 0, 0);
    if (gst_buffer_pool_set_config(pool.get(), config)) gst_query_add_allocation_pool(query, pool.get(), bytes, 0, 0);
    return;
  }
  if (gather.gathers()) {
    allocator = gather.allocator();
    gst_structure_set(gst_query_writable_structure(query), gathered_bytes_field, G_TYPE_UINT64,
                      guint64{gather.usual_bytes()}, nullptr);
  }
  // Anything else has no fixed frame size: an allocator is told each one, a pool would have to guess.
  GstAllocationParams params;
  gst_allocation_params_init(&params);
  gst_query_add_allocation_param(query, allocator, &params);
}

GstAllocator* slot_allocator_new(const std::shared_ptr<SinkCore>& core) {
  return allocator_new([core](std::size_t bytes, std::size_t /*align*/) {
    std::unique_ptr<FrameMemory> slot;
    try {
      (void)core->acquire(
          bytes, slot, [] { return false; }, SinkCore::Patience::waits);
    } catch (const std::exception& error) {
      core->report(error);
      return slot;
    }
    // Memory of ours, unlike the allocator's own, says how long it took to fill: else it would never be found out.
    if (!slot && core->times_host(bytes)) slot = std::make_unique<FrameMemory>(bytes);
    return slot;
  });
}

bool answer_caps_query(GstPad* srcpad, GstQuery* query) {
  GstCaps* caps = nullptr;
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_CAPS: {
      gst_query_parse_caps(query, &caps);
      gst_query_set_caps_result(query, taken(srcpad, caps).get());
      return true;
    }
    case GST_QUERY_ACCEPT_CAPS:
      gst_query_parse_accept_caps(query, &caps);
      gst_query_set_accept_caps_result(query, static_cast<gboolean>(is_system_caps(caps)));
      return true;
    default:
      return false;
  }
}

bool answer_across(const SinkCore& core, GstQuery* query) {
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_CAPS:
    case GST_QUERY_ACCEPT_CAPS:
    case GST_QUERY_LATENCY:  // this and the next are of upstream
    case GST_QUERY_SCHEDULING:
      return false;
    default:
      break;
  }
  // Serialized, as ALLOCATION and DRAIN are, it would have to wait for the frames before it.
  if ((gst_query_type_get_flags(GST_QUERY_TYPE(query)) & GST_QUERY_TYPE_SERIALIZED) != 0) return false;
  const auto channel = core.channel();
  const Ptr<GstPad> srcpad(channel ? channel->src_pad() : nullptr);
  return srcpad && gst_pad_is_linked(srcpad.get()) != 0 && peer_query(srcpad.get(), query) == PeerAnswer::yes;
}

bool leaves_to_sinks_behind(const SinkCore& core, GstQuery* query) {
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_POSITION:
    case GST_QUERY_DURATION:
    case GST_QUERY_SEEKING:
    case GST_QUERY_SEGMENT:
    case GST_QUERY_CONVERT:
    case GST_QUERY_FORMATS: {
      const auto channel = core.channel();
      return channel && channel->has_src_beside(Channel::Linked::yes);
    }
    default:
      return false;
  }
}

GstEvent* own_latency(GstBaseSink* sink, GstEvent* event) {
  GstClockTime whole = 0;
  gst_event_parse_latency(event, &whole);
  const Ptr<GstQuery> query(gst_query_new_latency());
  GstClockTime least = 0;
  if (gst_pad_peer_query(GST_BASE_SINK_PAD(sink), query.get())) {
    gst_query_parse_latency(query.get(), nullptr, &least, nullptr);
  }
  if (least >= whole) return event;
  GstEvent* own = gst_event_new_latency(least);
  gst_event_set_seqnum(own, gst_event_get_seqnum(event));
  gst_event_unref(event);
  return own;
}

}  // namespace gpumap::gst
