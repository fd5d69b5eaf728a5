// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "gpumap/device.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/kernel.h"
#include "gpumap/queue.hpp"

// What gpumapkernel asks of libgstcuda, the library of GStreamer's own CUDA elements. Where that is missing there is an
// obstacle to everything, and no memory is CUDA memory.
//
// A CUDA address means nothing in another context, not even in one of the same GPU. So there is one context for all,
// gpumap's, which is the GPU's primary one: the mappings of BAR memory are in it and cannot move. It is wrapped as a
// GstCudaContext, one for each GPU and process, and handed to every neighbour that asks; memory of another is refused.

namespace gpumap::gst {

/// A buffer in CUDA memory, mapped for the GPU. Ownership: a reference to the buffer and the map, both of which end
/// with this. Empty when default-constructed or moved from. Thread safety: one thread at a time.
class CudaFrame {
 public:
  CudaFrame() = default;
  /// Takes `buffer` and the map of its one memory over; `layout` says where in that its planes lie.
  CudaFrame(GstBuffer* buffer, const GstMapInfo& map, const GstVideoMeta& layout);

  [[nodiscard]] explicit operator bool() const noexcept { return mapped_ != nullptr; }
  [[nodiscard]] std::uint64_t address() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Stays where it is when this is moved. GStreamer 1.22 takes such without const.
  [[nodiscard]] GstVideoMeta& layout() const noexcept { return mapped_->layout; }

  [[nodiscard]] GstMemory* memory() const noexcept { return mapped_->map.memory; }

  /// End the map; the buffer (transfer full).
  [[nodiscard]] GstBuffer* release();

 private:
  struct Mapped {
    Mapped(GstBuffer* buffer_of_it, const GstMapInfo& map_of_it, const GstVideoMeta& layout_of_it)
        : buffer(buffer_of_it), map(map_of_it), layout(layout_of_it) {}
    ~Mapped();
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    GstBuffer* buffer;
    GstMapInfo map;
    GstVideoMeta layout;
  };
  std::unique_ptr<Mapped> mapped_;
};

/// Frames that GPU work still uses when their element has handed its output on, or was flushed. They go back by
/// themselves, some ms after that work at the latest: an upstream with few buffers may need them before it can send
/// anything. The owner waits for that work before it destroys this. Thread safety: every member from any thread.
class CudaLoans {
 public:
  CudaLoans() = default;
  ~CudaLoans();
  CudaLoans(const CudaLoans&) = delete;
  CudaLoans& operator=(const CudaLoans&) = delete;

  /// Nothing for an empty one.
  void keep(CudaFrame frame, const Fence& until);
  /// Let those go whose work is done.
  void sweep();
  /// The work of the oldest one, where there are more than `frames`; else a fence that has been signalled.
  [[nodiscard]] Fence excess(std::size_t frames) const;

 private:
  void watch();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Fence, CudaFrame>> held_;
  bool ended_ = false;
  std::thread watcher_;  ///< from the first frame on
};

/// Why kernels that run in `backend` on `device` neither take nor give memory:CUDAMemory, and what to do about it:
/// empty where they do. Opens libgstcuda when first asked about a GPU that has CUDA. Thread-safe.
[[nodiscard]] std::string cuda_obstacle(const Device& device, Backend backend = Backend::cuda);

/// Answer a CONTEXT query of a CUDA element around `element` with `device`'s context; false for any other query, and
/// where there is an obstacle. Thread-safe.
[[nodiscard]] bool answer_cuda_context(GstElement* element, GstQuery* query, const Device& device);
/// Post the context as a "have-context" message, so that the application's and other elements of the pipeline may have
/// it too; not where `element` was given another one. Thread-safe.
void post_cuda_context(GstElement* element, const Device& device);

[[nodiscard]] bool is_cuda_memory(GstMemory* memory);

/// Map `buffer` (transfer full), which has CUDA memory, to be read or written (GST_MAP_READ or GST_MAP_WRITE) by
/// kernels in `device`'s context. Work that is under way on the memory's stream goes on, see take_over(); where
/// GStreamer is older than 1.24 what fills it has ended on return. Throws Error(invalid) for memory of
/// another context, GPU, format or size than `expected`, Error(io) where libgstcuda does not map it.
[[nodiscard]] CudaFrame map_cuda(const Device& device, GstBuffer* buffer, GstMapFlags access,
                                 const GstVideoInfo& expected);

/// The same of bytes that lie side by side, as a tensor's do, whatever picture libgstcuda takes them for.
[[nodiscard]] CudaFrame map_cuda_bytes(const Device& device, GstBuffer* buffer, GstMapFlags access);
/// Whether `memory` is such as map_cuda() takes on `device`.
[[nodiscard]] bool is_cuda_memory_of(const Device& device, GstMemory* memory);

/// What `queue` is given from here on starts after what is under way on the frame's stream: what fills the
/// memory, or what still reads what was there before. The GPU waits. Throws Error(device_lost).
void take_over(Queue& queue, const CudaFrame& frame);
/// The frame names a stream, so that hand_over() orders who comes next. (GStreamer 1.24 and later, as a rule.)
[[nodiscard]] bool orders_by_stream(const CudaFrame& frame);
/// What is put on the frame's stream from here on starts after all that `queue` was given, and the memory says that
/// others have to wait for that stream. Nothing where it names none. Throws Error(device_lost).
void hand_over(Queue& queue, const CudaFrame& frame);

struct EndPool {
  void operator()(GstBufferPool* pool) const noexcept {
    gst_buffer_pool_set_active(pool, FALSE);
    gst_object_unref(pool);
  }
};
using CudaPool = std::unique_ptr<GstBufferPool, EndPool>;

/// The pool for frames of `caps`: that of `query` (an ALLOCATION query that downstream has answered) where it is one of
/// CUDA memory in `device`'s context, else a new one. It has no limit, and is to be activated. Throws Error(no_memory).
[[nodiscard]] CudaPool cuda_pool(const Device& device, GstCaps* caps, GstQuery* query);
/// Offer a new one to the upstream that asks with an ALLOCATION `query`. False where there is none to be had.
bool propose_cuda_pool(const Device& device, GstQuery* query);

/// Copy the rows of all planes of a picture as `info` describes it, on a CUDA queue of `device`, from view to view,
/// which may have other strides. Throws Error(device_lost | invalid).
void copy_rows(const Device& device, Queue& queue, const GstVideoInfo& info, const gpumap_view& from,
               const gpumap_view& to);
/// Copy `bytes` bytes likewise, from address to address; at most 2 GiB, which is the most that a GstCudaMemory holds.
void copy_bytes(const Device& device, Queue& queue, std::uint64_t from, std::uint64_t to, std::size_t bytes);

}  // namespace gpumap::gst
