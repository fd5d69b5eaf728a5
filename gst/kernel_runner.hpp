// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "bounds_check.hpp"
#include "frame_format.hpp"
#include "frame_times.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/program.hpp"
#include "kernel_reload.hpp"
#include "kernel_result.hpp"
#include "kernel_settings.hpp"
#include "memory.hpp"
#include "output_pool.hpp"

namespace gpumap::gst {

/// Runs one kernel on each frame of a stream. Thread safety: one thread at a time; cancel() from any thread.
class KernelRunner {
 public:
  explicit KernelRunner(const KernelSettings& settings);  ///< compiles and loads; throws Error
  /// Waits 5 s for what was launched; then what it uses stays allocated for good.
  ~KernelRunner();
  KernelRunner(const KernelRunner&) = delete;
  KernelRunner& operator=(const KernelRunner&) = delete;

  /// The stream's caps. `gpu_output`: results stay in GPU memory, else they come down to host memory.
  void set_caps(const GstCaps* in, const GstCaps* out, bool gpu_output, bool downstream_reads_video_meta);
  void set_params(const std::string& params);  ///< throws Error(invalid)
  /// Go on with another version of the kernel where its file has changed and compiles. The text is what became of a
  /// change: empty where it runs now, else why it does not; nothing where there was none.
  [[nodiscard]] std::optional<std::string> reload();

  /// What the kernel keeps from frame to frame is as new: set_caps() does so too.
  void begin();

  /// Launch on `in`. The result (transfer full) carries `in`'s flags, times and, for a kernel with a result, a custom
  /// meta "GpumapResult". Null when cancelled, or only remembered. Throws Error, of which Error(device_lost) names the
  /// kernel.
  [[nodiscard]] GstBuffer* run(GstBuffer* in);
  /// The last run()'s frame went into what later ones will give, and gives nothing itself.
  [[nodiscard]] bool only_remembered() const noexcept { return only_remembered_; }
  /// Wait for all that was launched. Throws Error(device_lost).
  void drain();

  /// Makes a waiting run() return, until called with false.
  void cancel(bool cancelled) noexcept { cancelled_.store(cancelled, std::memory_order_relaxed); }

  /// The end of what was launched last. From any thread.
  [[nodiscard]] Fence last_launched() const {
    const std::lock_guard lock(last_mutex_);
    return last_;
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// What the last run() found, for an element message: null for kernels without a result. Transfer full.
  [[nodiscard]] GstStructure* take_result() noexcept { return result_->take_message(); }

 private:
  /// Where an input buffer lies on the GPU.
  struct Input {
    Bytes* bytes = nullptr;
    std::size_t offset = 0;  ///< in the mapping
    std::size_t size = 0;
    std::uint64_t address = 0;
    GstVideoMeta* meta = nullptr;
  };
  void adopt(KernelPlan plan, std::unique_ptr<Program> program);
  [[nodiscard]] Input input_of(GstBuffer* in) const;
  /// The input is handed on.
  [[nodiscard]] bool in_place() const noexcept {
    return builtin_ != nullptr ? builtin_->in_place : declaration_.unchanged;
  }
  /// The output is as the input is, padding included: true for kernels of the user's that declare no other. Else it is
  /// as its caps say.
  [[nodiscard]] bool keeps_layout() const noexcept {
    return (builtin_ == nullptr && declaration_.output.empty()) || on_bytes_;
  }
  [[nodiscard]] std::size_t output_bytes(std::size_t input_bytes) const;
  /// False when cancelled.
  [[nodiscard]] bool take(std::shared_ptr<OutputPool>& pool, Placement placement, std::size_t bytes,
                          OutputBlock& block);
  [[nodiscard]] bool wait(const Fence& fence);
  [[nodiscard]] GstBuffer* run_on(GstBuffer* in);
  void launch(bool by_field);
  void submit(const Input& input);
  static void stamp(FrameTrace& trace, const Input& input, Stamp stamp);

  std::shared_ptr<Device> device_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<KernelReload> reload_;    ///< null where it was not asked for
  std::optional<KernelReload::News> news_;  ///< not acted upon yet
  std::string params_;
  Declaration declaration_;              ///< of a kernel of the user's
  std::unique_ptr<BoundsCheck> bounds_;  ///< null where it was not asked for
  const Builtin* builtin_ = nullptr;
  std::string name_;
  Backend backend_;
  std::unique_ptr<Queue> queue_;
  bool on_bytes_ = false;  ///< a built-in that knows bytes only, whatever the format
  bool has_result_ = false;
  std::unique_ptr<KernelResult> result_;
  gpumap_frame frame_{};
  FrameFormat in_format_, out_format_;
  bool gpu_output_ = true;
  bool video_meta_ok_ = true;
  bool has_caps_ = false;
  bool only_remembered_ = false;
  FrameTimes times_;  ///< of a program that knows what its frames give
  std::shared_ptr<OutputPool> device_pool_, host_pool_;
  mutable std::mutex last_mutex_;  ///< for other threads' sake
  Fence last_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace gpumap::gst
