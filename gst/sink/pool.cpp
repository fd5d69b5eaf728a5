// SPDX-License-Identifier: MIT
#include "gst/sink/pool.hpp"

#include <gst/video/video.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

namespace {

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

}  // namespace

GstBufferPool* pool_new(std::shared_ptr<SinkCore> core, guint row_bytes) {
  auto* self = static_cast<GstGpumapPool*>(g_object_new(gpumap_pool_get_type(), nullptr));
  self->state->core = std::move(core);
  self->state->row_bytes = row_bytes;
  return GST_BUFFER_POOL(gst_object_ref_sink(self));
}

}  // namespace gpumap::gst
