// SPDX-License-Identifier: MIT
// What a KernelRunner does with one frame.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/kernel/device.hpp"
#include "gst/kernel/runner.hpp"
#include "gst/latency/meta.hpp"
#include "gst/memory/memory.hpp"
#include "gst/memory/video_layout.hpp"

namespace gpumap::gst {

namespace {

/// Room for what is put behind an output stays countable.
constexpr std::uint64_t most_output_bytes = std::uint64_t{1} << 62U;

GstMemory* wrap_host(const std::shared_ptr<BlockPool>& pool, MemoryBlock block, std::size_t bytes) {
  struct Loan {
    std::shared_ptr<BlockPool> pool;
    MemoryBlock block;
  };
  std::byte* data = block.mapping->host();
  auto* loan = new Loan{pool, std::move(block)};
  return gst_memory_new_wrapped(static_cast<GstMemoryFlags>(0), data, bytes, 0, bytes, loan, [](gpointer data_of_loan) {
    auto* returned = static_cast<Loan*>(data_of_loan);
    returned->pool->give_back(std::move(returned->block));
    delete returned;
  });
}

}  // namespace

KernelRunner::Input KernelRunner::input_of(GstBuffer* in) const {
  if (cuda_input_) return cuda_input_of(in);
  GstMemory* memory = gst_buffer_n_memory(in) == 1 ? gst_buffer_peek_memory(in, 0) : nullptr;
  FrameMemory* bytes = frame_memory(memory);
  if (memory == nullptr || bytes == nullptr) {
    throw Error(ErrorCode::invalid,
                "a frame that is not in GPU memory reached gpumapkernel: put gpumapsink and gpumapsrc before it, with "
                "nothing between gpumapsrc and gpumapkernel that changes frames on the CPU, nor a gpumapkernel whose "
                "tee also feeds an element on the CPU");
  }
  Input made;
  made.bytes = bytes;
  made.offset = bytes->offset() + memory->offset;
  made.size = memory->size;
  made.address = bytes->mapping().address(backend_);
  if (made.address == 0) {
    throw Error(ErrorCode::invalid,
                fmt::format("{} runs {}, which does not reach the page-locked memory of transport=zero-copy on {}: use "
                            "backend={} on gpumapkernel, or transport=pinned on gpumapsink",
                            name_, to_string(backend_), name_of(device_->info()),
                            backend_ == Backend::cuda ? "vulkan" : "cuda"));
  }
  made.address += made.offset;
  // Of samples, whole frames only: the output has room for no more.
  const std::size_t sample = declaration_.on_bytes ? 1 : in_format_.bytes_per_sample();
  if (sample > 1) made.size -= made.size % sample;
  made.meta = in_format_.is_video() ? gst_buffer_get_video_meta(in) : nullptr;
  if (made.meta != nullptr) {
    in_format_.check(*made.meta, made.size);
  }
  return made;
}

std::string KernelRunner::shortfall(GstBuffer* in) const {
  const std::size_t bytes = gst_buffer_get_size(in);
  const std::size_t wanted = in_format_.image_bytes();
  // Where planes and strides are told, these are checked instead.
  const bool is_told = bytes != 0 && in_format_.is_video() && gst_buffer_get_video_meta(in) != nullptr;
  if (bytes >= wanted || is_told || cuda_input_) return {};
  return fmt::format(
      "a frame of {} bytes where the caps say {} is left out, and so are others like it: see what upstream sends",
      bytes, wanted);
}

std::size_t KernelRunner::output_bytes(const Input& input) const {
  const std::size_t input_bytes = input.size;
  if (in_place()) return input_bytes;
  if (const auto known = program_->output_bytes(input_bytes)) return *known;
  if (!declaration_.output_bytes.empty()) {
    const gpumap_view in = in_format_.view(0, input_bytes, input.meta);
    std::vector<std::pair<std::string_view, std::uint64_t>> variables{
        {"bytes", input_bytes},   {"width", in.width}, {"height", in.height},
        {"stride", in.stride[0]}, {"rate", in.rate},   {"channels", in.channels}};
    variables.insert(variables.end(), of_params_.begin(), of_params_.end());
    const std::uint64_t bytes = evaluate(declaration_.output_bytes, variables);
    // A kernel that keeps to the format and the size that it is told writes as much as these take.
    if (!out_format_.fits(keeps_layout() ? input.meta : nullptr, bytes)) {
      throw Error(
          ErrorCode::invalid,
          fmt::format("kernel {}: an output of {} bytes (\"{}\") has no room for the picture that its caps say, "
                      "which takes {}: leave the line bytes and output-bytes out",
                      name_, bytes, declaration_.output_bytes, out_format_.image_bytes()));
    }
    if (bytes > most_output_bytes) {
      throw Error(ErrorCode::invalid,
                  fmt::format("kernel {}: an output of {} bytes (\"{}\"): no memory has room for it", name_, bytes,
                              declaration_.output_bytes));
    }
    return bytes;
  }
  if (keeps_layout()) return input_bytes;
  if (out_format_.image_bytes() != 0) return out_format_.image_bytes();
  if (out_format_.format() == GPUMAP_FORMAT_BYTES) return input_bytes;
  const std::size_t samples = input_bytes / std::max<std::size_t>(in_format_.bytes_per_sample(), 1);
  return samples * std::max<std::size_t>(out_format_.bytes_per_sample(), 1);
}

bool KernelRunner::take(std::shared_ptr<BlockPool>& pool, Placement placement, std::size_t bytes, MemoryBlock& block) {
  if (!pool || pool->bytes() < bytes) {
    pool = std::make_shared<BlockPool>(device_, backend_, placement, std::max<std::size_t>(bytes, 1));
  }
  auto taken = pool->take(cancelled_);
  if (!taken) return false;
  block = std::move(*taken);
  return true;
}

void KernelRunner::launch(bool by_field) {
  if (!by_field) {
    program_->run(*queue_, frame_);
    return;
  }
  gpumap_frame part = frame_;
  for (gpumap_u32 field = 0; field < std::min<gpumap_u32>(frame_.in.height, 2); ++field) {
    part.in = field_of(frame_.in, field);
    for (gpumap_u32 i = 0; i < frame_.past_count; ++i) part.past[i] = field_of(frame_.past[i], field);
    part.out = field_of(frame_.out, field);
    program_->run(*queue_, part);
  }
}

void KernelRunner::stamp(FrameTrace& trace, const Input& input, Stamp stamp) {
  const std::int64_t now = monotonic_ns();
  trace.stamp(stamp, now);
  if (input.bytes != nullptr) input.bytes->stamp(stamp, now);
}

void KernelRunner::count(const FrameTrace* trace) {
  const std::lock_guard lock(last_mutex_);
  ++frames_;
  if (trace != nullptr && log_ != trace->log()) log_ = trace->log();
}

void KernelRunner::submit(const Input& input) {
  {
    const std::lock_guard lock(last_mutex_);
    last_ = queue_->submit();
  }
  result_->launched(last_);
  if (input.bytes != nullptr) input.bytes->add_read_fence(last_);
}

GstBuffer* KernelRunner::run_on(GstBuffer* in) {
  only_remembered_ = dropped_ = false;
  const bool gap = continuity_.breaks_at(in);
  if (begins_anew_at(in)) begin();
  begun_anew_ = false;
  frame_.flags = gap ? GPUMAP_FRAME_GAP : 0;
  loans_->sweep();
  Input input = input_of(in);
  const gpumap_u32 rate = in_format_.view(0, 0, nullptr).rate;
  continuity_.add(in, rate != 0 ? input.size / in_format_.bytes_per_sample() : 0, rate);
  const Queue::Current current(*queue_);
  // Before anything is taken: where the frame came by another backend, the CPU waits here.
  if (input.bytes != nullptr && queue_->wait(input.bytes->written(), &cancelled_) != WaitResult::ready) return nullptr;
  MemoryBlock packed;
  Unpacked unpacked;
  if (is_packed(input) && !make_room(input, packed, unpacked)) return nullptr;
  const bool in_place = hands_on(input);
  const std::size_t bytes = output_bytes(input);

  const bool own_size = program_->output_bytes(input.size).has_value();

  if ((has_result_ || decides()) && !result_->take(cancelled_)) return nullptr;
  MemoryBlock device_block;
  const std::size_t guard = bounds_ ? BoundsCheck::guard_bytes : 0;
  only_remembered_ = own_size && bytes == 0;
  const bool gives = !only_remembered_;
  CudaFrame cuda_out;
  if (gives && cuda_output_ && !(in_place && input.cuda)) {
    cuda_out = take_cuda_frame();
    if (!cuda_out) return nullptr;
  }
  const bool straight = cuda_out && !keeps_layout() && !declaration_.on_bytes && !bounds_;
  if (gives && this->in_place() && !in_place) {
    device_block = std::exchange(packed, {});
  } else if (gives && !in_place && !straight && !take(device_pool_, Placement::device, bytes + guard, device_block)) {
    return nullptr;
  }
  const std::shared_ptr<BlockPool>& pool = this->in_place() ? packed_pool_ : device_pool_;
  const bool to_host = !gpu_output_ && !cuda_output_;
  MemoryBlock host_block;
  if (gives && to_host && !take(host_pool_, Placement::host, bytes, host_block)) {
    if (!in_place) pool->give_back(std::move(device_block));
    return nullptr;
  }

  const FrameFormat plain;
  const FrameFormat& in_format = declaration_.on_bytes ? plain : in_format_;
  const FrameFormat& out_format = declaration_.on_bytes ? plain : out_format_;
  frame_.in = in_format.view(input.address, input.size, input.meta);
  const std::uint64_t out_address = device_block.mapping ? device_block.mapping->address(backend_) : 0;
  GstVideoMeta* out_meta = keeps_layout() ? input.meta : nullptr;
  frame_.out = this->in_place() ? frame_.in : out_format.view(out_address, bytes, out_meta);
  if (straight) frame_.out = out_format.view(cuda_out.address(), cuda_out.bytes(), &cuda_out.layout());
  frame_.sequence = input.bytes != nullptr ? input.bytes->sequence() : cuda_sequence_++;
  frame_.pts = GST_BUFFER_PTS_IS_VALID(in) ? static_cast<std::int64_t>(GST_BUFFER_PTS(in)) : -1;
  frame_.duration = GST_BUFFER_DURATION_IS_VALID(in) ? static_cast<std::int64_t>(GST_BUFFER_DURATION(in)) : -1;
  lend_inputs(gap);
  result_->show(frame_);

  const std::shared_ptr<FrameTrace> trace = trace_of(in);
  if (trace) stamp(*trace, input, Stamp::launched);
  if (unpacked.to) pack(unpacked);
  const bool checks_bounds = bounds_ && !this->in_place();
  if (checks_bounds) bounds_->write_guard(*queue_, *device_block.mapping, bytes);
  const std::shared_ptr<GpuSpan> span = trace ? queue_->begin_span() : nullptr;
  launch(declaration_.per_field && in_format_.has_chroma_by_field(in));
  if (span) {
    queue_->end_span(*span);
    trace->add_span(span);
  }
  if (checks_bounds) bounds_->read_guard(*queue_, *device_block.mapping, bytes);
  remember(input);
  if (own_size) times_.add(in);
  count(trace.get());
  if (!gives) {
    submit(input);
    loans_->keep(std::move(input.cuda), last_);
    return nullptr;
  }
  const auto give_back = [this](const std::shared_ptr<BlockPool>& to, MemoryBlock& block) {
    if (!block.mapping) return;
    block.readers.push_back(last_);
    to->give_back(std::move(block));
  };
  std::optional<std::size_t> given = bytes;
  if (decides()) {
    submit(input);
    const bool ended = wait(last_);
    if (ended && checks_bounds) bounds_->verify(name_, bytes);
    if (ended) given = given_of(bytes);
    if (!ended || !given) {
      give_back(pool, device_block);
      give_back(host_pool_, host_block);
      give_back(packed_pool_, packed);
      if (ended) {
        drop(in);
      } else {
        loans_->keep(std::move(input.cuda), last_);
        loans_->keep(std::move(cuda_out), last_);
      }
      return nullptr;
    }
  }
  if (cuda_out && !straight) {
    lay_out_anew(in_place ? in_format_.view(input.address, input.size, input.meta)
                          : out_format_.view(out_address, bytes, out_meta),
                 cuda_out);
  }
  if (to_host) {
    if (in_place) {
      queue_->copy(input.bytes->mapping(), input.offset, *host_block.mapping, 0, *given);
    } else {
      queue_->copy(*device_block.mapping, 0, *host_block.mapping, 0, *given);
    }
  }
  if (!decides() || to_host || (cuda_out && !straight)) submit(input);
  give_back(packed_pool_, packed);

  // Neighbours order CUDA memory by no fence of ours: they get it, and get it back, when the kernel is done with it.
  const bool looks = (has_result_ && !settings_.late_results) || !gpu_output_ || checks_bounds || input.cuda;
  const bool finished = !looks || wait(last_);
  if (!finished) {
    loans_->keep(std::exchange(input.cuda, {}), last_);
    loans_->keep(std::exchange(cuda_out, {}), last_);
  }
  if (trace && looks && finished) stamp(*trace, input, Stamp::visible);
  if (finished && checks_bounds && !decides()) bounds_->verify(name_, bytes);
  GstBuffer* out = nullptr;
  if (in_place && !to_host && !cuda_out) {
    out = gst_buffer_copy(in);
  } else {
    out = cuda_out ? cuda_out.release() : gst_buffer_new();
    if (gpu_output_) {
      auto made = std::make_unique<FrameMemory>(device_, std::move(device_block), *given,
                                                [pool](MemoryBlock&& block) { pool->give_back(std::move(block)); });
      made->set_written(last_);
      made->set_sequence(frame_.sequence);
      gst_buffer_append_memory(out,
                               memory_new(wrapping_allocator(), std::move(made), *given, GST_MEMORY_FLAG_READONLY));
    } else {
      give_back(pool, device_block);
      if (to_host) {
        host_block.readers.push_back(last_);
        host_block.mapping->invalidate(0, *given);
        gst_buffer_append_memory(out, wrap_host(host_pool_, std::move(host_block), *given));
      }
    }
    gst_buffer_copy_into(
        out, in,
        static_cast<GstBufferCopyFlags>(static_cast<unsigned>(GST_BUFFER_COPY_FLAGS) | GST_BUFFER_COPY_TIMESTAMPS), 0,
        static_cast<gsize>(-1));
    copy_metas(out, in, metas_);
    if (out_meta != nullptr && !cuda_output_) {
      gst_buffer_add_video_meta_full(out, out_meta->flags, out_meta->format, out_meta->width, out_meta->height,
                                     out_meta->n_planes, out_meta->offset, out_meta->stride);
    }
    if (!this->in_place()) remove_result_meta(out);
    if (own_size) times_.give(out);
  }
  if (trace) refresh_latency_meta(out);
  if (!finished) {
    gst_buffer_unref(out);
    return nullptr;
  }
  if (*given != bytes) set_times_of_shortened(out, *given);
  if (has_result_) {
    result_->keep({.bytes = gst_buffer_get_size(out),
                   .sequence = frame_.sequence,
                   .offset = GST_BUFFER_OFFSET(in),
                   .pts = GST_BUFFER_PTS(in)});
    result_->collect();
    result_->put_on(out);
  }
  if (to_host && default_layout_only_ && out_format_.is_video()) out = in_default_layout(out, out_format_.video());
  return out;
}

}  // namespace gpumap::gst
