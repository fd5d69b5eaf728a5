// SPDX-License-Identifier: MIT
/**
 * SECTION:element-gpumapdownload
 * @title: gpumapdownload
 * @short_description: brings frames from GPU memory to system memory by DMA
 * @see_also: gpumapupload, gpumapkernel
 *
 * gpumapdownload takes frames of memory:GPUMap and gives them in page-locked system memory. It starts the DMA behind
 * the GPU work that fills the frame and hands the buffer on at once. An element that maps the buffer waits until the
 * DMA is done. With a queue behind gpumapdownload several frames are on their way at the same time. Frames that are in
 * system memory already pass as they are.
 *
 * ## Example launch lines
 *
 * |[
 * gst-launch-1.0 videotestsrc num-buffers=30 ! video/x-raw,format=NV12,width=640,height=480 ! gpumapupload ! \
 *   gpumapkernel kernel=convert ! "video/x-raw(memory:GPUMap),format=RGBA" ! gpumapdownload ! queue ! \
 *   videoconvert ! jpegenc ! multifilesink location=frame.jpg
 * ]| The GPU converts frames, DMA fetches the next ones while the CPU compresses.
 *
 * Since: 0.1
 */
#include "gst/elements.hpp"

#include <gst/base/gstbasetransform.h>
#include <gst/video/video.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gpumap/block_pool.hpp"
#include "gpumap/queue.hpp"
#include "gst/gst_error.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/property_table.hpp"
#include "gst/ptr.hpp"
#include "gst/stopping.hpp"

GST_DEBUG_CATEGORY_STATIC(gpumap_download_debug);
#define GST_CAT_DEFAULT gpumap_download_debug

using gpumap::BlockPool;
using gpumap::Device;
using gpumap::Fence;
using gpumap::LentBlock;
using gpumap::Placement;
using gpumap::Queue;
using gpumap::WaitResult;
using gpumap::gst::FrameMemory;
using gpumap::gst::Giver;
using gpumap::gst::Ptr;

namespace {

struct DownloadState {
  explicit DownloadState(GstPad* sinkpad) : giver(std::make_shared<const Giver>(sinkpad)) {}

  const std::shared_ptr<const Giver> giver;
  GstPadActivateModeFunction activate = nullptr;  ///< the base class's, of the sink pad
  std::atomic<bool> cancelled{false};             ///< flushes, or stops
  std::atomic<guint64> frames{0}, bytes{0}, passed{0};
  // Of the streaming thread.
  std::shared_ptr<Device> device;  ///< of the frames
  std::shared_ptr<BlockPool> pool;
  unsigned small = 0;  ///< frames in a row for which half of a block is enough
  std::unique_ptr<Queue> queue;
  std::optional<GstVideoInfo> video;  ///< of the caps
  bool reads_video_meta = false;      ///< downstream does; else it gets frames in the default layout
  bool recall_told = false;           ///< since the start
};

struct GstGpumapDownload {
  GstBaseTransform base;
  DownloadState* state;
};
struct GstGpumapDownloadClass {
  GstBaseTransformClass base;
};

}  // namespace

G_DEFINE_TYPE(GstGpumapDownload, gst_gpumap_download, GST_TYPE_BASE_TRANSFORM)

namespace {

DownloadState& state_of(gpointer object) {
  return *reinterpret_cast<GstGpumapDownload*>(object)->state;
}

void forget_device(DownloadState& state) {
  state.queue.reset();
  state.pool.reset();
  state.device.reset();
}

GstCaps* transform_caps(GstBaseTransform* /*trans*/, GstPadDirection direction, GstCaps* caps, GstCaps* filter) {
  Ptr<GstCaps> other;
  if (direction == GST_PAD_SINK) {
    other.reset(gpumap::gst::from_either_memory(caps));
  } else {
    const Ptr<GstCaps> plain(gpumap::gst::system_only(caps));
    other.reset(gst_caps_is_any(plain.get()) ? gst_caps_ref(plain.get()) : gpumap::gst::in_either_memory(plain.get()));
  }
  return filter == nullptr ? other.release() : gst_caps_intersect_full(filter, other.get(), GST_CAPS_INTERSECT_FIRST);
}

gboolean set_caps(GstBaseTransform* trans, GstCaps* /*in*/, GstCaps* out) {
  DownloadState& state = state_of(trans);
  const bool raw = gst_structure_has_name(gst_caps_get_structure(out, 0), "video/x-raw") != 0;
  GstVideoInfo info;
  state.video.reset();
  if (raw && gst_video_info_from_caps(&info, out) != 0) state.video = info;
  return TRUE;
}

/// The answer of downstream. Its pool is of no use: the memory is page-locked and comes from here.
gboolean decide_allocation(GstBaseTransform* trans, GstQuery* query) {
  state_of(trans).reads_video_meta = gst_query_find_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr) != 0;
  while (gst_query_get_n_allocation_pools(query) > 0) gst_query_remove_nth_allocation_pool(query, 0);
  return TRUE;
}

gboolean propose_allocation(GstBaseTransform* trans, GstQuery* /*decided*/, GstQuery* query) {
  GstCaps* caps = nullptr;
  gst_query_parse_allocation(query, &caps, nullptr);
  if (gpumap::gst::is_gpu_caps(caps)) {
    gst_query_add_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr);
    return TRUE;
  }
  return gst_pad_peer_query(GST_BASE_TRANSFORM_SRC_PAD(trans), query);  // those pass as they are
}

/// In GPU memory that the CPU cannot read at its own speed; else null.
FrameMemory* frame_to_fetch(GstBuffer* buffer) {
  GstMemory* memory = gst_buffer_n_memory(buffer) == 1 ? gst_buffer_peek_memory(buffer, 0) : nullptr;
  FrameMemory* frame = gpumap::gst::frame_memory(memory);
  return frame != nullptr && frame->device() && !frame->cpu_readable() ? frame : nullptr;
}

void follow(DownloadState& state, const std::shared_ptr<Device>& device, std::size_t bytes) {
  if (state.device != device) {
    forget_device(state);
    state.queue = device->create_queue();
    // A call that has to wait for the queue's own work ends with the element.
    state.queue->set_wait([&state](const Fence& fence) { return fence.wait(state.cancelled) == WaitResult::ready; });
    state.device = device;
  }
  // To free memory takes long where the GPU is busy: frames of sizes that change to and fro have one pool.
  constexpr unsigned small_in_a_row = 64;
  state.small = state.pool && state.pool->bytes() > 2 * bytes ? state.small + 1 : 0;
  if (state.small != small_in_a_row) return;
  state.small = 0;
  state.pool.reset();
}

/// `in` in page-locked memory that a DMA fills (transfer full); null when cancelled. Throws Error, QueueCancelled.
GstBuffer* fetch(DownloadState& state, GstBuffer* in, FrameMemory& frame) {
  const GstMemory* memory = gst_buffer_peek_memory(in, 0);
  const std::size_t bytes = memory->size;
  follow(state, frame.device(), std::max<std::size_t>(bytes, 1));
  LentBlock lent =
      BlockPool::lend(state.pool, state.device, state.queue->backend(), Placement::host, bytes, state.cancelled);
  if (!lent) return nullptr;
  if (state.queue->wait(frame.written(), state.cancelled) != WaitResult::ready) return nullptr;
  if (bytes != 0) {
    state.queue->copy(frame.mapping(), frame.offset() + memory->offset, lent.mapping(), 0, bytes);
  }
  const Fence done = state.queue->submit();
  frame.add_read_fence(done);
  auto fetched = std::make_unique<FrameMemory>(state.device, lent.release(), bytes, state.pool);
  fetched->set_written(done, state.giver);
  fetched->set_sequence(frame.sequence());
  GstBuffer* out = gpumap::gst::carrier_of(in);
  gst_buffer_append_memory(out, gpumap::gst::memory_new(gpumap::gst::wrapping_allocator(), std::move(fetched), bytes,
                                                        static_cast<GstMemoryFlags>(0)));
  return out;
}

GstFlowReturn prepare_output(GstBaseTransform* trans, GstBuffer* in, GstBuffer** out) {
  DownloadState& state = state_of(trans);
  FrameMemory* frame = frame_to_fetch(in);
  if (frame != nullptr && frame->recalled()) {
    if (!std::exchange(state.recall_told, true)) {
      GST_ELEMENT_WARNING(trans, STREAM, FORMAT, ("%s", gpumap::gst::taken_back), (nullptr));
    }
    return GST_BASE_TRANSFORM_FLOW_DROPPED;
  }
  try {
    Ptr<GstBuffer> made(frame != nullptr ? fetch(state, in, *frame) : gst_buffer_ref(in));
    if (!made) return GST_FLOW_FLUSHING;
    if (frame != nullptr) {
      state.frames.fetch_add(1, std::memory_order_relaxed);
      state.bytes.fetch_add(gst_buffer_get_size(made.get()), std::memory_order_relaxed);
    } else {
      state.passed.fetch_add(1, std::memory_order_relaxed);
    }
    if (state.video && !state.reads_video_meta) {
      made.reset(gpumap::gst::in_default_layout(made.release(), *state.video));
    }
    *out = made.release();
    if (*out == in) gst_buffer_unref(in);  // the base class has a reference already, and gives back no other buffer's
    return GST_FLOW_OK;
  } catch (const gpumap::QueueCancelled&) {
    return GST_FLOW_FLUSHING;
  } catch (const std::exception& error) {
    gpumap::gst::post_error(GST_ELEMENT_CAST(trans), error);
    return GST_FLOW_ERROR;
  }
}

GstFlowReturn transform(GstBaseTransform* /*trans*/, GstBuffer* /*in*/, GstBuffer* /*out*/) {
  return GST_FLOW_OK;  // prepare_output() made it
}

gboolean sink_event(GstBaseTransform* trans, GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START) state_of(trans).cancelled = true;
  if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_STOP) {
    state_of(trans).cancelled = false;
    // A stop that came before this has ended the waits for good.
    if (GST_STATE_TARGET(trans) < GST_STATE_PAUSED) state_of(trans).cancelled = true;
  }
  if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) g_object_notify(G_OBJECT(trans), "stats");
  return GST_BASE_TRANSFORM_CLASS(gst_gpumap_download_parent_class)->sink_event(trans, event);
}

gboolean query(GstBaseTransform* trans, GstPadDirection direction, GstQuery* query) {
  // Whatever the caps say, frames in GPU memory are welcome here.
  if (direction == GST_PAD_SINK && gpumap::gst::answer_reads_gpu_memory(query)) return TRUE;
  return GST_BASE_TRANSFORM_CLASS(gst_gpumap_download_parent_class)->query(trans, direction, query);
}

gboolean start(GstBaseTransform* trans) {
  DownloadState& state = state_of(trans);
  state.cancelled = state.recall_told = false;
  state.frames = state.bytes = state.passed = 0;
  return TRUE;
}

gboolean stop(GstBaseTransform* trans) {
  forget_device(state_of(trans));
  return TRUE;
}

GstStateChangeReturn change_state(GstElement* element, GstStateChange transition) {
  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY) state_of(element).cancelled = true;
  return GST_ELEMENT_CLASS(gst_gpumap_download_parent_class)->change_state(element, transition);
}

/// Who switches the pad off waits for the thread that is in it, and that for what fills its frame.
gboolean activate_sink(GstPad* pad, GstObject* parent, GstPadMode mode, gboolean active) {
  if (active == 0) state_of(parent).cancelled = true;
  return state_of(parent).activate(pad, parent, mode, active);
}

GstStructure* stats(GObject* download) {
  const DownloadState& state = state_of(download);
  return gst_structure_new("gpumapdownload-stats", "frames", G_TYPE_UINT64, state.frames.load(), "bytes", G_TYPE_UINT64,
                           state.bytes.load(), "passed-frames", G_TYPE_UINT64, state.passed.load(), nullptr);
}

void finalize(GObject* object) {
  delete reinterpret_cast<GstGpumapDownload*>(object)->state;
  G_OBJECT_CLASS(gst_gpumap_download_parent_class)->finalize(object);
}

}  // namespace

static void gst_gpumap_download_class_init(GstGpumapDownloadClass* klass) {
  GST_DEBUG_CATEGORY_INIT(gpumap_download_debug, "gpumapdownload", 0, "gpumap download");
  G_OBJECT_CLASS(klass)->finalize = finalize;
  GST_ELEMENT_CLASS(klass)->change_state = change_state;
  klass->base.transform_caps = transform_caps;
  klass->base.set_caps = set_caps;
  klass->base.decide_allocation = decide_allocation;
  klass->base.propose_allocation = propose_allocation;
  klass->base.prepare_output_buffer = prepare_output;
  klass->base.transform = transform;
  klass->base.sink_event = sink_event;
  klass->base.query = query;
  klass->base.start = start;
  klass->base.stop = stop;
  klass->base.passthrough_on_same_caps = FALSE;
  gpumap::gst::install_properties(
      G_OBJECT_CLASS(klass),
      {gpumap::gst::statistics("frames and bytes that DMA fetched; passed-frames: those that were in system memory",
                               stats)});

  static GstStaticPadTemplate sink_template =
      GST_STATIC_PAD_TEMPLATE("sink", GST_PAD_SINK, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  static GstStaticPadTemplate src_template =
      GST_STATIC_PAD_TEMPLATE("src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS_ANY);
  gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(klass), &sink_template);
  gst_element_class_add_static_pad_template(GST_ELEMENT_CLASS(klass), &src_template);
  gst_element_class_set_static_metadata(GST_ELEMENT_CLASS(klass), "GPU map download", "Filter/Hardware",
                                        "Brings frames from GPU memory to system memory by DMA", "The gpumap authors");
}

static void gst_gpumap_download_init(GstGpumapDownload* self) {
  GstPad* pad = GST_BASE_TRANSFORM_SINK_PAD(self);
  self->state = new DownloadState(pad);
  self->state->activate = GST_PAD_ACTIVATEMODEFUNC(pad);
  gst_pad_set_activatemode_function(pad, activate_sink);
  gst_base_transform_set_gap_aware(GST_BASE_TRANSFORM_CAST(self), TRUE);
}
