// SPDX-License-Identifier: MIT
#include "gst/sink/sink_element.hpp"

#include <gst/base/gstbasetransform.h>
#include <gst/video/video.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "gst/channel/ends.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/cuda/cuda_slots.hpp"
#include "gst/cuda/gst_cuda_context.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"
#include "gst/radio/radio_metas.hpp"
#include "gst/sink/core.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {
namespace {

struct Known {
  std::string_view factory;
  Upstream upstream;
};

// Seen in these elements' sources; whatever is not here is believed.
constexpr std::array known{
    // libjpeg writes whole lines straight into the frame.
    Known{"jpegdec", Upstream::writes_only},
    // libpng merges the passes of an interlaced picture into the rows that it wrote before.
    Known{"pngdec", Upstream::reads},
};

constexpr std::array<std::string_view, 6> hands_on{"queue", "queue2", "capsfilter", "identity", "capssetter", "valve"};

// GstVideoConverter works line by line in the format that it unpacks to. When that is the output's own format, its
// steps run in place in the output frame.
bool converts_in_place(std::string_view factory, GstCaps* caps) {
  GstVideoInfo info;
  return (factory == "videoconvert" || factory == "videoscale" || factory == "videoconvertscale") &&
         gst_structure_has_name(gst_caps_get_structure(caps, 0), "video/x-raw") &&
         gst_video_info_from_caps(&info, caps) && info.finfo->unpack_format == info.finfo->format;
}

std::string_view factory_name(GstElement* element) {
  GstElementFactory* factory = gst_element_get_factory(element);
  return factory != nullptr ? GST_OBJECT_NAME(factory) : "";
}

/// Look at the element that feeds `sinkpad` with `caps`, past those that only hand buffers on.
Upstream find_upstream(GstPad* sinkpad, GstCaps* caps) {
  Upstream found = Upstream::as_declared;
  Ptr<GstPad> pad(GST_PAD(gst_object_ref(sinkpad)));
  while (pad) {
    Ptr<GstPad> peer(gst_pad_get_peer(pad.get()));
    pad.reset();
    peer = past_bins(std::move(peer));
    if (!peer) break;
    const Ptr<GstElement> owner(gst_pad_get_parent_element(peer.get()));
    GstElement* element = owner.get();
    peer.reset();
    if (element == nullptr) break;
    const std::string_view name = factory_name(element);
    const bool passes =
        GST_IS_BASE_TRANSFORM(element) && gst_base_transform_is_passthrough(GST_BASE_TRANSFORM(element));
    const auto* const entry =
        std::find_if(known.begin(), known.end(), [&](const Known& candidate) { return candidate.factory == name; });
    if (entry != known.end()) found = entry->upstream;
    if (!passes && converts_in_place(name, caps)) found = Upstream::reads;
    if (passes || std::find(hands_on.begin(), hands_on.end(), name) != hands_on.end()) {
      pad.reset(gst_element_get_static_pad(element, "sink"));
    }
  }
  return found;
}

struct PoolState {
  std::shared_ptr<SinkCore> core;
  guint row_bytes = 1;  ///< of a row, or a multiple, where upstream knows GstVideoMeta
  GstAllocator* allocator = nullptr;
  GstVideoInfo info;
  gsize bytes = 0;
  std::mutex mutex;
  std::vector<GstBuffer*> spare;  ///< host buffers that came back: fresh ones would cost a page fault every 4 KiB
};

struct GstGpumapPool {
  GstBufferPool base;
  PoolState* state;
};
struct GstGpumapPoolClass {
  GstBufferPoolClass base;
};

G_DEFINE_TYPE(GstGpumapPool, gpumap_pool, GST_TYPE_BUFFER_POOL)

PoolState& state_of(GstBufferPool* pool) {
  return *reinterpret_cast<GstGpumapPool*>(pool)->state;
}

const gchar** pool_get_options(GstBufferPool* /*pool*/) {
  static const gchar* options[] = {GST_BUFFER_POOL_OPTION_VIDEO_META, GST_BUFFER_POOL_OPTION_VIDEO_ALIGNMENT, nullptr};
  return options;
}

gboolean pool_set_config(GstBufferPool* pool, GstStructure* config) {
  PoolState& state = state_of(pool);
  GstCaps* caps = nullptr;
  guint size = 0;
  guint min_buffers = 0;
  guint max_buffers = 0;
  if (!gst_buffer_pool_config_get_params(config, &caps, &size, &min_buffers, &max_buffers) || caps == nullptr ||
      !gst_video_info_from_caps(&state.info, caps)) {
    GST_WARNING_OBJECT(pool, "not a configuration for raw video: %" GST_PTR_FORMAT, static_cast<void*>(config));
    return FALSE;
  }
  const bool asked = gst_buffer_pool_config_has_option(config, GST_BUFFER_POOL_OPTION_VIDEO_ALIGNMENT) != 0;
  const bool knows_meta = gst_buffer_pool_config_has_option(config, GST_BUFFER_POOL_OPTION_VIDEO_META) != 0;
  const guint row_bytes = knows_meta ? state.row_bytes : 1;
  if (asked || row_bytes > 1) {
    GstVideoAlignment alignment;
    gst_video_alignment_reset(&alignment);  // who asks for the option need not say which: GStreamer 1.28's videotestsrc
    if (asked) gst_buffer_pool_config_get_video_alignment(config, &alignment);
    for (guint& plane : alignment.stride_align) plane = std::max(plane, row_bytes - 1);
    if (!gst_video_info_align(&state.info, &alignment)) return FALSE;
    if (asked) gst_buffer_pool_config_set_video_alignment(config, &alignment);
  }
  state.bytes = std::max<gsize>(size, state.info.size);
  // The ring blocks when it is empty, so the number of buffers needs no second bound here.
  gst_buffer_pool_config_set_params(config, caps, static_cast<guint>(state.bytes), min_buffers, 0);
  return GST_BUFFER_POOL_CLASS(gpumap_pool_parent_class)->set_config(pool, config);
}

gboolean pool_start(GstBufferPool* pool) {
  PoolState& state = state_of(pool);
  try {
    state.core->provision(state.bytes);
  } catch (const std::exception& error) {
    state.core->report(error);
    return FALSE;
  }
  return TRUE;  // buffers are made when they are asked for: a slot is a lease, not a thing to keep in stock
}

void drop_spare(PoolState& state) {
  const std::lock_guard lock(state.mutex);
  for (GstBuffer* buffer : state.spare) gst_buffer_unref(buffer);
  state.spare.clear();
}

gboolean pool_stop(GstBufferPool* pool) {
  drop_spare(state_of(pool));
  return GST_BUFFER_POOL_CLASS(gpumap_pool_parent_class)->stop(pool);
}

GstBuffer* host_buffer(PoolState& state) {
  {
    const std::lock_guard lock(state.mutex);
    if (!state.spare.empty()) {
      GstBuffer* buffer = state.spare.back();
      state.spare.pop_back();
      return buffer;
    }
  }
  GstBuffer* buffer = gst_buffer_new();
  gst_buffer_append_memory(buffer, memory_new(state.allocator, std::make_unique<FrameMemory>(state.bytes), state.bytes,
                                              static_cast<GstMemoryFlags>(0)));
  return buffer;
}

GstFlowReturn pool_acquire(GstBufferPool* pool, GstBuffer** out, GstBufferPoolAcquireParams* params) {
  PoolState& state = state_of(pool);
  if (GST_BUFFER_POOL_IS_FLUSHING(pool)) return GST_FLOW_FLUSHING;
  std::unique_ptr<FrameMemory> bytes;
  try {
    const auto stopped = [pool] { return GST_BUFFER_POOL_IS_FLUSHING(pool) != 0; };
    const bool waits = params == nullptr || (params->flags & GST_BUFFER_POOL_ACQUIRE_FLAG_DONTWAIT) == 0;
    const auto patience = waits ? SinkCore::Patience::waits : SinkCore::Patience::does_not_wait;
    const RingStatus status = state.core->acquire(state.bytes, bytes, stopped, patience);
    if (GST_BUFFER_POOL_IS_FLUSHING(pool)) return GST_FLOW_FLUSHING;
    if (status == RingStatus::timeout) return GST_FLOW_EOS;  // as GstBufferPool says it
    // Where only the element flushes, the pool is in order: a decoder takes anything but a buffer for an error.
  } catch (const std::exception& error) {
    state.core->report(error);
    return GST_FLOW_ERROR;
  }
  GstBuffer* buffer = nullptr;
  if (bytes) {
    buffer = gst_buffer_new();
    gst_buffer_append_memory(
        buffer, memory_new(state.allocator, std::move(bytes), state.bytes, static_cast<GstMemoryFlags>(0)));
  } else {
    buffer = host_buffer(state);
  }
  gst_buffer_add_video_meta_full(buffer, GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_INFO_FORMAT(&state.info),
                                 GST_VIDEO_INFO_WIDTH(&state.info), GST_VIDEO_INFO_HEIGHT(&state.info),
                                 GST_VIDEO_INFO_N_PLANES(&state.info), state.info.offset, state.info.stride);
  *out = buffer;
  return GST_FLOW_OK;
}

void pool_release(GstBufferPool* pool, GstBuffer* buffer) {
  PoolState& state = state_of(pool);
  // Slots go back by dropping the lease. Host memory is kept, unless someone still shares it.
  const FrameMemory* bytes =
      gst_buffer_n_memory(buffer) == 1 ? frame_memory(gst_buffer_peek_memory(buffer, 0)) : nullptr;
  const bool host = bytes != nullptr && bytes->is_host() && gst_buffer_is_all_memory_writable(buffer) &&
                    gst_buffer_get_size(buffer) == state.bytes;
  if (host && gst_buffer_pool_is_active(pool)) {
    gst_buffer_foreach_meta(
        buffer,
        [](GstBuffer*, GstMeta** meta, gpointer) -> gboolean {
          *meta = nullptr;
          return TRUE;
        },
        nullptr);
    const std::lock_guard lock(state.mutex);
    state.spare.push_back(buffer);
    return;
  }
  gst_buffer_unref(buffer);
}

void gpumap_pool_finalize(GObject* object) {
  PoolState* state = reinterpret_cast<GstGpumapPool*>(object)->state;
  drop_spare(*state);
  gst_clear_object(&state->allocator);
  delete state;
  G_OBJECT_CLASS(gpumap_pool_parent_class)->finalize(object);
}

void gpumap_pool_class_init(GstGpumapPoolClass* klass) {
  G_OBJECT_CLASS(klass)->finalize = gpumap_pool_finalize;
  klass->base.get_options = pool_get_options;
  klass->base.set_config = pool_set_config;
  klass->base.start = pool_start;
  klass->base.stop = pool_stop;
  klass->base.acquire_buffer = pool_acquire;
  klass->base.release_buffer = pool_release;
}

void gpumap_pool_init(GstGpumapPool* self) {
  self->state = new PoolState;
  gst_video_info_init(&self->state->info);
  self->state->allocator = GST_ALLOCATOR(gst_object_ref(wrapping_allocator()));
}

/// The buffer pool (transfer full) that gpumapsink offers for raw video: each buffer is a slot, with a GstVideoMeta and
/// the alignment that upstream asks for, and rows of `row_bytes` (a power of 2) or a multiple where upstream knows
/// GstVideoMeta. Buffers that upstream means to read are host memory of the same layout.
GstBufferPool* pool_new(std::shared_ptr<SinkCore> core, guint row_bytes) {
  auto* self = static_cast<GstGpumapPool*>(g_object_new(gpumap_pool_get_type(), nullptr));
  self->state->core = std::move(core);
  self->state->row_bytes = row_bytes;
  return GST_BUFFER_POOL(gst_object_ref_sink(self));
}

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

Channel::Latency latency_of_upstream(GstBaseSink* sink) {
  const Ptr<GstQuery> query(gst_query_new_latency());
  if (!gst_pad_peer_query(GST_BASE_SINK_PAD(sink), query.get())) return {};
  gboolean live = FALSE;
  Channel::Latency answer{.answered = true};
  gst_query_parse_latency(query.get(), &live, &answer.least, &answer.most);
  answer.live = live != FALSE;
  return answer;
}

GstEvent* own_latency(GstEvent* event, const Channel::Latency& upstream) {
  GstClockTime whole = 0;
  gst_event_parse_latency(event, &whole);
  if (upstream.least >= whole) return event;
  GstEvent* own = gst_event_new_latency(upstream.least);
  gst_event_set_seqnum(own, gst_event_get_seqnum(event));
  gst_event_unref(event);
  return own;
}

}  // namespace gpumap::gst
