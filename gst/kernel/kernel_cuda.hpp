// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <memory>
#include <utility>

#include "gpumap/kernel_launcher.hpp"
#include "gst/cuda/cuda_frame.hpp"
#include "gst/cuda/cuda_slots.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"

namespace gpumap::gst {

/// A kernel's frames in the memory of GStreamer's own CUDA elements. Thread safety: one thread at a time.
class CudaFrames {
 public:
  /// `launcher` outlives it.
  explicit CudaFrames(KernelLauncher& launcher) : launcher_(launcher) {}

  /// For frames of `caps` that the kernel writes: downstream's where `query` (may be null) has one that fits. Throws
  /// Error(no_memory).
  void choose_pool(GstCaps* caps, GstQuery* query) { pool_ = cuda_pool(launcher_.device(), caps, query); }
  void drop_pool() noexcept { pool_.reset(); }
  [[nodiscard]] bool has_pool() const noexcept { return pool_ != nullptr; }

  /// Map `in`, a picture of `info`, for the kernel to read. What the launcher is given from here on starts after what
  /// fills it. Empty when cancelled. Throws Error.
  [[nodiscard]] CudaFrame map(GstBuffer* in, const GstVideoInfo& info);
  /// The same of a tensor.
  [[nodiscard]] CudaFrame map_bytes(GstBuffer* in);
  /// A frame of the pool's for the kernel to write a picture of `info` into. What the launcher is given from here on
  /// starts after what still reads what was there before. Empty when cancelled. Throws Error.
  [[nodiscard]] CudaFrame take(const GstVideoInfo& info);
  /// Copies pictures of `info`, which outlives it.
  [[nodiscard]] CopyPicture copier(const GstVideoInfo& info) const;
  [[nodiscard]] CopyPicture copier_of_bytes() const;  ///< copies tensors

  /// `out` (taken), a tensor in memory of ours, as CUDA memory (transfer full). Null when cancelled. Throws Error.
  [[nodiscard]] GstBuffer* lend(GstBuffer* out);
  /// Memory of ours (taken) with a tensor that goes beside a frame, likewise; as it is where GStreamer is older than
  /// 1.24.
  [[nodiscard]] GstMemory* lend(GstMemory* tensor) { return slots_.lend_bytes(tensor); }

  /// The GPU uses `frame` (may be empty) until then.
  void keep(CudaFrame frame, const Fence& until) { loans_->keep(std::move(frame), until); }
  /// Upstream gets its buffer back when the GPU has read it. Not many are kept: its pool may be small. False when
  /// cancelled. Throws Error(device_lost).
  [[nodiscard]] bool give_back(CudaFrame frame, const Fence& read);
  /// Let those go that the GPU is done with.
  void sweep() { loans_->sweep(); }
  /// The GPU never gets done with what is kept: that stays allocated.
  void leave() { keep_for_good(std::shared_ptr<CudaLoans>(std::move(loans_))); }

 private:
  KernelLauncher& launcher_;
  CudaPool pool_;
  CudaSlots slots_;
  std::unique_ptr<CudaLoans> loans_ = std::make_unique<CudaLoans>();
};

}  // namespace gpumap::gst
