// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "gpumap/block_pool.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/vulkan/transfer.hpp"

namespace gpumap::gst {

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
