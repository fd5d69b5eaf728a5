// SPDX-License-Identifier: MIT
// Frames of a KernelRunner that lie in the memory of GStreamer's own CUDA elements.
#include <fmt/format.h>

#include <utility>

#include "gpumap/error.hpp"
#include "gst/kernel/device.hpp"
#include "gst/kernel/runner.hpp"
#include "gst/memory/video_layout.hpp"

namespace gpumap::gst {

KernelRunner::Input KernelRunner::cuda_input_of(GstBuffer* in) const {
  Input made;
  made.cuda = map_cuda(*device_, gst_buffer_ref(in), GST_MAP_READ, in_format_.video());
  made.size = made.cuda.bytes();
  made.address = made.cuda.address();
  made.meta = &made.cuda.layout();
  in_format_.check(*made.meta, made.size);
  return made;
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
                            name_of(device_->info()), GST_VIDEO_INFO_WIDTH(&out_format_.video()),
                            GST_VIDEO_INFO_HEIGHT(&out_format_.video())));
  }
  return map_cuda(*device_, buffer, GST_MAP_WRITE, out_format_.video());
}

bool KernelRunner::make_room(Input& input, MemoryBlock& packed, Unpacked& unpacked) {
  const std::size_t bytes = in_format_.image_bytes();
  if (!take(packed_pool_, Placement::device, (bytes + 3) / 4 * 4, packed)) return false;
  unpacked.from = in_format_.view(input.address, input.size, input.meta);
  unpacked.to = packed.mapping;
  input.address = packed.mapping->address(backend_);
  input.size = bytes;
  input.meta = nullptr;
  return true;
}

void KernelRunner::pack(const Unpacked& unpacked) {
  const std::size_t bytes = in_format_.image_bytes();
  // The padding of the default layout counts as bytes of the frame: it is to be the same each time.
  queue_->clear(*unpacked.to, 0, (bytes + 3) / 4 * 4);
  copy_rows(*device_, *queue_, in_format_.video(), unpacked.from,
            in_format_.view(unpacked.to->address(backend_), bytes, nullptr));
}

void KernelRunner::lay_out_anew(const gpumap_view& made, const CudaFrame& out) {
  copy_rows(*device_, *queue_, out_format_.video(), made, out_format_.view(out.address(), out.bytes(), &out.layout()));
}

}  // namespace gpumap::gst
