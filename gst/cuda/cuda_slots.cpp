// SPDX-License-Identifier: MIT
#include "gst/cuda/cuda_slots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpumap/cuda.hpp"
#include "gpumap/error.hpp"
#include "gst/cuda/gst_cuda_context.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/ptr.hpp"
#include "gst/stopping.hpp"

namespace gpumap::gst {

namespace {

// What GPUs ask of textures: where a plane begins, and how far its rows are apart.
constexpr gsize plane_alignment = 512;
constexpr gint row_alignment = 32;

/// As the picture lies in the slot.
GstVideoInfo layout_of(GstBuffer* buffer, const GstVideoInfo& info) {
  GstVideoInfo layout = info;
  const GstVideoMeta* meta = gst_buffer_get_video_meta(buffer);
  for (guint plane = 0; meta != nullptr && plane < meta->n_planes; ++plane) {
    layout.offset[plane] = meta->offset[plane];
    layout.stride[plane] = meta->stride[plane];
  }
  return layout;
}

/// Sets `layout.size` as libgstcuda counts: whole rows of the first plane. False where it could not read the picture:
/// it knows one stride, except where a row has nothing behind it.
bool suits_libgstcuda(GstVideoInfo& layout, guint64 address, gsize room) {
  const gint stride = layout.stride[0];
  if (layout.offset[0] != 0 || stride <= 0) return false;
  const bool packed = stride == GST_VIDEO_INFO_COMP_WIDTH(&layout, 0) * GST_VIDEO_INFO_COMP_PSTRIDE(&layout, 0);
  gsize end = 0;
  for (guint plane = 0; plane < GST_VIDEO_INFO_N_PLANES(&layout); ++plane) {
    if (layout.stride[plane] <= 0 || layout.stride[plane] % row_alignment != 0) return false;
    if ((address + layout.offset[plane]) % plane_alignment != 0) return false;
    if (layout.stride[plane] != stride && !packed) return false;
    const PlaneExtent extent = plane_extent(layout, plane);
    end = std::max(end, layout.offset[plane] + extent.rows * static_cast<gsize>(layout.stride[plane]));
  }
  const auto row = static_cast<gsize>(stride);
  layout.size = (end + row - 1) / row * row;
  return layout.size <= room;
}

/// Of bytes side by side, as libgstcuda takes them; it counts in rows, of which there is one with something in it.
GstVideoInfo layout_of_bytes(gsize bytes) {
  const gsize row = std::max<gsize>(bytes, 1);
  if (row > G_MAXINT) {
    throw Error(ErrorCode::not_supported, fmt::format("a tensor of {} is more than CUDA memory of GStreamer can tell, "
                                                      "which is 2 GiB: make it smaller, or hand it on in memory:GPUMap",
                                                      format_bytes(bytes)));
  }
  GstVideoInfo layout;
  gst_video_info_set_format(&layout, GST_VIDEO_FORMAT_GRAY8, 1, 1);
  layout.width = layout.stride[0] = static_cast<gint>(row);  // more than a picture has
  layout.size = row;
  return layout;
}

guint64 address_of(GstMemory* slot) {
  const FrameMemory& frame = *frame_memory(slot);
  return frame.mapping().address(Backend::cuda) + frame.offset() + slot->offset;
}

gpumap_view view_of(const GstVideoInfo& layout, guint64 address) {
  gpumap_view view{};
  for (guint plane = 0; plane < GST_VIDEO_INFO_N_PLANES(&layout); ++plane) {
    view.plane[plane] = address + layout.offset[plane];
    view.stride[plane] = static_cast<gpumap_u32>(layout.stride[plane]);
  }
  return view;
}

void note_layout(GstBuffer* buffer, GstVideoInfo layout) {  // GStreamer 1.22 takes such without const
  if (GstVideoMeta* meta = gst_buffer_get_video_meta(buffer)) {
    std::copy_n(layout.offset, GST_VIDEO_MAX_PLANES, meta->offset);
    std::copy_n(layout.stride, GST_VIDEO_MAX_PLANES, meta->stride);
    return;
  }
  gst_buffer_add_video_meta_full(buffer, GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_INFO_FORMAT(&layout),
                                 GST_VIDEO_INFO_WIDTH(&layout), GST_VIDEO_INFO_HEIGHT(&layout),
                                 GST_VIDEO_INFO_N_PLANES(&layout), layout.offset, layout.stride);
}

/// A slot that is lent to CUDA's elements, and the stream on which they read it.
struct Lent {
  GstMemory* slot;
  GstCudaStream* stream;
};

/// The memory goes. What reads it may still be under way on its stream.
void give_back(gpointer data) {
  const std::unique_ptr<Lent> lent(static_cast<Lent*>(data));
  FrameMemory& frame = *frame_memory(lent->slot);
  try {
    frame.add_read_fence(
        fence_of_cuda_stream(*frame.device(), CudaLibrary::get().gst_cuda_stream_get_handle(lent->stream)));
  } catch (const std::exception&) {
    // The GPU is lost: nothing reads any more.
  }
  CudaLibrary::get().gst_cuda_stream_unref(lent->stream);
  gst_memory_unref(lent->slot);
}

}  // namespace

CudaSlots::~CudaSlots() {
  reset();
}

void CudaSlots::reset() noexcept {
  pool_.reset();
  queue_.reset();
  if (stream_ != nullptr) CudaLibrary::get().gst_cuda_stream_unref(std::exchange(stream_, nullptr));
  device_.reset();
}

void CudaSlots::open(const std::shared_ptr<Device>& device) {
  if (device_ == device) return;
  const std::string obstacle = cuda_obstacle(*device);
  if (!obstacle.empty()) {
    throw Error(
        ErrorCode::not_supported,
        fmt::format("what follows takes memory:CUDAMemory only, and that cannot be given: {}; or put cudaupload "
                    "or an element for system memory (video/x-raw) there",
                    obstacle));
  }
  reset();
  device_ = device;
  if (CudaLibrary::get().has_streams) {
    stream_ = CudaLibrary::get().gst_cuda_stream_new(shared_cuda_context(*device));
  }
}

/// Null: it has CUDA memory already.
GstMemory* CudaSlots::find_slot(GstBuffer* buffer) {
  GstMemory* memory = gst_buffer_n_memory(buffer) == 1 ? gst_buffer_peek_memory(buffer, 0) : nullptr;
  const FrameMemory* slot = frame_memory(memory);
  if (slot == nullptr && is_cuda_memory(memory)) return nullptr;
  if (memory == nullptr || slot == nullptr || !slot->device()) {
    throw Error(ErrorCode::invalid,
                "a frame in host memory was to go to an element of CUDA's: set slots to more than "
                "downstream keeps");
  }
  open(slot->device());
  return memory;
}

GstBuffer* CudaSlots::convert(GstBuffer* buffer, const GstVideoInfo& info, GstPad* peer_of) {
  Ptr<GstBuffer> taken(buffer);
  GstMemory* memory = find_slot(buffer);
  if (memory == nullptr) return taken.release();
  const FrameMemory* slot = frame_memory(memory);
  GstVideoInfo layout = layout_of(buffer, info);
  if (stream_ != nullptr && suits_libgstcuda(layout, address_of(memory), slot->bytes() - memory->offset)) {
    GstMemory* wrapped = wrap(memory, layout);
    gst_buffer_replace_all_memory(buffer, wrapped);
    note_layout(buffer, layout);
    return taken.release();
  }
  copies_.fetch_add(1, std::memory_order_relaxed);
  return copy(buffer, info, peer_of);
}

GstBuffer* CudaSlots::convert_bytes(GstBuffer* buffer) {
  Ptr<GstBuffer> taken(buffer);
  GstMemory* memory = find_slot(buffer);
  if (memory != nullptr) gst_buffer_replace_all_memory(buffer, lend_bytes(gst_memory_ref(memory)));
  return taken.release();
}

GstMemory* CudaSlots::lend_bytes(GstMemory* slot) {
  Ptr<GstMemory> taken(slot);
  open(frame_memory(slot)->device());
  if (stream_ == nullptr) return taken.release();
  GstMemory* made = wrap(slot, layout_of_bytes(slot->size));
  gst_memory_resize(made, 0, slot->size);
  return made;
}

GstMemory* CudaSlots::wrap(GstMemory* slot, const GstVideoInfo& layout) const {
  const CudaLibrary& library = CudaLibrary::get();
  const FrameMemory& frame = *frame_memory(slot);
  const bool under_way = !frame.written().signalled();
  if (under_way) frame.let_cuda_stream_wait(library.gst_cuda_stream_get_handle(stream_));
  auto* lent = new Lent{gst_memory_ref(slot), library.gst_cuda_stream_ref(stream_)};
  GstMemory* made = library.gst_cuda_allocator_alloc_wrapped(nullptr, shared_cuda_context(*device_), stream_, &layout,
                                                             address_of(slot), lent, give_back);
  if (made == nullptr) {
    give_back(lent);
    throw Error(ErrorCode::io, "libgstcuda does not take a slot for its memory: GST_DEBUG=cudaallocator:5 tells why");
  }
  GST_MINI_OBJECT_FLAG_SET(made, GST_MEMORY_FLAG_READONLY);
  if (under_way) GST_MINI_OBJECT_FLAG_SET(made, memory_needs_sync);
  return made;
}

GstBuffer* CudaSlots::copy(GstBuffer* buffer, const GstVideoInfo& info, GstPad* peer_of) {
  GstMemory* memory = gst_buffer_peek_memory(buffer, 0);
  FrameMemory& slot = *frame_memory(memory);
  const GstVideoInfo layout = layout_of(buffer, info);
  if (!queue_) queue_ = create_cuda_queue(*device_, {});
  if (!pool_) {
    const Ptr<GstCaps> caps(gst_pad_get_current_caps(peer_of));
    const Ptr<GstQuery> query(gst_query_new_allocation(caps.get(), TRUE));
    const bool answered = gst_pad_peer_query(peer_of, query.get()) != 0;
    pool_ = cuda_pool(*device_, caps.get(), answered ? query.get() : nullptr);
  }
  gst_buffer_pool_set_active(pool_.get(), TRUE);
  GstBuffer* acquired = nullptr;
  if (gst_buffer_pool_acquire_buffer(pool_.get(), &acquired, nullptr) != GST_FLOW_OK) {
    throw Error(ErrorCode::no_memory,
                fmt::format("no CUDA memory on {} for a frame of {}x{}: nvidia-smi tells what else is on the GPU",
                            name_of(device_->info()), GST_VIDEO_INFO_WIDTH(&info), GST_VIDEO_INFO_HEIGHT(&info)));
  }
  CudaFrame to = map_cuda(*device_, acquired, GST_MAP_WRITE, info);
  take_over(*queue_, to);
  slot.let_cuda_stream_wait(cuda_stream(*queue_));
  GstVideoInfo target = info;
  std::copy_n(to.layout().offset, GST_VIDEO_MAX_PLANES, target.offset);
  std::copy_n(to.layout().stride, GST_VIDEO_MAX_PLANES, target.stride);
  copy_rows(*device_, *queue_, info, view_of(layout, address_of(memory)), view_of(target, to.address()));
  const bool ordered = orders_by_stream(to);
  if (ordered) hand_over(*queue_, to);
  const Fence done = queue_->submit();
  slot.add_read_fence(done);
  if (!ordered) {
    const Giver giver(peer_of);
    await_written(
        done, [&giver] { return giver.stops(); }, "the copy of a frame into CUDA memory");
  }
  GstBuffer* made = to.release();
  // The pool's buffer may have its own.
  if (GstVideoMeta* meta = gst_buffer_get_video_meta(buffer)) gst_buffer_remove_meta(buffer, &meta->meta);
  gst_buffer_copy_into(made, buffer, copy_all_but_memory, 0, static_cast<gsize>(-1));
  note_layout(made, target);
  return made;
}

}  // namespace gpumap::gst
