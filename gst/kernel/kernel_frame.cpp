// SPDX-License-Identifier: MIT
// What a KernelRunner does with one buffer.
#include <memory>
#include <optional>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/analytics/analytics_tensors.hpp"
#include "gst/kernel/runner.hpp"
#include "gst/latency/meta.hpp"
#include "gst/memory/copy_flags.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/memory/video_layout.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

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
      to.place = Place::others;
      to.ordered = in_place() && input.frame.ordered;  // what goes on is the input
      if ((in_place() && input.cuda) || !launcher_->gives(input.frame)) break;
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
  return made;
}

/// Null when cancelled.
GstBuffer* KernelRunner::buffer_of(GstBuffer* in, Input& input, FrameOutput& made, Target& target) {
  const bool to_vulkan = output_ == FramesIn::vulkan;
  const bool to_host = made.host && !to_vulkan;
  const bool to_others = target.cuda || (to_vulkan && !vulkan_.hands_on());
  GstBuffer* out = nullptr;
  if (made.in_place && input.block && !made.host && !target.cuda && !vulkan_.hands_on()) {
    made.block = std::move(input.block);  // what goes on is the copy
    made.in_place = false;
  }
  if (made.in_place && !to_host && !to_others) {
    out = gst_buffer_copy(in);
  } else {
    out = new_buffer(input, made, target);
    if (out == nullptr) return nullptr;
    describe(out, in, input, made);
  }
  if (input.frame.trace) refresh_latency_meta(out);
  if (made.shortened) set_times_of_shortened(out, made.bytes);
  keep_result(in, input, gst_buffer_get_size(out));
  if (launcher_->has_result()) result_.put_on(out);
  if (output_ == FramesIn::host) out = as_downstream_reads(out);
  tell_tensors(out, in, made, input.frame.sequence);
  return out;
}

GstBuffer* KernelRunner::as_downstream_reads(GstBuffer* out) const {
  if (!default_layout_only_ || !out_format_.is_video()) return out;
  GstBuffer* read = in_default_layout(out, out_format_.video());
  if (kernel_behind_ && frame_memory(gst_buffer_peek_memory(read, 0)) == nullptr) {
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
  if (made.sized_by_program) times_.give(out);
}

/// Last: a copy of the buffer may leave them behind.
void KernelRunner::tell_tensors(GstBuffer* out, GstBuffer* in, FrameOutput& made, std::uint64_t sequence) const {
  copy_tensors(out, in);
  if (made.tensors) {
    const std::size_t bytes = made.tensors.mapping().bytes();
    put_tensors(out, wrap_device(launcher_->shared_device(), made.tensors, bytes, made.done, sequence, giver_),
                *launcher_);
  }
  if (!in_place()) put_tensor_of_picture(out, out_format_, tensor_id_);
}

void KernelRunner::set_times_of_shortened(GstBuffer* out, std::size_t given) const {
  GST_BUFFER_OFFSET_END(out) = GST_BUFFER_OFFSET_NONE;
  const gpumap_u32 rate = out_format_.rate();
  if (rate == 0) return;
  // Samples last as long as there are.
  GST_BUFFER_DURATION(out) = gst_util_uint64_scale(given / out_format_.bytes_per_sample(), GST_SECOND, rate);
}

}  // namespace gpumap::gst
