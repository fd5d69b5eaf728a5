// SPDX-License-Identifier: MIT
// Frames of a KernelRunner that lie in the memory of GStreamer's own CUDA elements.
#include <fmt/format.h>

#include <utility>

#include "gpumap/error.hpp"
#include "gst/kernel/runner.hpp"
#include "gst/memory/video_layout.hpp"

namespace gpumap::gst {

KernelRunner::Input KernelRunner::cuda_input_of(GstBuffer* in) const {
  Input made;
  made.cuda = map_cuda(device(), gst_buffer_ref(in), GST_MAP_READ, in_format_.video());
  made.meta = &made.cuda.layout();
  FrameInput& frame = made.frame;
  frame.bytes = made.cuda.bytes();
  frame.address = made.cuda.address();
  frame.picture_bytes = in_format_.check(*made.meta, frame.bytes);
  frame.view = in_format_.view(frame.address, frame.bytes, made.meta);
  frame.copy = rows_of(in_format_);
  return made;
}

CopyPicture KernelRunner::rows_of(const FrameFormat& format) const {
  return [this, &info = format.video()](Queue& queue, const gpumap_view& from, const gpumap_view& to) {
    copy_rows(device(), queue, info, from, to);
  };
}

CudaFrame KernelRunner::take_cuda_frame() {
  if (!cuda_pool_)
    throw Error(ErrorCode::invalid, "a frame for CUDA memory came before its caps: see what upstream sends");
  // Where downstream shares one pool between streams, another element may have made an end of it.
  gst_buffer_pool_set_active(cuda_pool_.get(), TRUE);
  GstBuffer* buffer = nullptr;
  const GstFlowReturn flow = gst_buffer_pool_acquire_buffer(cuda_pool_.get(), &buffer, nullptr);
  if (flow == GST_FLOW_FLUSHING) return {};
  if (flow != GST_FLOW_OK) {
    throw Error(ErrorCode::no_memory,
                fmt::format("no CUDA memory on {} for a frame of {}x{}: nvidia-smi tells what else is on the GPU, and "
                            "queues downstream hold a frame for each of their buffers",
                            name_of(device().info()), GST_VIDEO_INFO_WIDTH(&out_format_.video()),
                            GST_VIDEO_INFO_HEIGHT(&out_format_.video())));
  }
  return map_cuda(device(), buffer, GST_MAP_WRITE, out_format_.video());
}

}  // namespace gpumap::gst
