// SPDX-License-Identifier: MIT
// What a KernelRunner does with one buffer.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/analytics/tensors.hpp"
#include "gst/kernel/runner.hpp"
#include "gst/latency/meta.hpp"
#include "gst/memory/copy_flags.hpp"
#include "gst/memory/memory.hpp"
#include "gst/memory/video_layout.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

namespace {

GstMemory* wrap_host(LentBlock lent, std::size_t bytes) {
  std::byte* data = lent.mapping().host();
  auto* loan = new LentBlock(std::move(lent));
  return gst_memory_new_wrapped(static_cast<GstMemoryFlags>(0), data, bytes, 0, bytes, loan,
                                [](gpointer returned) { delete static_cast<LentBlock*>(returned); });
}

/// The first `bytes` of a block that `done` fills.
GstMemory* wrap_device(const std::shared_ptr<Device>& device, LentBlock& lent, std::size_t bytes, const Fence& done,
                       std::uint64_t sequence) {
  auto memory = std::make_unique<FrameMemory>(device, lent.release(), bytes, lent.pool());
  memory->set_written(done);
  memory->set_sequence(sequence);
  return memory_new(wrapping_allocator(), std::move(memory), bytes, GST_MEMORY_FLAG_READONLY);
}

std::int64_t time_or_none(GstClockTime time) {
  return GST_CLOCK_TIME_IS_VALID(time) ? static_cast<std::int64_t>(time) : -1;
}

}  // namespace

KernelRunner::Input KernelRunner::input_of(GstBuffer* in) const {
  GstMemory* memory = gst_buffer_n_memory(in) == 1 ? gst_buffer_peek_memory(in, 0) : nullptr;
  FrameMemory* bytes = frame_memory(memory);
  if (memory == nullptr || bytes == nullptr) {
    throw Error(ErrorCode::invalid,
                "a frame that is not in GPU memory reached gpumapkernel: put gpumapsink and gpumapsrc before it, with "
                "nothing between gpumapsrc and gpumapkernel that changes frames on the CPU, nor a gpumapkernel whose "
                "tee also feeds an element on the CPU");
  }
  const Backend backend = launcher_->backend();
  Input made;
  FrameInput& frame = made.frame;
  frame.mapping = &bytes->mapping();
  frame.holder = bytes;
  frame.written = bytes->written();
  frame.sequence = bytes->sequence();
  frame.offset = bytes->offset() + memory->offset;
  frame.bytes = memory->size;
  frame.address = frame.mapping->address(backend);
  if (frame.address == 0) {
    throw Error(ErrorCode::invalid,
                fmt::format("{} runs {}, which does not reach the page-locked memory of transport=zero-copy on {}: use "
                            "backend={} on gpumapkernel, or transport=pinned on gpumapsink",
                            name(), to_string(backend), name_of(device().info()),
                            value_name(backend == Backend::cuda ? Backend::vulkan : Backend::cuda)));
  }
  frame.address += frame.offset;
  made.meta = in_format_.is_video() ? gst_buffer_get_video_meta(in) : nullptr;
  const GstVideoMeta* shown = made.meta;
  // Where the bytes stay as they are, so does what is said of them.
  std::optional<GstVideoMeta> part;
  if (made.meta != nullptr && !launcher_->keeps_layout() && !in_place()) part = cut_out(in, in_format_.video());
  if (part) {
    shown = &*part;
    made.is_cut = true;
  }
  frame.picture_bytes = shown != nullptr ? in_format_.check(*shown, frame.bytes) : in_format_.image_bytes();
  frame.view = in_format_.view(frame.address, frame.bytes, shown);
  return made;
}

std::string KernelRunner::shortfall(GstBuffer* in) const {
  const FrameMemory* frame = gst_buffer_n_memory(in) == 1 ? frame_memory(gst_buffer_peek_memory(in, 0)) : nullptr;
  if (frame != nullptr && frame->recalled()) {
    return "a frame that its producer has taken back is left out, and so are others like it: take frames faster, set "
           "leaky on gpumapsrc, or raise stall-limit on gpumapsink";
  }
  const std::size_t bytes = gst_buffer_get_size(in);
  const std::size_t wanted = in_format_.image_bytes();
  // Where planes and strides are told, these are checked instead.
  const bool is_told = bytes != 0 && in_format_.is_video() && gst_buffer_get_video_meta(in) != nullptr;
  if (bytes >= wanted || is_told || cuda_input_ || vulkan_input_) return {};
  return fmt::format(
      "a frame of {} bytes where the caps say {} is left out, and so are others like it: see what upstream sends",
      bytes, wanted);
}

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

/// Upstream gets its buffer back when the GPU has read it. Not many are kept: its pool may be small. False when
/// cancelled. Throws Error(device_lost).
bool KernelRunner::keep_until(CudaFrame frame, const Fence& done) {
  constexpr std::size_t max_kept = 2;
  loans_->keep(std::move(frame), done);
  if (!launcher_->wait(loans_->excess(max_kept))) return false;
  loans_->sweep();
  return true;
}

GstBuffer* KernelRunner::run(GstBuffer* in) {
  try {
    return run_on(in);
  } catch (const Error& error) {
    // Where only the GPU waits, a fault of an earlier frame may show anywhere.
    const std::string text = error.what();
    if (error.code() != ErrorCode::device_lost || text.starts_with("while running kernel")) throw;
    throw Error(ErrorCode::device_lost, fmt::format("while running kernel {}: {}", name(), text));
  }
}

GstBuffer* KernelRunner::run_on(GstBuffer* in) {
  only_remembered_ = dropped_ = false;
  if (lacks_vulkan_pool()) return nullptr;  // the source pad was switched off meanwhile: it has no caps any more
  const bool gap = continuity_.breaks_at(in);
  if (begins_anew_at(in)) begin();
  begun_anew_ = false;
  loans_->sweep();
  std::optional<Input> copied;
  if (vulkan_input_) {
    copied = vulkan_input_of(in);
    if (!copied) return nullptr;
  }
  Input input = copied ? std::move(*copied) : cuda_input_ ? cuda_input_of(in) : input_of(in);
  if (!launcher_->declaration().input_tensors.empty()) {
    input.tensors = MappedTensors(in, *launcher_);
    input.frame.tensors = input.tensors.take();
  }
  const gpumap_u32 rate = in_format_.rate();
  continuity_.add(in, rate != 0 ? input.frame.bytes / in_format_.bytes_per_sample() : 0, rate);
  input.frame.gap = gap;
  input.frame.pts = time_or_none(GST_BUFFER_PTS(in));
  input.frame.duration = time_or_none(GST_BUFFER_DURATION(in));
  input.frame.by_field = in_format_.has_chroma_by_field(in);
  input.frame.trace = trace_of(in);
  if (input.cuda) {
    input.frame.sequence = foreign_sequence_++;
    input.frame.ordered = orders_by_stream(input.cuda);  // and kept until the kernel is done with it
    take_over(launcher_->queue(), input.cuda);
  }

  FrameTarget target{.place = gpu_output_ ? FrameTarget::Place::device : FrameTarget::Place::host};
  CudaFrame cuda;
  if (vulkan_output_ && vulkan_out_->shares()) target.place = FrameTarget::Place::device;
  if (cuda_output_) {
    target.place = FrameTarget::Place::others;
    target.ordered = in_place() && input.frame.ordered;  // what goes on is the input
    if (!(in_place() && input.cuda) && launcher_->gives(input.frame)) {
      cuda = take_cuda_frame();
      if (!cuda) return nullptr;
      target.view = out_format_.view(cuda.address(), cuda.bytes(), &cuda.layout());
      target.copy = rows_of(out_format_);
      target.ordered = orders_by_stream(cuda);
      take_over(launcher_->queue(), cuda);  // who had the memory before may still read it
    }
  }

  using Outcome = FrameOutput::Outcome;
  const auto keep_both = [&] {
    const Fence last = launcher_->last_launched();
    loans_->keep(std::move(input.cuda), last);
    loans_->keep(std::move(cuda), last);
    input.block.add_read_fence(last);
  };
  FrameOutput made;
  try {
    made = launcher_->launch(input.frame, target);
  } catch (...) {
    keep_both();
    throw;
  }
  if (made.outcome == Outcome::cancelled) {
    keep_both();
    return nullptr;
  }
  if (cuda) hand_over(launcher_->queue(), cuda);
  input.block.add_read_fence(made.done);
  count(input.frame.trace.get());
  if (made.sized_by_program) times_.add(in);
  Ptr<GstBuffer> out;
  if (made.outcome == Outcome::remembered) {
    only_remembered_ = true;
  } else if (made.outcome == Outcome::dropped) {
    dropped_ = true;
    keep_result(in, input, 0);
    result_.drop_found();
  } else {
    out.reset(buffer_of(in, input, made, cuda));
  }
  if (input.cuda && !keep_until(std::move(input.cuda), made.done)) return nullptr;
  return out.release();
}

GstBuffer* KernelRunner::buffer_of(GstBuffer* in, Input& input, FrameOutput& made, CudaFrame& cuda) {
  const bool to_host = made.host && !vulkan_output_;
  GstBuffer* out = nullptr;
  if (made.in_place && input.block && !made.host && !cuda && !hands_vulkan_on()) {
    made.block = std::move(input.block);  // what goes on is the copy
    made.in_place = false;
  }
  if (made.in_place && !to_host && !cuda && (!vulkan_output_ || hands_vulkan_on())) {
    out = gst_buffer_copy(in);
  } else {
    out = cuda ? cuda.release() : vulkan_output_ ? vulkan_output_of(input, made) : gst_buffer_new();
    if (out == nullptr) return nullptr;
    if (vulkan_output_) {
      // It lies there already.
    } else if (made.block) {
      gst_buffer_append_memory(
          out, wrap_device(launcher_->shared_device(), made.block, made.bytes, made.done, input.frame.sequence));
    } else if (to_host) {
      gst_buffer_append_memory(out, wrap_host(std::move(made.host), made.bytes));
    }
    gst_buffer_copy_into(out, in, copy_flags_and_times, 0, static_cast<gsize>(-1));
    copy_metas(out, in, metas_);
    if (input.is_cut) remove_crop_meta(out);
    GstVideoMeta* meta =
        launcher_->keeps_layout() && !made.packed && !cuda_output_ && !vulkan_output_ ? input.meta : nullptr;
    if (meta != nullptr) {
      gst_buffer_add_video_meta_full(out, meta->flags, meta->format, meta->width, meta->height, meta->n_planes,
                                     meta->offset, meta->stride);
    }
    if (!in_place()) remove_result_meta(out);
    if (made.sized_by_program) times_.give(out);
  }
  if (input.frame.trace) refresh_latency_meta(out);
  if (made.shortened) set_times_of_shortened(out, made.bytes);
  keep_result(in, input, gst_buffer_get_size(out));
  if (launcher_->has_result()) result_.put_on(out);
  if (to_host && default_layout_only_ && out_format_.is_video()) out = in_default_layout(out, out_format_.video());
  tell_tensors(out, in, made, input.frame.sequence);
  return out;
}

/// Last: a copy of the buffer may leave them behind.
void KernelRunner::tell_tensors(GstBuffer* out, GstBuffer* in, FrameOutput& made, std::uint64_t sequence) const {
  copy_tensors(out, in);
  if (made.tensors) {
    const std::size_t bytes = made.tensors.mapping().bytes();
    put_tensors(out, wrap_device(launcher_->shared_device(), made.tensors, bytes, made.done, sequence), *launcher_);
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
