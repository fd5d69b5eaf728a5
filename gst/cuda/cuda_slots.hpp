// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <atomic>
#include <memory>

#include "gpumap/device.hpp"
#include "gpumap/queue.hpp"
#include "gst/cuda/gst_cuda_context.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"

namespace gpumap::gst {

/// Slots, and tensors that kernels give, as memory of GStreamer's own CUDA elements (libgstcuda): the slot itself,
/// which is read-only and is lent until all that was put on its memory's stream before the memory goes has ended. Where
/// that cannot be, a copy within the GPU: with GStreamer before 1.24, and where rows and planes do not lie as CUDA's
/// textures take them, or as libgstcuda copies them for the CPU. Bytes side by side need GStreamer 1.24. Thread safety:
/// one thread at a time, copies() from any.
class CudaSlots {
 public:
  CudaSlots() = default;
  ~CudaSlots();
  CudaSlots(const CudaSlots&) = delete;
  CudaSlots& operator=(const CudaSlots&) = delete;

  /// Other caps, or another downstream: it may have another pool.
  void forget_pool() noexcept { pool_.reset(); }
  /// Let go of what belongs to a device. At the end of a stream.
  void reset() noexcept;

  /// `buffer` (taken), a slot with a picture of `info`, whose GstVideoMeta says how it lies where that is not the
  /// default layout; transfer full. It is returned as it is where it has CUDA memory already. `peer_of` is the pad
  /// whose downstream is asked for a pool where a copy is to be made. Throws Error(not_supported) where there is no
  /// CUDA, Error(no_memory | io | device_lost).
  [[nodiscard]] GstBuffer* convert(GstBuffer* buffer, const GstVideoInfo& info, GstPad* peer_of);
  /// The same of one with bytes side by side, as a tensor's are: for libgstcuda a row of GRAY8.
  [[nodiscard]] GstBuffer* convert_bytes(GstBuffer* buffer);
  /// `slot` (taken), memory of ours with such bytes, as CUDA memory; as it is where GStreamer is older than 1.24
  /// (transfer full). Throws likewise.
  [[nodiscard]] GstMemory* lend_bytes(GstMemory* slot);
  [[nodiscard]] guint64 copies() const noexcept { return copies_.load(std::memory_order_relaxed); }

 private:
  void open(const std::shared_ptr<Device>& device);
  [[nodiscard]] GstMemory* find_slot(GstBuffer* buffer);
  [[nodiscard]] GstMemory* wrap(GstMemory* slot, const GstVideoInfo& layout) const;
  [[nodiscard]] GstBuffer* copy(GstBuffer* buffer, const GstVideoInfo& info, GstPad* peer_of);

  std::shared_ptr<Device> device_;
  GstCudaStream* stream_ = nullptr;
  std::unique_ptr<Queue> queue_;  ///< for copies, from the first one on
  CudaPool pool_;
  std::atomic<guint64> copies_{0};
};

/// Rows of this many bytes, or a multiple, are what CUDA's textures take: for pools whose slots go to CUDA's elements.
inline constexpr guint cuda_row_bytes = 512;

}  // namespace gpumap::gst
