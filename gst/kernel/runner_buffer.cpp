// SPDX-License-Identifier: MIT
#include "gst/kernel/runner.hpp"

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/thread_schedule.hpp"
#include "gst/analytics/analytics_metas.hpp"
#include "gst/cuda/gst_cuda_context.hpp"
#include "gst/gst_error.hpp"
#include "gst/latency/latency_report.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"
#include "gst/radio/radio_metas.hpp"
#include "gst/vulkan/gst_vulkan_context.hpp"

namespace gpumap::gst {

// What a KernelRunner does with one buffer.

using Outcome = FrameOutput::Outcome;

namespace {

GstMemory* wrap_host(LentBlock lent, std::size_t bytes) {
  std::byte* data = lent.mapping().host();
  auto* loan = new LentBlock(std::move(lent));
  return gst_memory_new_wrapped(static_cast<GstMemoryFlags>(0), data, bytes, 0, bytes, loan,
                                [](gpointer returned) { delete static_cast<LentBlock*>(returned); });
}

/// The first `bytes` of a block that `done` fills.
GstMemory* wrap_device(const std::shared_ptr<Device>& device, LentBlock& lent, std::size_t bytes, const Fence& done,
                       std::uint64_t sequence, const std::shared_ptr<const Giver>& giver) {
  auto memory = std::make_unique<FrameMemory>(device, lent.release(), bytes, lent.pool());
  memory->set_written(done, giver);
  memory->set_sequence(sequence);
  return memory_new(wrapping_allocator(), std::move(memory), bytes, GST_MEMORY_FLAG_READONLY);
}

}  // namespace

void KernelRunner::count(const FrameTrace* trace) {
  if (trace == nullptr) return;
  const std::lock_guard lock(log_mutex_);
  if (log_ != trace->log()) log_ = trace->log();
}

void KernelRunner::keep_result(const GstBuffer* in, const Input& input, std::uint64_t bytes) {
  if (!launcher_->has_result()) return;
  result_.keep(
      {.bytes = bytes, .sequence = input.frame.sequence, .offset = GST_BUFFER_OFFSET(in), .pts = GST_BUFFER_PTS(in)});
  result_.collect(*launcher_);
}

KernelRunner::Ran KernelRunner::run(GstBuffer* in) {
  // Where only the GPU waits, a fault of an earlier frame may show anywhere.
  return launcher_->naming([&] { return run_on(in); });
}

KernelRunner::Ran KernelRunner::run_on(GstBuffer* in) {
  if (lacks_vulkan_pool()) return {};  // the source pad was switched off meanwhile: it has no caps any more
  check_center();
  const bool gap = continuity_.breaks_at(in);
  if (begins_anew_at(in)) begin();
  if (GST_BUFFER_IS_DISCONT(in)) launcher_->realign();
  cuda_.sweep();
  std::optional<Input> input = input_of(in);
  if (!input) return {};
  input->frame.gap = gap;
  const gpumap_u32 rate = in_format_.rate();
  continuity_.add(in, rate != 0 ? input->frame.bytes / in_format_.bytes_per_sample() : 0, rate);
  std::optional<Target> target = target_of(*input);
  if (!target) return {};
  FrameOutput made = launch(*input, *target);
  if (made.outcome == Outcome::cancelled) return {};
  count(input->frame.trace.get());
  if (made.sized_by_program) times_.add(in);
  if (made.sized_by_program && made.outcome != Outcome::given) {
    if (!untold_) untold_.reset(gst_buffer_new());
    copy_annotations(untold_.get(), in);
  }
  Ptr<GstBuffer> out;
  if (made.outcome == Outcome::given) {
    out.reset(buffer_of(in, *input, made, *target));
  } else if (made.outcome == Outcome::dropped) {
    keep_result(in, *input, 0);
    result_.drop_found();
  }
  if (input->cuda && !cuda_.give_back(std::move(input->cuda), made.done)) out.reset();
  if (made.outcome == Outcome::given && !out) return {};
  return {made.outcome, out.release()};
}

std::optional<KernelRunner::Target> KernelRunner::target_of(const Input& input) {
  using Place = FrameTarget::Place;
  std::optional<Target> made(std::in_place);
  FrameTarget& to = made->to;
  switch (output_) {
    case FramesIn::host:
      to.place = kernel_behind_ ? Place::device : Place::host;
      break;
    case FramesIn::ours:
      to.place = Place::device;
      break;
    case FramesIn::vulkan:
      to.place = vulkan_.imports_output() ? Place::device : Place::host;
      break;
    case FramesIn::cuda:
      to.place = lends_to_cuda() && !(in_place() && input.cuda) ? Place::device : Place::others;
      to.ordered = in_place() && input.frame.ordered;  // what goes on is the input
      if (to.place == Place::device || (in_place() && input.cuda) || !launcher_->gives(input.frame)) break;
      made->cuda = cuda_.take(out_format_.video());
      if (!made->cuda) return {};
      to.view = out_format_.view(made->cuda.address(), made->cuda.bytes(), &made->cuda.layout());
      to.copy = cuda_.copier(out_format_.video());
      to.ordered = orders_by_stream(made->cuda);
      break;
  }
  return made;
}

FrameOutput KernelRunner::launch(Input& input, Target& target) {
  const auto keep_all = [&] {
    const Fence last = launcher_->last_launched();
    cuda_.keep(std::move(input.cuda), last);
    cuda_.keep(std::move(target.cuda), last);
    for (CudaFrame& tensor : input.tensors.take_lent()) cuda_.keep(std::move(tensor), last);
    input.block.add_read_fence(last);
  };
  FrameOutput made;
  try {
    made = launcher_->launch(input.frame, target.to);
  } catch (...) {
    keep_all();
    throw;
  }
  if (made.outcome == Outcome::cancelled) {
    keep_all();
    return made;
  }
  if (target.cuda) hand_over(launcher_->queue(), target.cuda);
  input.block.add_read_fence(made.done);
  for (CudaFrame& tensor : input.tensors.take_lent()) cuda_.keep(std::move(tensor), made.done);
  return made;
}

/// Null when cancelled.
GstBuffer* KernelRunner::buffer_of(GstBuffer* in, Input& input, FrameOutput& made, Target& target) {
  const bool to_vulkan = output_ == FramesIn::vulkan;
  const bool to_host = made.host && !to_vulkan;
  const bool to_others = target.cuda || (to_vulkan && !vulkan_.hands_on());
  Ptr<GstBuffer> out;
  if (made.in_place && input.block && !made.host && !target.cuda && !vulkan_.hands_on()) {
    made.block = std::move(input.block);  // what goes on is the copy
    made.in_place = false;
  }
  if (made.in_place && !to_host && !to_others) {
    out.reset(gst_buffer_copy(in));
  } else {
    out.reset(new_buffer(input, made, target));
    if (!out) return nullptr;
    describe(out.get(), in, input, made);
  }
  if (input.frame.trace) refresh_latency_meta(out.get());
  if (made.shortened) set_times_of_shortened(out.get(), made.bytes);
  keep_result(in, input, gst_buffer_get_size(out.get()));
  if (launcher_->has_result()) result_.put_on(out.get());
  if (output_ == FramesIn::host) out.reset(as_downstream_reads(out.release()));
  if (lends_to_cuda()) out.reset(cuda_.lend(out.release()));
  if (!out) return nullptr;
  tell_tensors(out.get(), in, made, input.frame.sequence);
  return out.release();
}

GstBuffer* KernelRunner::as_downstream_reads(GstBuffer* out) const {
  if (!default_layout_only_ || !out_format_.is_video()) return out;
  // A frame in ordinary memory was made for what was linked here before: the kernel behind leaves it out.
  const bool stays = kernel_behind_ && frame_memory(gst_buffer_peek_memory(out, 0)) != nullptr;
  GstBuffer* read = in_default_layout(out, out_format_.video());
  if (stays && frame_memory(gst_buffer_peek_memory(read, 0)) == nullptr) {
    gst_buffer_unref(read);
    throw Error(
        ErrorCode::not_supported,
        "rows of this frame are padded, and of the branches behind a tee one has a gpumapkernel, which needs it "
        "in GPU memory, and another an element that does not read GstVideoMeta: put videoconvert first in that "
        "branch, or gpumapkernel kernel=convert before the tee");
  }
  return read;
}

/// With the memory in which the output lies. Null when cancelled.
GstBuffer* KernelRunner::new_buffer(const Input& input, FrameOutput& made, Target& target) {
  if (target.cuda) return target.cuda.release();
  if (output_ == FramesIn::vulkan) return vulkan_.copy_out(input.frame, made, out_format_, kept_layout(input, made));
  GstBuffer* out = gst_buffer_new();
  if (made.block) {
    gst_buffer_append_memory(
        out, wrap_device(launcher_->shared_device(), made.block, made.bytes, made.done, input.frame.sequence, giver_));
  } else if (made.host) {
    gst_buffer_append_memory(out, wrap_host(std::move(made.host), made.bytes));
  }
  return out;
}

GstVideoMeta* KernelRunner::kept_layout(const Input& input, const FrameOutput& made) const noexcept {
  return launcher_->keeps_layout() && !made.packed ? input.meta : nullptr;
}

/// As `in` is described, as far as that holds of `out`, which has its memory.
void KernelRunner::describe(GstBuffer* out, GstBuffer* in, const Input& input, const FrameOutput& made) {
  gst_buffer_copy_into(out, in, copy_flags_and_times, 0, static_cast<gsize>(-1));
  copy_metas(out, in, metas_);
  if (input.is_cut) remove_crop_meta(out);
  const bool in_ours = output_ == FramesIn::host || output_ == FramesIn::ours;
  if (GstVideoMeta* meta = in_ours ? kept_layout(input, made) : nullptr) {
    gst_buffer_add_video_meta_full(out, meta->flags, meta->format, meta->width, meta->height, meta->n_planes,
                                   meta->offset, meta->stride);
  }
  if (!in_place()) remove_result_meta(out);
  if (const auto center = declared_.tuning ? radio_of(out).center_frequency : std::nullopt) {
    retune(out, *tuning_.behind(center));
  }
  if (!made.sized_by_program) return;
  times_.give(out);
  if (GST_BUFFER_PTS_IS_VALID(in) && GST_BUFFER_PTS(out) < GST_BUFFER_PTS(in)) {
    move_reference_times(out, GST_CLOCK_DIFF(GST_BUFFER_PTS(in), GST_BUFFER_PTS(out)));
  }
  if (untold_) copy_annotations(out, untold_.get());
  untold_.reset();
}

/// Last: a copy of the buffer may leave them behind.
void KernelRunner::tell_tensors(GstBuffer* out, GstBuffer* in, FrameOutput& made, std::uint64_t sequence) {
  copy_tensors(out, in);
  if (made.tensors) {
    const std::size_t bytes = made.tensors.mapping().bytes();
    const auto in_memory_of_frame = [this](GstMemory* tensor) {
      return output_ == FramesIn::cuda ? cuda_.lend(tensor) : tensor;
    };
    put_tensors(out, wrap_device(launcher_->shared_device(), made.tensors, bytes, made.done, sequence, giver_),
                *launcher_, in_memory_of_frame);
  }
  if (!in_place() && out_format_.tensor()) put_tensor(out, *out_format_.tensor(), tensor_id_);
}

void KernelRunner::set_times_of_shortened(GstBuffer* out, std::size_t given) const {
  GST_BUFFER_OFFSET_END(out) = GST_BUFFER_OFFSET_NONE;
  const gpumap_u32 rate = out_format_.rate();
  if (rate == 0) return;
  // Samples last as long as there are.
  GST_BUFFER_DURATION(out) = gst_util_uint64_scale(given / out_format_.bytes_per_sample(), GST_SECOND, rate);
}

/// What the clock's thread looks at; it may do so once more when the watchdog is gone.
struct Watchdog::Watched {
  void look() {
    std::string kernel;
    auto ahead = WorkAhead::none;
    bool resident = false;
    GstElement* teller = nullptr;
    {
      const std::lock_guard lock(mutex);
      if (!runner) return;
      const GstClockTime now = gst_clock_get_time(clock);
      // Longer than that it did not look: the process was stopped, and on a software device so was the kernel.
      if (now - looked > period()) since += now - looked - period();
      looked = now;
      if (launched.signalled()) {
        launched = runner->last_launched();
        since = now;
      }
      // What waits behind other frames takes as long as these do: it hangs only where none of them ends either. Other
      // kernels have a time of their own, until theirs is over.
      const auto& timeline = launched.timeline();
      const std::uint64_t reached = timeline ? timeline->completed() : 0;
      if (std::exchange(ended, reached) != reached) since = now;
      if (timeline) ahead = timeline->ahead_of(launched.value());
      if (ahead == WorkAhead::awaited) since = now;
      if (now - since < timeout_ms * GST_MSECOND) return;
      kernel = runner->name();
      resident = runner->is_resident();
      if (timeline) timeline->set_endless(launched.value());
      runner->cancel(true);
      // Now: it ends with its element, which waits for it, and not in this thread.
      runner.reset();
      teller = GST_ELEMENT_CAST(gst_object_ref(element));
    }
    // Without the lock: who hears of it may stop the element at once.
    const std::string told =
        ahead == WorkAhead::endless
            ? fmt::format(
                  "kernel {} has not ended for {} ms: it waits for another kernel on its GPU that does not end: mend "
                  "that one, and start the process again",
                  kernel, timeout_ms)
            : fmt::format(
                  "kernel {} has not ended for {} ms: does it loop for ever{}? Where it only takes long, raise "
                  "timeout",
                  kernel, timeout_ms,
                  resident
                      ? ", or wait for threads of its block that do not come there, which with mode=launch may work"
                      : "");
    post_error(teller,
               FiguredError(Error(ErrorCode::device_lost, told), {{"kernel", kernel}, {"timeout-ms", timeout_ms}}));
    gst_object_unref(teller);
  }

  Watched() = default;
  ~Watched() { gst_object_unref(clock); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  /// From look to look.
  [[nodiscard]] GstClockTime period() const noexcept { return timeout_ms * GST_MSECOND / 4; }

  GstClock* const clock = gst_system_clock_obtain();
  std::mutex mutex;
  GstElement* element = nullptr;         ///< outlives the watchdog
  std::shared_ptr<KernelRunner> runner;  ///< null: nothing to look at any more
  std::uint32_t timeout_ms = 0;
  Fence launched;
  std::uint64_t ended = 0;  ///< completed() of the timeline of `launched`
  GstClockTime since = gst_clock_get_time(clock), looked = since;
};

Watchdog::Watchdog(GstElement* element, std::shared_ptr<KernelRunner> runner, std::uint32_t timeout_ms) {
  if (timeout_ms == 0) return;
  watched_ = std::make_shared<Watched>();
  watched_->element = element;
  watched_->runner = std::move(runner);
  watched_->timeout_ms = timeout_ms;
  GstClock* clock = watched_->clock;
  const GstClockTime period = watched_->period();
  alarm_ = gst_clock_new_periodic_id(clock, gst_clock_get_time(clock) + period, period);
  const GstClockReturn looks = gst_clock_id_wait_async(
      alarm_,
      [](GstClock* /*clock*/, GstClockTime /*time*/, GstClockID /*id*/, gpointer data) -> gboolean {
        (*static_cast<std::shared_ptr<Watched>*>(data))->look();
        return TRUE;
      },
      new std::shared_ptr<Watched>(watched_),
      [](gpointer data) { delete static_cast<std::shared_ptr<Watched>*>(data); });
  if (looks == GST_CLOCK_OK) return;
  gst_clock_id_unref(alarm_);
  throw no_thread("timeout, in GStreamer's clock", std::make_error_code(std::errc::resource_unavailable_try_again));
}

bool Watchdog::has_told() const {
  if (!watched_) return false;
  const std::lock_guard lock(watched_->mutex);
  return !watched_->runner;
}

Watchdog::~Watchdog() {
  if (alarm_ == nullptr) return;
  {
    const std::lock_guard lock(watched_->mutex);
    // GStreamer's clock may keep what it was given for a while.
    watched_->runner.reset();
    watched_->launched = {};
  }
  gst_clock_id_unschedule(alarm_);
  gst_clock_id_unref(alarm_);
}

}  // namespace gpumap::gst
