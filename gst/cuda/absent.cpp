// SPDX-License-Identifier: MIT
// In place of cuda_memory.cpp where Meson found no libgstcuda, or no cuda.h.
#include "gpumap/error.hpp"
#include "gst/cuda/memory.hpp"

namespace gpumap::gst {

namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::not_supported, "this gpumap was built without libgstcuda");
}

}  // namespace

std::string cuda_obstacle(const Device& /*device*/, Backend /*backend*/) {
  return "this gpumap was built without libgstcuda or without CUDA: install libgstreamer-plugins-bad1.0-dev, run "
         "examples/install-deps --cuda and build again";
}

bool answer_cuda_context(GstElement* /*element*/, GstQuery* /*query*/, const Device& /*device*/) {
  return false;
}

void post_cuda_context(GstElement* /*element*/, const Device& /*device*/) {}

bool is_cuda_memory(GstMemory* /*memory*/) {
  return false;
}

CudaFrame map_cuda(const Device& /*device*/, GstBuffer* buffer, GstMapFlags /*access*/,
                   const GstVideoInfo& /*expected*/) {
  gst_buffer_unref(buffer);
  refuse();
}

void take_over(Queue& /*queue*/, const CudaFrame& /*frame*/) {}

bool orders_by_stream(const CudaFrame& /*frame*/) {
  return false;
}

void hand_over(Queue& /*queue*/, const CudaFrame& /*frame*/) {}

CudaPool cuda_pool(const Device& /*device*/, GstCaps* /*caps*/, GstQuery* /*query*/) {
  refuse();
}

bool propose_cuda_pool(const Device& /*device*/, GstQuery* /*query*/) {
  return false;
}

void copy_rows(const Device& /*device*/, Queue& /*queue*/, const GstVideoInfo& /*info*/, const gpumap_view& /*from*/,
               const gpumap_view& /*to*/) {
  refuse();
}

}  // namespace gpumap::gst
