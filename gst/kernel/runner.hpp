// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gpumap/kernel_launcher.hpp"
#include "gpumap/latency.hpp"
#include "gst/cuda/frame.hpp"
#include "gst/cuda/memory.hpp"
#include "gst/kernel/continuity.hpp"
#include "gst/kernel/declared_caps.hpp"
#include "gst/kernel/frame_times.hpp"
#include "gst/kernel/metas.hpp"
#include "gst/kernel/result.hpp"
#include "gst/kernel/tensors.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/memory/memory.hpp"
#include "gst/ptr.hpp"
#include "gst/vulkan/caps.hpp"
#include "gst/vulkan/transfer.hpp"

namespace gpumap::gst {

/// Runs one kernel on each buffer of a stream: a KernelLauncher for GStreamer's caps, buffers, times and metas. Thread
/// safety: one thread at a time; cancel() from any thread.
class KernelRunner {
 public:
  /// Compiles and loads, for `device`, or for the one that `settings` choose where that is null. Throws Error.
  explicit KernelRunner(const KernelSettings& settings, std::shared_ptr<Device> device = nullptr);
  ~KernelRunner();  ///< as KernelLauncher::end()
  KernelRunner(const KernelRunner&) = delete;
  KernelRunner& operator=(const KernelRunner&) = delete;

  /// The stream's caps. What comes out stays in GPU memory or goes into CUDA's or Vulkan's where `out` asks for that,
  /// else it comes down to host memory. Throws Error.
  void set_caps(const GstCaps* in, const GstCaps* out);
  /// Whether what follows knows raw video in GStreamer's default layout alone.
  void set_default_layout_only(bool only) noexcept { default_layout_only_ = only; }
  /// True between caps that ask for CUDA memory and choose_cuda_pool(), which comes before the first frame of theirs.
  [[nodiscard]] bool lacks_cuda_pool() const noexcept { return cuda_output_ && !cuda_pool_; }
  /// The pool for frames of `caps`: downstream's where `query` (may be null) has one that fits. Throws
  /// Error(no_memory).
  void choose_cuda_pool(GstCaps* caps, GstQuery* query) { cuda_pool_ = cuda_pool(device(), caps, query); }
  /// The caps ask for Vulkan's memory on that side.
  enum class VulkanSide { in, out };
  [[nodiscard]] bool is_vulkan(VulkanSide side) const noexcept {
    return side == VulkanSide::in ? vulkan_input_ : vulkan_output_;
  }
  /// Its frames lie on another device than use_vulkan_site() told last.
  [[nodiscard]] bool needs_vulkan_site(VulkanSide side, const GstVulkanDevice* device) const noexcept {
    const auto& transfer = side == VulkanSide::in ? vulkan_in_ : vulkan_out_;
    return !transfer || transfer->device() != device;
  }
  /// Where the frames of that side lie, which is told before the first frame of theirs and when that changes. Throws
  /// Error(not_supported | device_lost).
  void use_vulkan_site(VulkanSide side, VulkanSite site);
  /// True between caps that ask for Vulkan memory and make_vulkan_pool().
  [[nodiscard]] bool lacks_vulkan_pool() const noexcept { return vulkan_output_ && !vulkan_pool_; }
  void drop_vulkan_pool() noexcept { vulkan_pool_.reset(); }
  /// For frames of `caps`, on the site of the output. Throws Error(no_memory).
  void make_vulkan_pool(GstCaps* caps);
  /// As gpumap::gst::cuda_obstacle() of its device and backend. From any thread.
  [[nodiscard]] std::string cuda_obstacle() const { return gpumap::gst::cuda_obstacle(device(), launcher_->backend()); }
  [[nodiscard]] const Device& device() const noexcept { return launcher_->device(); }  ///< from any thread
  void set_params(const std::string& params);  ///< throws Error(invalid), and then leaves them as they were
  [[nodiscard]] std::string params() const { return launcher_->params(); }  ///< in force; from any thread
  /// As KernelLauncher::reload(), and the next.
  [[nodiscard]] std::optional<std::string> reload();
  [[nodiscard]] std::string refresh_tables() { return launcher_->refresh_tables(); }

  /// What the kernel keeps from frame to frame is as new: set_caps() does so too.
  void begin();

  /// Why `in` cannot be run on, though the stream goes on: it is shorter than the caps say, or its producer has taken
  /// it back. Else empty.
  [[nodiscard]] std::string shortfall(GstBuffer* in) const;
  /// Frames are missing before the next one, though it may not say so.
  void break_off() noexcept { continuity_.break_off(); }
  /// `in` comes after a hole, over which the kernel is to remember nothing.
  [[nodiscard]] bool begins_anew_at(const GstBuffer* in) const {
    return continuity_.breaks_at(in) && !begun_anew_ && launcher_->remembers();
  }
  /// What comes out is later by this than what went in, in the stream's time. From any thread.
  [[nodiscard]] GstClockTime latency() const noexcept { return latency_ns_.load(std::memory_order_relaxed); }

  /// Launch on `in`; after a hole what is kept from frame to frame is as new. The result (transfer full)
  /// carries `in`'s flags, times and, for a kernel with a result, a custom meta "GpumapResult". Null when cancelled,
  /// only remembered or dropped. Throws Error, of which Error(device_lost) names the kernel.
  [[nodiscard]] GstBuffer* run(GstBuffer* in);
  /// What may have gone wrong with the last run()'s frame, see Program::risk.
  [[nodiscard]] std::string risk() const { return launcher_->risk(); }
  /// The kernel gave nothing of the last run()'s frame.
  [[nodiscard]] bool dropped() const noexcept { return dropped_; }
  /// The last run()'s frame went into what later ones will give, and gives nothing itself.
  [[nodiscard]] bool only_remembered() const noexcept { return only_remembered_; }
  /// Wait for all that was launched, and for its results. Throws Error(device_lost).
  void drain();

  /// Makes a waiting run() return, until called with false.
  void cancel(bool cancelled) noexcept {
    cancelled_.store(cancelled, std::memory_order_relaxed);
    launcher_->cancel(cancelled);
  }

  /// That sm-share gave the kernel; 0: it runs on all. From any thread.
  [[nodiscard]] guint multiprocessors() const noexcept { return launcher_->multiprocessors(); }
  /// Whether frames come in or go out in CUDA memory.
  [[nodiscard]] bool meets_cuda_elements() const noexcept { return cuda_input_ || cuda_output_; }
  /// The end of what was launched last. From any thread.
  [[nodiscard]] Fence last_launched() const { return launcher_->last_launched(); }
  [[nodiscard]] const std::string& name() const noexcept { return launcher_->name(); }
  /// As they were when it was made. From any thread, as the next one.
  [[nodiscard]] const KernelSettings& settings() const noexcept { return launcher_->settings(); }
  /// What the kernel that runs takes and gives; one that takes its place gives the same.
  [[nodiscard]] const DeclaredCaps& declared() const noexcept { return declared_; }

  /// "gpumapkernel-stats" (transfer full): kernel, backend, frames since the start, and "latency" of the channel whose
  /// frames come with stamps. From any thread.
  [[nodiscard]] GstStructure* stats() const;

  /// Frames that follow have nothing to do with those before, whose results are dropped.
  void flush() {
    launcher_->forget_results();
    result_.forget();
    begin();
  }
  /// See which results have come.
  void collect_results() { result_.collect(*launcher_); }
  /// The next that was found out, in order of frames, for an element message: null where that is all. Transfer full.
  [[nodiscard]] GstStructure* take_result() noexcept { return result_.take_message(); }

 private:
  /// An input buffer, as it is launched on.
  struct Input {
    FrameInput frame;
    CudaFrame cuda;   ///< empty in memory of ours
    LentBlock block;  ///< that holds a copy of a frame in Vulkan's memory; else empty
    GstVideoMeta* meta = nullptr;
    MappedTensors tensors;
    bool is_cut = false;  ///< the kernel sees the part that a GstVideoCropMeta leaves
  };
  [[nodiscard]] ResultRule result_rule() const;
  void follow_params();
  [[nodiscard]] Input input_of(GstBuffer* in) const;
  [[nodiscard]] Input cuda_input_of(GstBuffer* in) const;
  /// The kernel writes no output: the input is handed on, where that is not to leave CUDA memory.
  [[nodiscard]] bool in_place() const noexcept { return launcher_->declaration().unchanged; }
  /// Copies pictures of `format`, which outlives it, within CUDA memory.
  [[nodiscard]] CopyPicture rows_of(const FrameFormat& format) const;
  /// Empty when cancelled.
  [[nodiscard]] CudaFrame take_cuda_frame();
  /// A copy in memory of ours. Nothing when cancelled.
  [[nodiscard]] std::optional<Input> vulkan_input_of(GstBuffer* in);
  /// A frame with a copy of what the kernel gave, or of the input that goes on. Null when cancelled.
  [[nodiscard]] GstBuffer* vulkan_output_of(const Input& input, FrameOutput& made);
  void set_vulkan_caps(const GstCaps* in, const GstCaps* out);
  /// The input itself goes on where the kernel writes none.
  [[nodiscard]] bool hands_vulkan_on() const noexcept;
  [[nodiscard]] GstBuffer* run_on(GstBuffer* in);
  [[nodiscard]] bool keep_until(CudaFrame frame, const Fence& done);
  [[nodiscard]] GstBuffer* buffer_of(GstBuffer* in, Input& input, FrameOutput& made, CudaFrame& cuda);
  void tell_tensors(GstBuffer* out, GstBuffer* in, FrameOutput& made, std::uint64_t sequence) const;
  void keep_result(const GstBuffer* in, const Input& input, std::uint64_t bytes);
  void count(const FrameTrace* trace);
  void set_times_of_shortened(GstBuffer* out, std::size_t given) const;

  std::unique_ptr<KernelLauncher> launcher_;
  DeclaredCaps declared_;
  KernelResult result_;
  FrameFormat in_format_, out_format_;
  Ptr<GstCaps> in_caps_;  ///< null: none yet
  Ptr<GstCaps> out_caps_;
  MetaRule metas_;
  std::string tensor_id_;  ///< of an output that is a tensor itself
  bool gpu_output_ = true;
  bool cuda_input_ = false, cuda_output_ = false;  ///< memory:CUDAMemory
  CudaPool cuda_pool_;
  std::unique_ptr<CudaLoans> loans_ = std::make_unique<CudaLoans>();
  bool vulkan_input_ = false, vulkan_output_ = false;  ///< memory:VulkanImage or memory:VulkanBuffer
  bool same_vulkan_memory_ = false;                    ///< the one of these on both sides
  std::unique_ptr<VulkanTransfer> vulkan_in_, vulkan_out_;
  std::shared_ptr<BlockPool> vulkan_in_pool_, vulkan_out_pool_;
  CudaPool vulkan_pool_;
  std::atomic<std::uint64_t> gpu_copies_{0}, host_copies_{0};  ///< of frames in Vulkan's memory
  std::uint64_t foreign_sequence_ = 0;  ///< frames in memory of others have no channel that counts them
  std::atomic<bool> cancelled_{false};
  bool default_layout_only_ = false;
  bool only_remembered_ = false;
  bool dropped_ = false;
  bool begun_anew_ = true;  ///< no frame since
  Continuity continuity_;
  std::atomic<GstClockTime> latency_ns_{0};
  FrameTimes times_;  ///< of a program that knows what its frames give
  mutable std::mutex log_mutex_;
  std::shared_ptr<LatencyLog> log_;  ///< of the frames that are followed
};

}  // namespace gpumap::gst
