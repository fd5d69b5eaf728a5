// SPDX-License-Identifier: MIT
#include "gst/kernel/kernel_cuda.hpp"

#include <fmt/format.h>

#include <utility>

#include "gpumap/error.hpp"

namespace gpumap::gst {

CudaFrame CudaFrames::map(GstBuffer* in, const GstVideoInfo& info) {
  CudaFrame frame = map_cuda(launcher_.device(), gst_buffer_ref(in), GST_MAP_READ, info);
  take_over(launcher_.queue(), frame);
  return frame;
}

CudaFrame CudaFrames::take(const GstVideoInfo& info) {
  if (!pool_) throw Error(ErrorCode::invalid, "a frame for CUDA memory came before its caps: see what upstream sends");
  // Where downstream shares one pool between streams, another element may have made an end of it.
  gst_buffer_pool_set_active(pool_.get(), TRUE);
  GstBuffer* buffer = nullptr;
  const GstFlowReturn flow = gst_buffer_pool_acquire_buffer(pool_.get(), &buffer, nullptr);
  if (flow == GST_FLOW_FLUSHING) return {};
  if (flow != GST_FLOW_OK) {
    throw Error(
        ErrorCode::no_memory,
        fmt::format("no CUDA memory on {} for a frame of {}x{}: nvidia-smi tells what else is on the GPU, and "
                    "queues downstream hold a frame for each of their buffers",
                    name_of(launcher_.device().info()), GST_VIDEO_INFO_WIDTH(&info), GST_VIDEO_INFO_HEIGHT(&info)));
  }
  CudaFrame frame = map_cuda(launcher_.device(), buffer, GST_MAP_WRITE, info);
  take_over(launcher_.queue(), frame);
  return frame;
}

CopyPicture CudaFrames::copier(const GstVideoInfo& info) const {
  return [&device = launcher_.device(), &info](Queue& queue, const gpumap_view& from, const gpumap_view& to) {
    copy_rows(device, queue, info, from, to);
  };
}

bool CudaFrames::give_back(CudaFrame frame, const Fence& read) {
  constexpr std::size_t max_kept = 2;
  keep(std::move(frame), read);
  if (!launcher_.wait(loans_->excess(max_kept))) return false;
  sweep();
  return true;
}

}  // namespace gpumap::gst
