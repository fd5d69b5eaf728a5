// SPDX-License-Identifier: MIT
// Run a kernel on frame after frame, without GStreamer: views of memory go in, a fence and a block of memory come out.
// lib/queue/README.md has an example.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gpumap/block_pool.hpp"
#include "gpumap/device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/export.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/file.hpp"
#include "gpumap/frame_tensors.hpp"
#include "gpumap/kernel.h"
#include "gpumap/kernel.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/program.hpp"
#include "gpumap/queue.hpp"
#include "gpumap/result_blocks.hpp"
#include "gpumap/tables.hpp"

namespace gpumap {

/// The last frames of a stream, for kernels that look back. They are copies within the GPU: to hold the frames
/// themselves would take slots from a ring whose size is the sender's, or pictures from a decoder's pool, and a stream
/// that has too few of these stands still. All of it goes by the order of one queue: no one waits.
/// Ownership: keeps the device open; the owner waits for the queue before it destroys this. Thread safety: one thread
/// at a time.
class GPUMAP_API FrameHistory {
 public:
  /// Of `frames`, 1 to GPUMAP_MAX_HISTORY.
  FrameHistory(std::shared_ptr<Device> device, Backend backend, std::uint32_t frames);

  /// A stream begins, or goes on behind a hole: there are none.
  void forget() noexcept { kept_ = 0; }
  /// Into past[] of a frame that is to be launched on.
  void lend(gpumap_frame& frame) const;

  /// Where the frame that was launched on is to be copied, on the same queue: at least `bytes`, in place of the oldest
  /// one. Throws Error(no_memory).
  [[nodiscard]] const std::shared_ptr<Mapping>& room(std::size_t bytes);
  /// That was asked for: it is the last one of the past from here on, and lies there as `view` says of what began at
  /// the address `from`.
  void add(const gpumap_view& view, std::uint64_t from);

 private:
  struct Kept {
    std::shared_ptr<Mapping> memory;
    gpumap_view view{};
  };
  std::shared_ptr<Device> device_;
  Backend backend_;
  std::vector<Kept> frames_;
  std::size_t next_ = 0;  ///< the oldest one, or none yet
  std::size_t kept_ = 0;
  std::vector<std::shared_ptr<Mapping>> outgrown_;  ///< what was launched may still read it
};

/// Throws Error for a plan that its runner cannot use.
using PlanCheck = std::function<void(const KernelPlan&)>;

/// Watches the file of a kernel while it runs, and compiles it again, in a thread of its own, when it has changed. What
/// the file includes is not watched. Ownership: keeps the device open. Thread safety: one thread at a time.
class GPUMAP_API KernelReload {
 public:
  /// `settings` name a file. `check` (may be empty) is called in the compiling thread, with what is to be compiled; it
  /// may outlive this.
  KernelReload(std::shared_ptr<Device> device, KernelSettings settings, PlanCheck check);
  ~KernelReload();  ///< waits 5 s for the compiler, and then leaves it to itself
  KernelReload(const KernelReload&) = delete;
  KernelReload& operator=(const KernelReload&) = delete;

  /// The version that poll() gave last runs.
  void adopted() { runs_ = polled_; }
  /// In place of `before`, of the same file, whose version runs on: what has changed since is compiled.
  void follow(const KernelReload& before) { compiled_ = runs_ = before.runs_; }

  /// What became of a change: a program, or why there is none.
  struct News {
    std::unique_ptr<Program> program;
    KernelPlan plan;
    std::unique_ptr<Tables> tables;  ///< null: the kernel has none
    std::string problem;
  };
  /// Cheap enough for every frame: looks at the file ten times a second.
  [[nodiscard]] std::optional<News> poll();

 private:
  struct Job;
  std::shared_ptr<Job> job_;           ///< what the compiling thread uses
  std::optional<FileStamp> compiled_;  ///< the version that runs, or that did not compile
  std::optional<FileStamp> seen_;      ///< at the last look
  std::optional<FileStamp> polled_;    ///< of what poll() gave last
  std::optional<FileStamp> runs_;      ///< the version that runs
  std::chrono::steady_clock::time_point next_look_{};
  std::thread thread_;
  std::future<News> compiling_;  ///< of that thread
};

class OutputSize;
class WorkMemory;

/// What the frames of a stream are like on one side of a kernel.
struct FrameLayout {
  /// A frame in its usual layout, whose memory begins at address 0; `bytes` is 0 where they differ from frame to frame.
  gpumap_view view{};
  std::size_t bytes_per_sample = 1;  ///< of all channels together; 1 for bytes; 0 for pictures
};

/// Copies the rows of a picture, or bytes, on a launcher's queue, from view to view. For memory that is no Mapping.
/// Throws Error.
using CopyPicture = std::function<void(Queue& queue, const gpumap_view& from, const gpumap_view& to)>;

/// A frame to launch on.
struct FrameInput {
  gpumap_view view{};                ///< as it lies there
  std::uint64_t address = 0;         ///< where its memory begins, for the launcher's back end
  std::size_t bytes = 0;             ///< from there on
  std::size_t picture_bytes = 0;     ///< up to the end of the last row: 0 for what is no picture
  const Mapping* mapping = nullptr;  ///< that it lies in, at `offset`; null: memory of others, from which `copy` copies
  std::size_t offset = 0;
  CopyPicture copy;
  bool ordered =
      false;      ///< memory of others that the caller keeps until FrameOutput::done; else launch() waits for that
  Fence written;  ///< GPU work that fills it
  FrameHolder* holder = nullptr;      ///< may be null: then the caller waits for FrameOutput::done
  std::vector<TensorInput> tensors;   ///< one for each line `input-tensor`
  std::shared_ptr<FrameTrace> trace;  ///< null: it is not followed
  std::uint64_t sequence = 0;         ///< as gpumap_frame has it, and the next ones
  std::int64_t pts = -1, duration = -1;
  bool gap = false;       ///< it does not follow in time on the frame before: the kernel is told, and past frames go
  bool by_field = false;  ///< an interlaced picture whose chroma is kept by field
};

/// Where the output is to lie.
struct FrameTarget {
  enum class Place {
    device,  ///< in device memory of the launcher's
    host,    ///< brought to host memory of the launcher's
    others,  ///< in memory of others that `view` describes, to which `copy` copies where the kernel cannot write there
  } place = Place::device;
  gpumap_view view{};
  CopyPicture copy;
  bool ordered = false;  ///< who reads it is made to wait for FrameOutput::done; else launch() waits for that
};

/// What became of a frame.
struct FrameOutput {
  enum class Outcome {
    given,
    remembered,  ///< it went into what later ones will give
    dropped,     ///< the kernel gave nothing of it
    cancelled,   ///< what was launched, if it was, ends at KernelLauncher::last_launched()
  } outcome = Outcome::cancelled;
  /// Device memory with the output; empty where the input goes on, or it lies elsewhere. May be let go at any time.
  LentBlock block;
  LentBlock host;         ///< host memory with the output, where that was asked for: whole
  LentBlock tensors;      ///< device memory with the tensors of KernelLauncher::tensors(); empty where there are none
  std::size_t bytes = 0;  ///< of the output that count
  bool shortened = false;
  bool in_place = false;          ///< the kernel wrote nothing: the input goes on
  bool packed = false;            ///< the input was brought to its usual layout before: the output has it too
  bool sized_by_program = false;  ///< it is of all frames since the output before, not of this one alone
  Fence done;
};

/// One kernel that is launched on the frames of a stream: its program, what it reads beside a frame (tables, frames
/// before), its results, the memory of its outputs.
/// Ownership: keeps the device open. Thread safety: one thread at a time, but for what says otherwise.
class GPUMAP_API KernelLauncher {
 public:
  /// Compiles and loads, for `device`, or for the one that `settings` choose where that is null. `check` (may be empty)
  /// sees the plan, and that of each later version of the file, before it runs; then in any thread. Throws Error.
  explicit KernelLauncher(const KernelSettings& settings, std::shared_ptr<Device> device = nullptr,
                          PlanCheck check = {});
  ~KernelLauncher();  ///< as end()
  KernelLauncher(const KernelLauncher&) = delete;
  KernelLauncher& operator=(const KernelLauncher&) = delete;
  /// Wait 5 s for what was launched. False: it still runs, and all that it uses stays allocated for good. Nothing may
  /// be launched any more.
  bool end() noexcept;

  /// A stream begins whose frames are like this; `color` and `out_color` as gpumap_frame has them. With `params` these
  /// are set with it: see Program::begin_with(). Throws Error(invalid) where the kernel does not go with them: then
  /// this is due again.
  void set_stream(const FrameLayout& in, const FrameLayout& out, const gpumap_color& color = {},
                  std::uint32_t frame_rate = 0, std::uint32_t frame_rate_scale = 1,
                  const gpumap_color& out_color = color_from_rgb(ColorMatrix::rgb, ColorRange::full),
                  const std::optional<std::string>& params = {});
  /// What the kernel keeps from frame to frame is as new.
  void begin();
  /// The next frame begins with a sample: bytes are missing before it. Else a frame may end within a sample, which the
  /// next one goes on with, whatever became of the kernel or of the times meanwhile. set_stream() does so too.
  void realign() noexcept { rest_bytes_ = 0; }
  void set_params(const std::string& params);  ///< throws Error(invalid), and then leaves them as they were
  [[nodiscard]] std::string params() const;    ///< in force; from any thread

  /// Go on with another version of the kernel where its file has changed and compiles. The text is what became of a
  /// change: empty where it runs now, else why it does not; nothing where there was none.
  [[nodiscard]] std::optional<std::string> reload();
  /// Go on with what table files became that have changed. What is wrong with one, in whose place the previous one
  /// stays; else empty. Throws Error(device_lost).
  [[nodiscard]] std::string refresh_tables();

  /// Whether an output comes of the next frame in order, if that is `in`.
  [[nodiscard]] bool gives(const FrameInput& in) const;
  /// Launch. Waits for the launch to end where the CPU or others are to see what it gave (results that are not late, a
  /// target on the host, memory of others that the caller does not order); else FrameOutput::done tells. Throws
  /// Error(invalid) for what the kernel or the caller did wrong, Error(no_memory), and KernelFault. What was under way
  /// by then ends at last_launched().
  [[nodiscard]] FrameOutput launch(const FrameInput& in, const FrameTarget& target);
  /// Wait for all that was launched. Throws KernelFault.
  void drain();
  /// False when cancelled. Throws Error(device_lost).
  [[nodiscard]] bool wait(const Fence& fence);
  /// A block of at least `bytes` bytes of `pool`, which is made where it is null or its blocks are too small. False
  /// when cancelled. Throws Error(no_memory | device_lost).
  [[nodiscard]] bool take(std::shared_ptr<BlockPool>& pool, Placement placement, std::size_t bytes, LentBlock& block);
  /// `call`, for what is done around a launch: where the GPU is lost, also by a frame before, that is this kernel's
  /// fault.
  template <typename Call>
  auto naming(Call&& call) const {
    try {
      return call();
    } catch (const KernelFault&) {
      throw;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::device_lost) throw;
      throw KernelFault(name_, error);
    }
  }
  /// What comes next is ordered by CUDA's streams: a kernel that stays on the GPU is launched instead, from here on,
  /// and queue() is another. False when cancelled. Throws as launch().
  [[nodiscard]] bool use_streams() { return !resident_ || launch_instead(); }
  /// On which it launches: to order it with the GPU work of others.
  [[nodiscard]] Queue& queue() noexcept { return *queue_; }
  /// Makes a waiting call return, until called with false. From any thread.
  void cancel(bool cancelled) noexcept { cancelled_.store(cancelled, std::memory_order_relaxed); }
  [[nodiscard]] bool is_cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }

  /// The kernel tells results: next_result() is to be asked for those of each frame that was given or dropped.
  [[nodiscard]] bool has_result() const noexcept { return has_result_; }
  /// The result words of the oldest such frame whose launch has ended; nothing: none has.
  [[nodiscard]] std::optional<ResultBlocks::Words> next_result() { return results_->next(); }
  /// Whether next_result() gives some, now or when their launches have ended.
  [[nodiscard]] bool has_next_result() const noexcept { return results_->has_kept(); }
  void forget_results() { results_->forget(); }

  /// What may have gone wrong with the last launch, see Program::risk.
  [[nodiscard]] std::string risk() const { return program_->risk(frame_); }
  /// That the device may end the loops of this kernel, which has some; empty: it has none, or they run to their end.
  [[nodiscard]] const std::string& loop_risk() const noexcept { return loop_risk_; }
  [[nodiscard]] bool remembers() const { return program_->remembers(); }       ///< as Program, and the next
  [[nodiscard]] std::uint64_t gathers() const { return program_->gathers(); }  ///< in samples
  [[nodiscard]] const Declaration& declaration() const noexcept { return declaration_; }
  /// Those that go with each frame of the stream, one for each line `output-tensor`: where they lie in
  /// FrameOutput::tensors.
  [[nodiscard]] std::span<const TensorOutput> tensors() const noexcept;
  /// The output is as the input is, padding included: true for kernels that declare no other.
  [[nodiscard]] bool keeps_layout() const noexcept { return declaration_.output.empty() && !declaration_.converted; }

  // From any thread.
  [[nodiscard]] const Device& device() const noexcept { return *device_; }
  [[nodiscard]] const std::shared_ptr<Device>& shared_device() const noexcept { return device_; }
  [[nodiscard]] Backend backend() const noexcept { return backend_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const KernelSettings& settings() const noexcept { return settings_; }  ///< as they were at the start
  [[nodiscard]] Fence last_launched() const;                                           ///< the end of what was last
  /// As Queue::multiprocessors().
  [[nodiscard]] std::uint32_t multiprocessors() const noexcept { return multiprocessors_; }
  [[nodiscard]] std::uint64_t frames() const;  ///< launched on, ever
  struct How {
    bool resident;    ///< the kernel stays on the GPU; else each frame is a launch
    std::string why;  ///< of a resident one, where its doorbell is; of a launch in its place, why; else empty
  };
  [[nodiscard]] How how() const;

 private:
  struct Job;
  [[nodiscard]] std::unique_ptr<Queue> create_queue(bool resident);
  [[nodiscard]] std::unique_ptr<Queue> open_queue(bool resident);
  [[nodiscard]] bool wait_for_queue(const Fence& fence);  ///< false: cancelled
  [[nodiscard]] bool launch_instead();                    ///< false: cancelled
  void watch_file(const KernelSettings& settings);
  void choose_queue(const KernelPlan& plan);
  [[nodiscard]] std::unique_ptr<FrameTensors> tensors_of(const Declaration& declaration) const;
  void adopt(KernelPlan plan, std::unique_ptr<Program> program, std::unique_ptr<Tables> tables);
  void note_params(const std::string& params);
  void forget();
  void check_input_tensors(const Declaration& declaration) const;
  void check_output_size(const Declaration& declaration) const;
  /// The CPU has to know what the kernel says before a frame can go on.
  [[nodiscard]] bool decides() const noexcept { return static_cast<bool>(declaration_.output_may); }

  /// Bytes of a frame, with what is left of the one before it: those of whole samples, and what is left then.
  struct Samples {
    std::size_t whole, rest;
  };
  [[nodiscard]] Samples samples_of(const FrameInput& in) const;
  [[nodiscard]] bool keeps_rest(const FrameInput& in) const;
  void join(const Job& job);
  void keep_rest(const Job& job);
  [[nodiscard]] FrameOutput gather(const FrameInput& in, std::size_t rest);

  [[nodiscard]] FrameOutput launch_on(const FrameInput& in, const FrameTarget& target);
  [[nodiscard]] std::size_t usual_bytes(const FrameInput& in) const noexcept;
  [[nodiscard]] bool make_room(Job& job);
  void show(Job& job);
  void pack(const Job& job);
  [[nodiscard]] std::vector<BoundsCheck::Range> ranges_of(const Job& job);
  void record(Job& job);
  void submit_rest(Job& job) noexcept;
  void hand_over() noexcept;
  void check(const FrameInput& in) const;
  void run_program(bool by_field);
  void remember(const Job& job);
  void submit(const Job& job);
  [[nodiscard]] FrameOutput finish(Job& job);

  KernelSettings settings_;
  PlanCheck check_;
  std::shared_ptr<Device> device_;
  std::string name_;
  Backend backend_ = Backend::vulkan;
  std::atomic<std::uint32_t> multiprocessors_{0};
  std::unique_ptr<Program> program_;
  std::unique_ptr<KernelReload> reload_;    ///< null where it was not asked for
  std::optional<KernelReload::News> news_;  ///< not acted upon yet
  std::optional<KernelPlan> staying_;       ///< of the kernel that stays on the GPU; none: each frame is a launch
  Declaration declaration_;
  std::unique_ptr<OutputSize> size_;     ///< of outputs
  FrameInput sized_;                     ///< what of the last frame that hangs on; no bytes: nothing is known of frames
  std::unique_ptr<BoundsCheck> bounds_;  ///< null where it was not asked for
  std::unique_ptr<Queue> queue_;
  bool has_result_ = false;
  std::unique_ptr<ResultBlocks> results_;
  std::unique_ptr<Tables> tables_;  ///< null where the kernel has none, as the next
  std::unique_ptr<FrameHistory> history_;
  std::unique_ptr<FrameTensors> tensors_;
  gpumap_frame frame_{};
  std::optional<FrameLayout> in_, out_;  ///< none before the first stream
  std::shared_ptr<BlockPool> device_pool_, host_pool_, packed_pool_, joined_pool_;
  std::unique_ptr<WorkMemory> rest_;  ///< the beginning of a sample, in which the last frame ended
  std::size_t rest_bytes_ = 0;
  bool rest_gap_ = false;  ///< the kernel was not told yet of a hole before that
  std::string loop_risk_;
  bool ended_ = false, all_done_ = false;
  std::atomic<bool> cancelled_{false};

  mutable std::mutex mutex_;  ///< of what follows
  bool resident_ = false;     ///< the kernel stays on the GPU
  std::string why_;           ///< it does, or does not
  std::string params_;
  Fence last_;
  std::uint64_t frames_ = 0;
};

}  // namespace gpumap
