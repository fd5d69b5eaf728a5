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

void* cuda_stream(Queue& queue) {
  return stream_of(queue);
}

}  // namespace gpumap
