// SPDX-License-Identifier: MIT
#include "gpumap/cuda.hpp"

#include "device/cuda_driver.hpp"
#include "gpumap/error.hpp"
#include "queue/queues.hpp"

namespace gpumap {

CudaHandles cuda_handles(const Device& device) noexcept {
  const auto* gpu = dynamic_cast<const GpuDevice*>(&device);
  if (gpu == nullptr || gpu->cuda() == nullptr) return {};
  return {.context = gpu->cuda()->handle(), .device = gpu->cuda()->device()};
}

std::unique_ptr<Queue> create_cuda_queue(Device& device, const CudaQueueOptions& options) {
  auto* const gpu = dynamic_cast<GpuDevice*>(&device);
  if (gpu == nullptr || gpu->cuda() == nullptr) {
    throw Error(ErrorCode::not_supported, device.info().name + " has no CUDA here: leave priority and sm-share out");
  }
  gpu->check_alive();
  return create_cuda_queue(gpu->self(), options);
}

void* cuda_stream(Queue& queue) {
  return stream_of(queue);
}

void wait_for_cuda_stream(Queue& queue, void* stream) {
  order_after(queue, static_cast<CUstream>(stream));
}

void let_cuda_stream_wait(Queue& queue, void* stream) {
  order_before(queue, static_cast<CUstream>(stream));
}

}  // namespace gpumap
