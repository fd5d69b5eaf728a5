// SPDX-License-Identifier: MIT
// What a KernelRunner launches on: buffers that came in.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/kernel/runner.hpp"
#include "gst/latency/meta.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/memory/video_layout.hpp"

namespace gpumap::gst {

namespace {

std::int64_t time_or_none(GstClockTime time) {
  return GST_CLOCK_TIME_IS_VALID(time) ? static_cast<std::int64_t>(time) : -1;
}

}  // namespace

std::optional<KernelRunner::Input> KernelRunner::input_of(GstBuffer* in) {
  std::optional<Input> made(std::in_place);
  switch (input_) {
    case FramesIn::host:
    case FramesIn::ours:
      find_ours(*made, in);
      break;
    case FramesIn::cuda:
      map_cuda(*made, in);
      break;
    case FramesIn::vulkan:
      if (!copy_vulkan(*made, in)) return {};
      break;
  }
  FrameInput& frame = made->frame;
  if (!launcher_->declaration().input_tensors.empty()) {
    made->tensors = MappedTensors(in, *launcher_);
    frame.tensors = made->tensors.take();
  }
  frame.pts = time_or_none(GST_BUFFER_PTS(in));
  frame.duration = time_or_none(GST_BUFFER_DURATION(in));
  frame.by_field = in_format_.has_chroma_by_field(in);
  if (declared_.converted) {
    frame.by_field = (frame.by_field || out_format_.has_chroma_by_field(in)) && out_format_.has_room_by_field();
  }
  frame.trace = trace_of(in);
  return made;
}

void KernelRunner::find_ours(Input& input, GstBuffer* in) const {
  GstMemory* memory = gst_buffer_n_memory(in) == 1 ? gst_buffer_peek_memory(in, 0) : nullptr;
  FrameMemory* holder = frame_memory(memory);
  if (memory == nullptr || holder == nullptr) {
    throw Error(ErrorCode::invalid,
                "a frame that is not in GPU memory reached gpumapkernel: put gpumapupload before it (or gpumapsink and "
                "gpumapsrc), with nothing between the two that changes frames on the CPU");
  }
  const Backend backend = launcher_->backend();
  FrameInput& frame = input.frame;
  frame.mapping = &holder->mapping();
  frame.holder = holder;
  frame.written = holder->written();
  frame.sequence = holder->sequence();
  frame.offset = holder->offset() + memory->offset;
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
  input.meta = in_format_.is_video() ? gst_buffer_get_video_meta(in) : nullptr;
  const GstVideoMeta* shown = input.meta;
  // Where the bytes stay as they are, so does what is said of them.
  std::optional<GstVideoMeta> part;
  if (input.meta != nullptr && !launcher_->keeps_layout() && !in_place()) part = cut_out(in, in_format_.video());
  if (part) {
    shown = &*part;
    input.is_cut = true;
  }
  frame.picture_bytes = shown != nullptr ? in_format_.check(*shown, frame.bytes) : in_format_.image_bytes();
  frame.view = in_format_.view(frame.address, frame.bytes, shown);
}

void KernelRunner::map_cuda(Input& input, GstBuffer* in) {
  input.cuda = cuda_.map(in, in_format_.video());
  input.meta = &input.cuda.layout();
  FrameInput& frame = input.frame;
  frame.bytes = input.cuda.bytes();
  frame.address = input.cuda.address();
  frame.picture_bytes = in_format_.check(*input.meta, frame.bytes);
  frame.view = in_format_.view(frame.address, frame.bytes, input.meta);
  frame.copy = cuda_.copier(in_format_.video());
  frame.ordered = orders_by_stream(input.cuda);  // and kept until the kernel is done with it
  frame.sequence = foreign_sequence_++;
}

bool KernelRunner::copy_vulkan(Input& input, GstBuffer* in) {
  input.block = vulkan_.copy_in(in, in_format_);
  if (!input.block) return false;
  FrameInput& frame = input.frame;
  frame.mapping = &input.block.mapping();
  frame.bytes = frame.picture_bytes = in_format_.image_bytes();
  frame.address = frame.mapping->address(launcher_->backend());
  frame.view = in_format_.view(frame.address, frame.bytes, nullptr);
  frame.sequence = foreign_sequence_++;
  return true;
}

std::string KernelRunner::shortfall(GstBuffer* in) const {
  const FrameMemory* frame = gst_buffer_n_memory(in) == 1 ? frame_memory(gst_buffer_peek_memory(in, 0)) : nullptr;
  if (frame != nullptr && frame->recalled()) return taken_back;
  const std::size_t bytes = gst_buffer_get_size(in);
  const std::size_t wanted = in_format_.image_bytes();
  // Where planes and strides are told, these are checked instead.
  const bool is_told = bytes != 0 && in_format_.is_video() && gst_buffer_get_video_meta(in) != nullptr;
  if (bytes >= wanted || is_told || input_ == FramesIn::cuda || input_ == FramesIn::vulkan) return {};
  return fmt::format(
      "a frame of {} bytes where the caps say {} is left out, and so are others like it: see what upstream sends",
      bytes, wanted);
}

}  // namespace gpumap::gst
