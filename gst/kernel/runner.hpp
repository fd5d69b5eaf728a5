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
#include <utility>
#include <vector>

#include "gpumap/block_pool.hpp"
#include "gpumap/bounds_check.hpp"
#include "gpumap/frame_history.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/program.hpp"
#include "gpumap/tables.hpp"
#include "gst/cuda/frame.hpp"
#include "gst/cuda/memory.hpp"
#include "gst/kernel/continuity.hpp"
#include "gst/kernel/frame_times.hpp"
#include "gst/kernel/metas.hpp"
#include "gst/kernel/reload.hpp"
#include "gst/kernel/result.hpp"
#include "gst/kernel/settings.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/memory/memory.hpp"

namespace gpumap::gst {

/// Runs one kernel on each frame of a stream. Thread safety: one thread at a time; cancel() from any thread.
class KernelRunner {
 public:
  /// Compiles and loads, for `device`, or for the one that `settings` choose where that is null. Throws Error.
  explicit KernelRunner(const KernelSettings& settings, std::shared_ptr<Device> device = nullptr);
  /// Waits 5 s for what was launched; then what it uses stays allocated for good.
  ~KernelRunner();
  KernelRunner(const KernelRunner&) = delete;
  KernelRunner& operator=(const KernelRunner&) = delete;

  /// The stream's caps. What comes out stays in GPU memory or goes into CUDA memory where `out` asks for that, else it
  /// comes down to host memory. Throws Error.
  void set_caps(const GstCaps* in, const GstCaps* out);
  /// Whether what follows knows raw video in GStreamer's default layout alone.
  void set_default_layout_only(bool only) noexcept { default_layout_only_ = only; }
  /// True between caps that ask for CUDA memory and choose_cuda_pool(), which comes before the first frame of theirs.
  [[nodiscard]] bool lacks_cuda_pool() const noexcept { return cuda_output_ && !cuda_pool_; }
  /// The pool for frames of `caps`: downstream's where `query` (may be null) has one that fits. Throws
  /// Error(no_memory).
  void choose_cuda_pool(GstCaps* caps, GstQuery* query) { cuda_pool_ = cuda_pool(*device_, caps, query); }
  /// As gpumap::gst::cuda_obstacle() of its device and backend. From any thread.
  [[nodiscard]] std::string cuda_obstacle() const { return gpumap::gst::cuda_obstacle(*device_, backend_); }
  [[nodiscard]] const Device& device() const noexcept { return *device_; }  ///< from any thread
  void set_params(const std::string& params);  ///< throws Error(invalid), and then leaves them as they were
  [[nodiscard]] std::string params() const;    ///< in force; from any thread
  /// Go on with another version of the kernel where its file has changed and compiles. The text is what became of a
  /// change: empty where it runs now, else why it does not; nothing where there was none.
  [[nodiscard]] std::optional<std::string> reload();

  /// Go on with what table files became that have changed. What is wrong with one, for which that of before goes on;
  /// else empty. Throws Error(device_lost).
  [[nodiscard]] std::string refresh_tables();

  /// What the kernel keeps from frame to frame is as new: set_caps() does so too.
  void begin();

  /// Why `in` cannot be run on, though the stream goes on: it is shorter than the caps say. Else empty.
  [[nodiscard]] std::string shortfall(GstBuffer* in) const;
  /// Frames are missing before the next one, though it may not say so.
  void break_off() noexcept { continuity_.break_off(); }
  /// `in` comes after a hole, over which the kernel is to remember nothing.
  [[nodiscard]] bool begins_anew_at(const GstBuffer* in) const {
    return continuity_.breaks_at(in) && !begun_anew_ && program_->remembers();
  }
  /// What comes out is later by this than what went in, in the stream's time. From any thread.
  [[nodiscard]] GstClockTime latency() const noexcept { return latency_ns_.load(std::memory_order_relaxed); }

  /// Launch on `in`; after a hole what is kept from frame to frame is as new. The result (transfer full)
  /// carries `in`'s flags, times and, for a kernel with a result, a custom meta "GpumapResult". Null when cancelled,
  /// only remembered or dropped. Throws Error, of which Error(device_lost) names the kernel.
  [[nodiscard]] GstBuffer* run(GstBuffer* in);
  /// What may have gone wrong with the last run()'s frame, see Program::risk.
  [[nodiscard]] std::string risk() const { return program_->risk(frame_); }
  /// The kernel gave nothing of the last run()'s frame.
  [[nodiscard]] bool dropped() const noexcept { return dropped_; }
  /// The last run()'s frame went into what later ones will give, and gives nothing itself.
  [[nodiscard]] bool only_remembered() const noexcept { return only_remembered_; }
  /// Wait for all that was launched, and for its results. Throws Error(device_lost).
  void drain();

  /// Makes a waiting run() return, until called with false.
  void cancel(bool cancelled) noexcept { cancelled_.store(cancelled, std::memory_order_relaxed); }

  /// The end of what was launched last. From any thread.
  [[nodiscard]] Fence last_launched() const {
    const std::lock_guard lock(last_mutex_);
    return last_;
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// As they were when it was made. From any thread, as the next one.
  [[nodiscard]] const KernelSettings& settings() const noexcept { return settings_; }
  /// What the kernel that runs takes and gives; one that takes its place gives the same.
  [[nodiscard]] const DeclaredCaps& declared() const noexcept { return declared_; }

  /// "gpumapkernel-stats" (transfer full): kernel, backend, frames since the start, and "latency" of the channel whose
  /// frames come with stamps. From any thread.
  [[nodiscard]] GstStructure* stats() const;

  /// Frames that follow have nothing to do with those before, whose results are dropped.
  void flush() {
    result_->forget();
    begin();
  }
  /// See which results have come.
  void collect_results() { result_->collect(); }
  /// The next that was found out, in order of frames, for an element message: null where that is all. Transfer full.
  [[nodiscard]] GstStructure* take_result() noexcept { return result_->take_message(); }

 private:
  /// Where an input buffer lies on the GPU.
  struct Input {
    FrameMemory* bytes = nullptr;  ///< null in CUDA memory
    CudaFrame cuda;                ///< empty in ours
    std::size_t offset = 0;        ///< in the mapping
    std::size_t size = 0;
    std::uint64_t address = 0;
    GstVideoMeta* meta = nullptr;
  };
  void adopt(KernelPlan plan, std::unique_ptr<Program> program, std::unique_ptr<Tables> tables);
  void settle_stream();
  /// Put into of_params_ what params_ are.
  void note_params();
  [[nodiscard]] Input input_of(GstBuffer* in) const;
  [[nodiscard]] Input cuda_input_of(GstBuffer* in) const;
  /// The kernel writes no output: the input is handed on, where that is not to leave CUDA memory.
  [[nodiscard]] bool in_place() const noexcept { return declaration_.unchanged; }
  /// The output is as the input is, padding included: true for kernels that declare no other. Else it is as its caps
  /// say.
  [[nodiscard]] bool keeps_layout() const noexcept { return declaration_.output.empty() && !declaration_.converted; }
  [[nodiscard]] bool hands_on(const Input& input) const noexcept { return in_place() && (!input.cuda || cuda_output_); }
  /// Throws Error(invalid) for what is declared and has no room for the picture.
  [[nodiscard]] std::size_t output_bytes(const Input& input) const;
  /// A picture in CUDA memory is copied within the GPU before the kernel sees it where the kernel knows bytes only, and
  /// the padding of rows is none of them, or where the copy is what goes on.
  [[nodiscard]] bool is_packed(const Input& input) const noexcept {
    return input.cuda && (declaration_.on_bytes || (in_place() && !cuda_output_));
  }
  /// What is to be copied, and to where.
  struct Unpacked {
    gpumap_view from{};
    std::shared_ptr<Mapping> to;
  };
  /// Room for that copy, and `input` as it will lie there. False when cancelled.
  [[nodiscard]] bool make_room(Input& input, MemoryBlock& packed, Unpacked& unpacked);
  void pack(const Unpacked& unpacked);
  /// Empty when cancelled.
  [[nodiscard]] CudaFrame take_cuda_frame();
  void lay_out_anew(const gpumap_view& made, const CudaFrame& out);
  /// False when cancelled.
  [[nodiscard]] bool take(std::shared_ptr<BlockPool>& pool, Placement placement, std::size_t bytes, MemoryBlock& block);
  [[nodiscard]] bool wait(const Fence& fence);
  [[nodiscard]] GstBuffer* run_on(GstBuffer* in);
  void launch(bool by_field);
  /// Tables and history into the frame that is to be launched on, and that frame into the history.
  void lend_inputs(bool gap);
  void remember(const Input& input);
  void count(const FrameTrace* trace);
  void submit(const Input& input);
  /// Throw Error(invalid) where what a kernel declares it may do with its output cannot be, with these caps.
  void check_output_may(const KernelPlan& plan) const;
  void check_shortening(const Declaration& declaration) const;
  /// The CPU has to know what the kernel says before a frame can go on.
  [[nodiscard]] bool decides() const noexcept { return static_cast<bool>(declaration_.output_may); }
  /// What the kernel, which has ended, gave of an output of `bytes`; empty: nothing. Throws Error(invalid).
  [[nodiscard]] std::optional<std::size_t> given_of(std::size_t bytes) const;
  void drop(GstBuffer* in);
  void set_times_of_shortened(GstBuffer* out, std::size_t given) const;
  static void stamp(FrameTrace& trace, const Input& input, Stamp stamp);

  KernelSettings settings_;
  DeclaredCaps declared_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<KernelReload> reload_;    ///< null where it was not asked for
  std::optional<KernelReload::News> news_;  ///< not acted upon yet
  std::string params_;                      ///< under last_mutex_
  Declaration declaration_;
  std::vector<std::pair<std::string, std::uint64_t>> of_params_;  ///< for the line bytes, where it mentions any
  std::unique_ptr<BoundsCheck> bounds_;                           ///< null where it was not asked for
  std::string name_;
  Backend backend_;
  std::unique_ptr<Queue> queue_;
  bool has_result_ = false;
  std::unique_ptr<KernelResult> result_;
  std::unique_ptr<Tables> tables_;  ///< null where the kernel has none, as the next
  std::unique_ptr<FrameHistory> history_;
  gpumap_frame frame_{};
  FrameFormat in_format_, out_format_;
  std::unique_ptr<GstCaps, void (*)(GstCaps*)> in_caps_{nullptr, &gst_caps_unref};  ///< null: none yet
  std::unique_ptr<GstCaps, void (*)(GstCaps*)> out_caps_{nullptr, &gst_caps_unref};
  MetaRule metas_;
  bool gpu_output_ = true;
  bool cuda_input_ = false, cuda_output_ = false;  ///< memory:CUDAMemory
  CudaPool cuda_pool_;
  std::unique_ptr<CudaLoans> loans_ = std::make_unique<CudaLoans>();
  std::uint64_t cuda_sequence_ = 0;  ///< frames in CUDA memory have no channel that counts them
  bool default_layout_only_ = false;
  bool only_remembered_ = false;
  bool dropped_ = false;
  bool begun_anew_ = true;  ///< no frame since
  Continuity continuity_;
  std::atomic<GstClockTime> latency_ns_{0};
  FrameTimes times_;  ///< of a program that knows what its frames give
  std::shared_ptr<BlockPool> device_pool_, host_pool_, packed_pool_;
  mutable std::mutex last_mutex_;  ///< for other threads' sake
  Fence last_;
  std::uint64_t frames_ = 0;         ///< launched on
  std::shared_ptr<LatencyLog> log_;  ///< of the frames that are followed
  std::atomic<bool> cancelled_{false};
};

}  // namespace gpumap::gst
