// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/result_blocks.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"
#include "gst/kernel/foreign_frames.hpp"
#include "gst/kernel/kernel_caps.hpp"
#include "gst/kernel/kernel_metas.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/ptr.hpp"
#include "gst/stopping.hpp"

namespace gpumap::gst {

/// Times of what a kernel gives that does not give a frame for each frame: it begins with the first frame since the one
/// before, and is as long as they are together. Thread safety: one thread at a time.
class FrameTimes {
 public:
  void forget() { *this = {}; }
  /// A frame went in.
  void add(const GstBuffer* in) {
    if (GST_CLOCK_TIME_IS_VALID(duration_) || empty_) {
      const GstClockTime more = GST_BUFFER_DURATION(in);
      duration_ = !GST_CLOCK_TIME_IS_VALID(more) ? GST_CLOCK_TIME_NONE : empty_ ? more : duration_ + more;
    }
    if (empty_) pts_ = GST_BUFFER_PTS(in);
    discont_ = discont_ || GST_BUFFER_FLAG_IS_SET(in, GST_BUFFER_FLAG_DISCONT);
    empty_ = false;
  }
  /// `out` came of those that went in since the last one.
  void give(GstBuffer* out) {
    GST_BUFFER_PTS(out) = pts_;
    GST_BUFFER_DTS(out) = GST_CLOCK_TIME_NONE;
    GST_BUFFER_DURATION(out) = duration_;
    GST_BUFFER_OFFSET(out) = GST_BUFFER_OFFSET_END(out) = GST_BUFFER_OFFSET_NONE;  // they count other samples
    if (discont_) GST_BUFFER_FLAG_SET(out, GST_BUFFER_FLAG_DISCONT);
    forget();
  }

 private:
  bool empty_ = true;
  bool discont_ = false;
  GstClockTime pts_ = GST_CLOCK_TIME_NONE;
  GstClockTime duration_ = GST_CLOCK_TIME_NONE;
};

/// Whether a stream's frames follow on one another. Upstream marks a hole, or sends a gap, or samples show it: they
/// last as long as there are, and then the next ones are due. Thread safety: one thread at a time.
class Continuity {
 public:
  /// How far samples may be from where they are due: live sources have jitter. As GStreamer's audio encoders have it.
  static constexpr GstClockTime tolerance = 40 * GST_MSECOND;

  /// The first frame comes next, or one that is as good as the first.
  void begin() noexcept { *this = {}; }
  /// Whatever comes next follows on nothing.
  void break_off() noexcept {
    broken_ = true;
    due_ = GST_CLOCK_TIME_NONE;
    length_ = 0;
  }

  [[nodiscard]] bool breaks_at(const GstBuffer* in) const noexcept {
    if (broken_ || GST_BUFFER_IS_DISCONT(in)) return true;
    const GstClockTime pts = GST_BUFFER_PTS(in);
    if (!GST_CLOCK_TIME_IS_VALID(due_) || !GST_CLOCK_TIME_IS_VALID(pts)) return false;
    return (pts > due_ ? pts - due_ : due_ - pts) > std::max(tolerance, length_);
  }

  /// There is something before `in` that it does not follow on.
  [[nodiscard]] bool breaks_off_at(const GstBuffer* in) const noexcept { return begun_ && breaks_at(in); }

  /// A frame goes in, of so many samples at so many a second; 0: what it is of does not count its time.
  void add(const GstBuffer* in, std::uint64_t samples, std::uint64_t rate) noexcept {
    length_ = rate != 0 ? gst_util_uint64_scale(samples, GST_SECOND, rate) : 0;
    const GstClockTime pts = GST_BUFFER_PTS(in);
    const GstClockTime begins = GST_CLOCK_TIME_IS_VALID(pts) ? pts : due_;
    due_ = rate != 0 && GST_CLOCK_TIME_IS_VALID(begins) ? begins + length_ : GST_CLOCK_TIME_NONE;
    broken_ = false;
    begun_ = true;
  }

 private:
  bool begun_ = false;  ///< a frame went in
  bool broken_ = true;
  GstClockTime due_ = GST_CLOCK_TIME_NONE;
  GstClockTime length_ = 0;  ///< of the last frame
};

/// What messages report of a kernel's result block.
struct ResultRule {
  std::string kernel;
  std::string message;  ///< its name; empty: the usual one
  /// By these names and types words are told in any case. Where that is empty, all of them as they are, if any is not
  /// zero.
  std::vector<std::pair<std::string, ResultType>> fields;
  DeclaredAnalytics analytics;  ///< as which metas of GStreamer's own the words are told, too
};

/// What reports a kernel's results: an element message each, and custom metas. A frame that waits for its result has
/// it in "GpumapResult". Of late results a later frame has what came meanwhile in "GpumapLateResults": `results`, an
/// array of structures that are as the messages are.
/// Thread safety: one thread at a time.
class KernelResult {
 public:
  explicit KernelResult(bool late) : late_(late) {}
  KernelResult(const KernelResult&) = delete;
  KernelResult& operator=(const KernelResult&) = delete;
  /// Told like this from here on.
  void change(ResultRule rule) { rule_ = std::move(rule); }

  /// The frame that a result is of; `bytes` that were given for it.
  struct Of {
    std::uint64_t bytes = 0, sequence = 0, offset = GST_BUFFER_OFFSET_NONE;
    GstClockTime pts = GST_CLOCK_TIME_NONE;
  };
  /// What was launched last is of this frame.
  void keep(const Of& of) { kept_.push_back(of); }
  /// Of those that were kept, read what has come, in order.
  void collect(KernelLauncher& launcher);
  /// Put what was read since the last time into the meta of `out`.
  void put_on(GstBuffer* out);
  /// There is no frame that could have it: the messages tell alone.
  void drop_found() noexcept { found_.reset(); }
  /// Whatever was not told is dropped.
  void forget();

  /// The next message of what was read; null: no more. Transfer full.
  [[nodiscard]] GstStructure* take_message() noexcept;

 private:
  using Words = ResultBlocks::Words;
  void read(const Of& of, Words words);
  void tell(GstStructure* to, const Words& words) const;

  ResultRule rule_;
  bool late_;
  std::deque<Of> kept_;  ///< in order of frames
  std::optional<Words> found_;
  std::deque<Ptr<GstStructure>> messages_, for_meta_;
};

/// Take away what was found out about bytes that a kernel has changed since.
void remove_result_meta(GstBuffer* buffer);

/// In whose memory the frames of a side lie. `host`: what comes in under such caps is ours all the same.
enum class FramesIn { host, ours, cuda, vulkan };

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
  /// A gpumapkernel is among what takes the output under plain caps, behind a tee: it lies in GPU memory all the same,
  /// where the others map it.
  void set_kernel_behind(bool behind) noexcept { kernel_behind_ = behind; }
  /// Whether frames go out in memory of ours on the GPU. From any thread.
  [[nodiscard]] bool gives_gpu_memory() const noexcept {
    return output_ == FramesIn::ours || (output_ == FramesIn::host && kernel_behind_);
  }
  /// `out` (both transfer full) as what follows knows it. Throws Error.
  [[nodiscard]] GstBuffer* as_downstream_reads(GstBuffer* out) const;
  [[nodiscard]] FramesIn input() const noexcept { return input_; }    ///< of the caps; from any thread
  [[nodiscard]] FramesIn output() const noexcept { return output_; }  ///< likewise
  [[nodiscard]] const FrameFormat& output_format() const noexcept { return out_format_; }
  /// Who knows the neighbours tells these where frames come from and go to, see provide_cuda_pool() and the next.
  [[nodiscard]] CudaFrames& cuda() noexcept { return cuda_; }
  [[nodiscard]] VulkanFrames& vulkan() noexcept { return vulkan_; }
  /// True between caps that ask for CUDA memory and CudaFrames::choose_pool(), which comes before their first frame.
  [[nodiscard]] bool lacks_cuda_pool() const noexcept { return to_cuda_pool() && !cuda_.has_pool(); }
  /// True between caps that ask for Vulkan memory and VulkanFrames::make_pool().
  [[nodiscard]] bool lacks_vulkan_pool() const noexcept { return output_ == FramesIn::vulkan && !vulkan_.has_pool(); }
  /// As gpumap::gst::cuda_obstacle() of its device and backend. From any thread.
  [[nodiscard]] std::string cuda_obstacle() const { return gpumap::gst::cuda_obstacle(device(), launcher_->backend()); }
  [[nodiscard]] const Device& device() const noexcept { return launcher_->device(); }  ///< from any thread
  void set_params(const std::string& params);  ///< throws Error(invalid), and then leaves them as they were
  /// For the stream that the next set_caps() begins, which agree on them. False: they are in force already. Throws
  /// Error(invalid) for what no stream can take.
  [[nodiscard]] bool propose_params(const std::string& params);
  /// What was proposed and set_caps() has not taken, which is then proposed no longer.
  [[nodiscard]] std::optional<std::string> take_proposed();
  [[nodiscard]] bool has_proposed() const { return proposed_params().has_value(); }
  /// The samples of `in` may have another centre frequency than those before: true where the parameters are to be set
  /// again for it.
  [[nodiscard]] bool follows_center(GstBuffer* in);
  [[nodiscard]] std::string params() const { return launcher_->params(); }  ///< in force; from any thread
  /// What caps agree on: those that are proposed, else those in force. From any thread.
  [[nodiscard]] std::string params_for_caps() const;
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
  /// One came that is not run on.
  void leave_out() noexcept {
    break_off();
    launcher_->realign();
  }
  /// `in` comes after a hole, over which the kernel is to remember nothing.
  [[nodiscard]] bool begins_anew_at(const GstBuffer* in) const {
    return continuity_.breaks_off_at(in) && launcher_->remembers();
  }
  /// What comes out is later by this than what went in, in the stream's time. From any thread.
  [[nodiscard]] GstClockTime latency() const noexcept { return latency_ns_.load(std::memory_order_relaxed); }

  /// What became of a frame. Cancelled is one, too, that came when nothing was linked to the output any more.
  struct Ran {
    FrameOutput::Outcome outcome = FrameOutput::Outcome::cancelled;
    GstBuffer* buffer = nullptr;  ///< transfer full; null unless given
  };
  /// Launch on `in`; after a hole what is kept from frame to frame is as new. What is given carries `in`'s flags, times
  /// and, for a kernel with a result, a custom meta "GpumapResult". Throws Error, KernelFault where the device is lost.
  [[nodiscard]] Ran run(GstBuffer* in);
  /// What may have gone wrong with the last run()'s frame, see Program::risk.
  [[nodiscard]] std::string risk() const { return launcher_->risk(); }
  [[nodiscard]] const std::string& loop_risk() const noexcept { return launcher_->loop_risk(); }
  /// Wait for all that was launched, and for its results. Throws KernelFault.
  void drain();

  /// Whose frames they are. Before the first one.
  void set_giver(std::shared_ptr<const Giver> giver) noexcept { giver_ = std::move(giver); }
  /// Makes a waiting run() return, until called with false.
  void cancel(bool cancelled) noexcept { launcher_->cancel(cancelled); }

  /// That sm-share gave the kernel; 0: it runs on all. From any thread.
  [[nodiscard]] guint multiprocessors() const noexcept { return launcher_->multiprocessors(); }
  /// Whether frames come in or go out in CUDA memory. From any thread.
  [[nodiscard]] bool meets_cuda_elements() const noexcept {
    return input_ == FramesIn::cuda || output_ == FramesIn::cuda;
  }
  /// Whether the kernel stays on the GPU. From any thread.
  [[nodiscard]] bool is_resident() const { return launcher_->how().resident; }
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
    launcher_->realign();
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
    MappedTensors tensors;  ///< keeps those in ordinary memory mapped
    bool is_cut = false;    ///< the kernel sees the part that a GstVideoCropMeta leaves
  };
  /// Where what comes of a frame is to go.
  struct Target {
    FrameTarget to;
    CudaFrame cuda;  ///< that the kernel is to fill; empty in memory of ours, and where the input goes on
  };
  [[nodiscard]] ResultRule result_rule() const;
  [[nodiscard]] std::optional<std::string> proposed_params() const;
  void begin_stream(const GstCaps* in, const GstCaps* out, const std::optional<std::string>& proposed);
  void follow_params();
  [[nodiscard]] std::string with_center(const std::string& params) const;
  [[nodiscard]] bool says_center(const std::string& params) const;
  void check_center() const;
  /// Pictures go into frames of a pool. Of tensors, memory of ours is lent.
  [[nodiscard]] bool to_cuda_pool() const noexcept { return output_ == FramesIn::cuda && out_format_.is_video(); }
  [[nodiscard]] bool lends_to_cuda() const noexcept { return output_ == FramesIn::cuda && !out_format_.is_video(); }
  /// The kernel writes no output: the input is handed on, where that is not to leave CUDA memory.
  [[nodiscard]] bool in_place() const noexcept { return launcher_->declaration().unchanged; }
  /// What `in` is to the launcher. Nothing when cancelled.
  [[nodiscard]] std::optional<Input> input_of(GstBuffer* in);
  void find_ours(Input& input, GstBuffer* in) const;
  [[nodiscard]] bool map_cuda(Input& input, GstBuffer* in);     ///< false: cancelled
  [[nodiscard]] bool copy_vulkan(Input& input, GstBuffer* in);  ///< false: cancelled
  /// Nothing when cancelled.
  [[nodiscard]] std::optional<Target> target_of(const Input& input);
  [[nodiscard]] Ran run_on(GstBuffer* in);
  [[nodiscard]] FrameOutput launch(Input& input, Target& target);
  [[nodiscard]] GstBuffer* buffer_of(GstBuffer* in, Input& input, FrameOutput& made, Target& target);
  [[nodiscard]] GstBuffer* new_buffer(const Input& input, FrameOutput& made, Target& target);
  /// How the output lies, where that is as the input does; else null.
  [[nodiscard]] GstVideoMeta* kept_layout(const Input& input, const FrameOutput& made) const noexcept;
  void describe(GstBuffer* out, GstBuffer* in, const Input& input, const FrameOutput& made);
  void tell_tensors(GstBuffer* out, GstBuffer* in, FrameOutput& made, std::uint64_t sequence);
  void keep_result(const GstBuffer* in, const Input& input, std::uint64_t bytes);
  void count(const FrameTrace* trace);
  void set_times_of_shortened(GstBuffer* out, std::size_t given) const;

  DeclaredCaps declared_;
  std::unique_ptr<KernelLauncher> launcher_;
  KernelResult result_;
  FrameFormat in_format_, out_format_;
  Ptr<GstCaps> in_caps_;  ///< null: none yet
  Ptr<GstCaps> out_caps_;
  MetaRule metas_;
  std::string tensor_id_;  ///< of an output that is a tensor itself
  std::atomic<FramesIn> input_{FramesIn::ours}, output_{FramesIn::ours};
  CudaFrames cuda_;
  VulkanFrames vulkan_;
  std::uint64_t foreign_sequence_ = 0;  ///< frames in memory of others have no channel that counts them
  bool default_layout_only_ = false;
  std::atomic<bool> kernel_behind_{false};
  Continuity continuity_;
  std::shared_ptr<const Giver> giver_;
  std::atomic<GstClockTime> latency_ns_{0};
  std::string asked_params_;  ///< as they were set, without the centre frequency
  mutable std::mutex proposed_mutex_;
  std::optional<std::string> proposed_;  ///< likewise, for the caps that come next
  std::optional<double> center_;         ///< of the input's band, as caps or the last buffer that says it tell; Hz
  Tuning tuning_;
  Ptr<GstBuffer> untold_;  ///< has annotations of frames that gave nothing yet; null: none
  FrameTimes times_;       ///< of a program that knows what its frames give
  mutable std::mutex log_mutex_;
  std::shared_ptr<LatencyLog> log_;  ///< of the frames that are followed
};

/// Tells of a kernel that does not end. Looks now and then, in GStreamer's clock thread: the streaming thread may be
/// waiting for that kernel, or for a frame that cannot come before it ends. The time of one frame counts, not that of
/// those it waits behind. An error comes after `timeout_ms` and at most half as much again. Thread safety: made and
/// destroyed by one thread.
class Watchdog {
 public:
  /// `timeout_ms` 0: never looks. Throws Error(no_resources).
  Watchdog(GstElement* element, std::shared_ptr<KernelRunner> runner, std::uint32_t timeout_ms);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// It has posted its error, and looks no more.
  [[nodiscard]] bool has_told() const;

 private:
  struct Watched;
  std::shared_ptr<Watched> watched_;
  GstClockID alarm_ = nullptr;
};

}  // namespace gpumap::gst
