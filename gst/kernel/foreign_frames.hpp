// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "gpumap/block_pool.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "gst/cuda/cuda_slots.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/vulkan/transfer.hpp"

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

/// A kernel's frames in the memory of GStreamer's own Vulkan elements: the kernel reads a copy in memory of its own,
/// and what it wrote there is copied out. Thread safety: one thread at a time, but for what says otherwise.
class VulkanFrames {
 public:
  enum class Side { in, out };

  /// `launcher` outlives it.
  explicit VulkanFrames(KernelLauncher& launcher) : launcher_(launcher) {}

  /// A stream begins: it is not known any more where frames lie.
  void set_caps(const GstCaps* in, const GstCaps* out);
  /// The frames of that side lie on another device than use_site() told last.
  [[nodiscard]] bool needs_site(Side side, const GstVulkanDevice* device) const noexcept;
  /// Where the frames of that side lie, which is told before the first frame of theirs and when that changes. Throws
  /// Error(not_supported | device_lost).
  void use_site(Side side, VulkanSite site);
  /// For frames of `caps`, which are `format`, on the site of the output. Throws Error(no_memory).
  void make_pool(GstCaps* caps, const FrameFormat& format);
  void drop_pool() noexcept { pool_.reset(); }
  [[nodiscard]] bool has_pool() const noexcept { return pool_ != nullptr; }

  /// The output's device imports device memory of the launcher's.
  [[nodiscard]] bool imports_output() const noexcept { return out_.transfer->shares(); }
  /// Where the kernel writes no output, the frame that came in goes on itself.
  [[nodiscard]] bool hands_on() const noexcept {
    return same_memory_ && in_.transfer->device() == out_.transfer->device();
  }

  /// A copy of `in` in memory of the launcher's. Empty when cancelled. Throws Error.
  [[nodiscard]] LentBlock copy_in(GstBuffer* in, const FrameFormat& format);
  /// A frame (transfer full) with a copy of what was `made`, or of `input` where that goes on. `meta`: how the picture
  /// lies there; null: in its usual layout. Null when cancelled. Throws Error.
  [[nodiscard]] GstBuffer* copy_out(const FrameInput& input, FrameOutput& made, const FrameFormat& format,
                                    const GstVideoMeta* meta);

  // Copies of frames so far, on the GPU and by the CPU. From any thread.
  [[nodiscard]] std::uint64_t gpu_copies() const noexcept { return gpu_copies_; }
  [[nodiscard]] std::uint64_t host_copies() const noexcept { return host_copies_; }

 private:
  struct Place {
    std::unique_ptr<VulkanTransfer> transfer;
    std::shared_ptr<BlockPool> blocks;  ///< memory of the launcher's for one frame at a time
  };

  KernelLauncher& launcher_;
  Place in_, out_;
  CudaPool pool_;
  bool same_memory_ = false;  ///< images, or buffers, on both sides
  std::atomic<std::uint64_t> gpu_copies_{0}, host_copies_{0};
};

}  // namespace gpumap::gst
