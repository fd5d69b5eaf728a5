// SPDX-License-Identifier: MIT
#include "gst/kernel/kernel_cuda.hpp"

#include <fmt/format.h>

#include <utility>

#include "gpumap/error.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

CudaFrame CudaFrames::map(GstBuffer* in, const GstVideoInfo& info) {
  if (!launcher_.use_streams()) return {};
  CudaFrame frame = map_cuda(launcher_.device(), gst_buffer_ref(in), GST_MAP_READ, info);
  take_over(launcher_.queue(), frame);
  return frame;
}

CudaFrame CudaFrames::map_bytes(GstBuffer* in) {
  if (!launcher_.use_streams()) return {};
  CudaFrame frame = map_cuda_bytes(launcher_.device(), gst_buffer_ref(in), GST_MAP_READ);
  take_over(launcher_.queue(), frame);
  return frame;
}

CudaFrame CudaFrames::take(const GstVideoInfo& info) {
  if (!pool_) throw Error(ErrorCode::invalid, "a frame for CUDA memory came before its caps: see what upstream sends");
  if (!launcher_.use_streams()) return {};
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

CopyPicture CudaFrames::copier_of_bytes() const {
  return [&device = launcher_.device()](Queue& queue, const gpumap_view& from, const gpumap_view& to) {
    copy_bytes(device, queue, from.plane[0], to.plane[0], to.bytes);
  };
}

GstBuffer* CudaFrames::lend(GstBuffer* out) {
  Ptr<GstBuffer> taken(out);
  // No stream can wait for a kernel that stays on the GPU.
  if (launcher_.how().resident && !launcher_.wait(launcher_.last_launched())) return nullptr;
  return slots_.convert_bytes(taken.release());
}

bool CudaFrames::give_back(CudaFrame frame, const Fence& read) {
  constexpr std::size_t max_kept = 2;
  keep(std::move(frame), read);
  if (!launcher_.wait(loans_->excess(max_kept))) return false;
  sweep();
  return true;
}

}  // namespace gpumap::gst
