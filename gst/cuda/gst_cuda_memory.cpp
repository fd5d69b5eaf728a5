// SPDX-License-Identifier: MIT
#include "gst/cuda/gst_cuda_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <vector>

#include "gpumap/cuda.hpp"
#include "gpumap/error.hpp"
#include "gpumap/thread_schedule.hpp"
#include "gst/cuda/gst_cuda_context.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

CudaFrame::CudaFrame(GstBuffer* buffer, const GstMapInfo& map, const GstVideoMeta& layout)
    : mapped_(std::make_unique<Mapped>(buffer, map, layout)) {}

CudaFrame::Mapped::~Mapped() {
  gst_memory_unmap(map.memory, &map);
  if (buffer != nullptr) gst_buffer_unref(buffer);
}

std::uint64_t CudaFrame::address() const noexcept {
  return reinterpret_cast<std::uintptr_t>(mapped_->map.data);
}

std::size_t CudaFrame::bytes() const noexcept {
  return mapped_->map.size;
}

GstBuffer* CudaFrame::release() {
  GstBuffer* buffer = std::exchange(mapped_->buffer, nullptr);
  mapped_.reset();
  return buffer;
}

CudaLoans::~CudaLoans() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  // Ends: the thread looks at ended_ every 2 ms, and asks fences without waiting for them.
  if (watcher_.joinable()) watcher_.join();
}

void CudaLoans::keep(CudaFrame frame, const Fence& until) {
  if (!frame) return;
  {
    const std::lock_guard lock(mutex_);
    held_.emplace_back(until, std::move(frame));
    if (!watcher_.joinable()) {
      watcher_ = start_thread("gpumap-cuda", "frames of CUDA elements", [this] { watch(); });
    }
  }
  changed_.notify_all();
}

void CudaLoans::sweep() {
  std::vector<CudaFrame> done;  // given back outside of the lock: a pool may call anything
  const std::lock_guard lock(mutex_);
  std::erase_if(held_, [&done](auto& loan) {
    if (!loan.first.signalled()) return false;
    done.push_back(std::move(loan.second));
    return true;
  });
}

Fence CudaLoans::excess(std::size_t frames) const {
  const std::lock_guard lock(mutex_);
  return held_.size() > frames ? held_.front().first : Fence();
}

/// The next frame sweeps as a rule. Where none comes, this does.
void CudaLoans::watch() {
  constexpr std::chrono::milliseconds patience{2};
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [this] { return ended_ || !held_.empty(); });
    if (changed_.wait_for(lock, patience, [this] { return ended_; })) return;
    lock.unlock();
    try {
      sweep();
    } catch (const std::exception&) {
      // The device is lost, and the streaming thread finds out.
    }
    lock.lock();
  }
}

namespace {

std::string text_of(const GstVideoInfo& info) {
  return fmt::format("{} {}x{}", gst_video_format_to_string(GST_VIDEO_INFO_FORMAT(&info)), GST_VIDEO_INFO_WIDTH(&info),
                     GST_VIDEO_INFO_HEIGHT(&info));
}

/// The memory says where its planes lie; a meta could only repeat it.
GstVideoMeta layout_of(const GstVideoInfo& info) {
  GstVideoMeta layout{};
  layout.format = GST_VIDEO_INFO_FORMAT(&info);
  layout.width = static_cast<guint>(GST_VIDEO_INFO_WIDTH(&info));
  layout.height = static_cast<guint>(GST_VIDEO_INFO_HEIGHT(&info));
  layout.n_planes = GST_VIDEO_INFO_N_PLANES(&info);
  std::copy_n(info.offset, GST_VIDEO_MAX_PLANES, layout.offset);
  std::copy_n(info.stride, GST_VIDEO_MAX_PLANES, layout.stride);
  return layout;
}

void check_context(const Device& device, const GstCudaMemory& memory) {
  if (is_shared_context(device, memory.context)) return;
  guint other = 0;
  g_object_get(memory.context, "cuda-device-id", &other, nullptr);
  const int own = cuda_handles(device).device;
  if (other != static_cast<guint>(own)) {
    throw Error(ErrorCode::invalid,
                fmt::format("a frame in the CUDA memory of GPU {} reached a gpumapkernel on {}, which is CUDA's GPU "
                            "{}: give both elements the same GPU (device of gpumapkernel, cuda-device-id of the other)",
                            other, name_of(device.info()), own));
  }
  throw Error(ErrorCode::invalid,
              fmt::format("a frame in another CUDA context of {} reached gpumapkernel, and an address in one context "
                          "means nothing in another: let gpumapkernel give its context, which it does to elements "
                          "linked to it and by a have-context message, instead of setting another on the pipeline; "
                          "or put cudadownload, gpumapsink and gpumapsrc between the two",
                          name_of(device.info())));
}

void check_picture(const GstCudaMemory& memory, const GstVideoInfo& expected) {
  if (GST_VIDEO_INFO_FORMAT(&memory.info) != GST_VIDEO_INFO_FORMAT(&expected) ||
      GST_VIDEO_INFO_WIDTH(&memory.info) < GST_VIDEO_INFO_WIDTH(&expected) ||
      GST_VIDEO_INFO_HEIGHT(&memory.info) < GST_VIDEO_INFO_HEIGHT(&expected)) {
    throw Error(ErrorCode::invalid, fmt::format("a frame in CUDA memory laid out for {} where the caps say {}: see "
                                                "what upstream sends",
                                                text_of(memory.info), text_of(expected)));
  }
}

/// Bytes lie side by side where there is one row, or none has something behind it.
void check_bytes(const GstCudaMemory& memory) {
  const PlaneExtent extent = plane_extent(memory.info, 0);
  if (extent.rows <= 1 || static_cast<std::size_t>(memory.info.stride[0]) == extent.row_bytes) return;
  throw Error(ErrorCode::invalid,
              fmt::format("a tensor in CUDA memory came in rows of {} bytes every {} bytes, and its "
                          "bytes have to lie side by side: have upstream give it in one row",
                          extent.row_bytes, memory.info.stride[0]));
}

/// Before 1.24 elements wait for what fills their memory, but a copy within the GPU (gst_buffer_make_writable()) is
/// left on the context's default stream, which our own streams do not wait for.
void wait_for_copies(GstCudaMemory* memory) {
  const CudaScope scope(memory->context);
  // Ends: such copies are all that this waits for; GStreamer's elements have waited for what they launched.
  CudaLibrary::get().CuStreamSynchronize(nullptr);
}

/// The CUstream that the memory names; empty: none, or GStreamer is older.
std::optional<void*> stream_of(GstCudaMemory* memory) {
  const CudaLibrary& library = CudaLibrary::get();
  GstCudaStream* stream = library.has_streams ? library.gst_cuda_memory_get_stream(memory) : nullptr;
  if (stream == nullptr) return {};
  return library.gst_cuda_stream_get_handle(stream);
}

/// `stream` (may be null) is for a pool that names none.
bool configure(GstBufferPool* pool, GstCaps* caps, guint bytes, guint min, GstCudaStream* stream) {
  GstStructure* config = gst_buffer_pool_get_config(pool);
  gst_buffer_pool_config_set_params(config, caps, bytes, min, 0);
  gst_buffer_pool_config_add_option(config, GST_BUFFER_POOL_OPTION_VIDEO_META);
  // Encoders register memory with the driver's video part, which takes none that was allocated in a stream's order.
  const CudaLibrary& library = CudaLibrary::get();
  if (library.gst_buffer_pool_config_set_cuda_stream_ordered_alloc != nullptr) {
    library.gst_buffer_pool_config_set_cuda_stream_ordered_alloc(config, FALSE);
  }
  if (stream != nullptr) library.gst_buffer_pool_config_set_cuda_stream(config, stream);
  return gst_buffer_pool_set_config(pool, config) != 0;
}

/// Downstream's, in our context; null where it has none.
GstBufferPool* offered_pool(const Device& device, GstCaps* caps, GstQuery* query) {
  if (query == nullptr || gst_query_get_n_allocation_pools(query) == 0) return nullptr;
  GstBufferPool* pool = nullptr;
  guint bytes = 0;
  guint min = 0;
  gst_query_parse_nth_allocation_pool(query, 0, &pool, &bytes, &min, nullptr);
  if (pool == nullptr) return nullptr;
  Ptr<GstBufferPool> owned(pool);
  const bool fits = G_TYPE_CHECK_INSTANCE_TYPE(pool, CudaLibrary::get().gst_cuda_buffer_pool_get_type()) &&
                    is_shared_context(device, reinterpret_cast<GstCudaBufferPool*>(pool)->context) &&
                    configure(pool, caps, bytes, min, nullptr);
  return fits ? owned.release() : nullptr;
}

GstBufferPool* new_pool(const Device& device, GstCaps* caps) {
  GstCudaContext* context = shared_cuda_context(device);
  GstVideoInfo info;
  if (context == nullptr || !gst_video_info_from_caps(&info, caps)) return nullptr;
  const CudaLibrary& library = CudaLibrary::get();
  Ptr<GstBufferPool> pool(library.gst_cuda_buffer_pool_new(context));
  // One of its own: what shares a stream waits for all that is on it.
  GstCudaStream* stream = library.has_streams ? library.gst_cuda_stream_new(context) : nullptr;
  const bool configured = configure(pool.get(), caps, static_cast<guint>(GST_VIDEO_INFO_SIZE(&info)), 0, stream);
  if (stream != nullptr) library.gst_cuda_stream_unref(stream);
  return configured ? pool.release() : nullptr;
}

}  // namespace

bool is_cuda_memory(GstMemory* memory) {
  // By its name: asking libgstcuda would open it where no CUDA memory can be.
  return memory != nullptr && gst_memory_is_type(memory, cuda_memory_type) != 0 && CudaLibrary::get().problem.empty() &&
         CudaLibrary::get().gst_is_cuda_memory(memory) != 0;
}

bool is_cuda_memory_of(const Device& device, GstMemory* memory) {
  return is_cuda_memory(memory) && is_shared_context(device, reinterpret_cast<GstCudaMemory*>(memory)->context);
}

namespace {

/// `check` says what is wrong with how the memory lies, by throwing.
template <typename Check>
CudaFrame map_checked(const Device& device, GstBuffer* buffer, GstMapFlags access, Check check) {
  const Ptr<GstBuffer> owner(buffer);
  GstMemory* memory = gst_buffer_n_memory(buffer) == 1 ? gst_buffer_peek_memory(buffer, 0) : nullptr;
  if (memory == nullptr || !is_cuda_memory(memory)) {
    throw Error(
        ErrorCode::invalid,
        "a frame that is not in one piece of CUDA memory came under memory:CUDAMemory: see what upstream sends");
  }
  auto* cuda = reinterpret_cast<GstCudaMemory*>(memory);
  check_context(device, *cuda);
  check(*cuda);
  GstMapInfo map;
  if (!gst_memory_map(memory, &map, static_cast<GstMapFlags>(access | map_for_cuda))) {
    throw Error(ErrorCode::io,
                "libgstcuda cannot map a frame for the GPU, perhaps because another element holds it for "
                "writing: GST_DEBUG=cudaallocator:4,GST_MEMORY:5 tells why");
  }
  CudaFrame frame(gst_buffer_ref(buffer), map, layout_of(cuda->info));
  if ((access & GST_MAP_READ) != 0 && !CudaLibrary::get().has_streams) wait_for_copies(cuda);
  return frame;
}

}  // namespace

CudaFrame map_cuda(const Device& device, GstBuffer* buffer, GstMapFlags access, const GstVideoInfo& expected) {
  return map_checked(device, buffer, access, [&](const GstCudaMemory& memory) { check_picture(memory, expected); });
}

CudaFrame map_cuda_bytes(const Device& device, GstBuffer* buffer, GstMapFlags access) {
  return map_checked(device, buffer, access, check_bytes);
}

void take_over(Queue& queue, const CudaFrame& frame) {
  const auto stream = stream_of(reinterpret_cast<GstCudaMemory*>(frame.memory()));
  if (stream) wait_for_cuda_stream(queue, *stream);
}

bool orders_by_stream(const CudaFrame& frame) {
  return stream_of(reinterpret_cast<GstCudaMemory*>(frame.memory())).has_value();
}

void hand_over(Queue& queue, const CudaFrame& frame) {
  const auto stream = stream_of(reinterpret_cast<GstCudaMemory*>(frame.memory()));
  if (!stream) return;
  let_cuda_stream_wait(queue, *stream);
  GST_MINI_OBJECT_FLAG_SET(frame.memory(), memory_needs_sync);
}

CudaPool cuda_pool(const Device& device, GstCaps* caps, GstQuery* query) {
  GstBufferPool* pool = offered_pool(device, caps, query);
  if (pool == nullptr) pool = new_pool(device, caps);
  if (pool == nullptr) {
    const Ptr<gchar> frames(gst_caps_to_string(caps));
    throw Error(ErrorCode::no_memory,
                fmt::format("no CUDA memory on {} for frames of {}: nvidia-smi tells what else is on the GPU",
                            name_of(device.info()), frames.get()));
  }
  return CudaPool(pool);
}

bool propose_cuda_pool(const Device& device, GstQuery* query) {
  GstCaps* caps = nullptr;
  gst_query_parse_allocation(query, &caps, nullptr);
  const bool pictures = caps != nullptr && gst_structure_has_name(gst_caps_get_structure(caps, 0), "video/x-raw") != 0;
  const Ptr<GstBufferPool> pool(pictures ? new_pool(device, caps) : nullptr);
  if (!pool) return false;
  guint bytes = 0;
  const Ptr<GstStructure> config(gst_buffer_pool_get_config(pool.get()));
  gst_buffer_pool_config_get_params(config.get(), nullptr, &bytes, nullptr, nullptr);
  gst_query_add_allocation_pool(query, pool.get(), bytes, 0, 0);
  return true;
}

namespace {

struct Rows {
  std::uint64_t address;
  std::size_t pitch;
};

/// Throws Error(device_lost), which says that `what()` cannot be copied.
template <typename What>
void copy_extent(const Device& device, Queue& queue, const PlaneExtent& extent, const Rows& from, const Rows& to,
                 What what) {
  const CudaLibrary& library = CudaLibrary::get();
  auto* stream = static_cast<CUstream>(cuda_stream(queue));
  const CudaScope scope(shared_cuda_context(device));
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from.address;
  copy.srcPitch = from.pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to.address;
  copy.dstPitch = to.pitch;
  copy.WidthInBytes = extent.row_bytes;
  copy.Height = extent.rows;
  const CUresult result = library.CuMemcpy2DAsync(&copy, stream);
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  library.CuGetErrorName(result, &name);
  throw Error(ErrorCode::device_lost, fmt::format("CUDA cannot copy {} within {}: {}", what(), name_of(device.info()),
                                                  name != nullptr ? name : "an unknown error"));
}

}  // namespace

void copy_rows(const Device& device, Queue& queue, const GstVideoInfo& info, const gpumap_view& from,
               const gpumap_view& to) {
  for (guint plane = 0; plane < GST_VIDEO_INFO_N_PLANES(&info); ++plane) {
    copy_extent(device, queue, plane_extent(info, plane), {from.plane[plane], from.stride[plane]},
                {to.plane[plane], to.stride[plane]},
                [&] { return fmt::format("plane {} of a frame of {}", plane, text_of(info)); });
  }
}

void copy_bytes(const Device& device, Queue& queue, std::uint64_t from, std::uint64_t to, std::size_t bytes) {
  copy_extent(device, queue, {.row_bytes = bytes, .rows = 1}, {from, bytes}, {to, bytes},
              [bytes] { return fmt::format("a tensor of {}", format_bytes(bytes)); });
}

}  // namespace gpumap::gst
