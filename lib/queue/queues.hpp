// SPDX-License-Identifier: MIT
#pragma once

#include <vulkan/vulkan_core.h>

#include <functional>
#include <memory>

#include "device/cuda_api.hpp"
#include "device/gpu_device.hpp"
#include "gpumap/cuda.hpp"
#include "gpumap/queue.hpp"

namespace gpumap {

[[nodiscard]] std::unique_ptr<Queue> create_vulkan_queue(std::shared_ptr<GpuDevice> device);
/// For a device that has CUDA. Throws as Device::create_queue().
[[nodiscard]] std::unique_ptr<Queue> create_cuda_queue(std::shared_ptr<GpuDevice> device,
                                                       const CudaQueueOptions& options = {});

/// For a library that records commands by itself: `record` is called with the command buffer of the next submission,
/// behind all that came before, and what comes next sees what its compute shaders wrote. `owner` is kept until the GPU
/// is done. Throws Error(invalid) for another queue than Vulkan's, and what `record` throws.
void record_commands(Queue& queue, std::shared_ptr<const void> owner,
                     const std::function<void(VkCommandBuffer)>& record);

/// The stream behind a CUDA queue, for a library that launches by itself; what it launches before the next submit() is
/// of that submission. Throws Error(invalid) for another queue.
[[nodiscard]] CUstream stream_of(Queue& queue);
/// As wait_for_cuda_stream() and let_cuda_stream_wait().
void order_after(Queue& queue, CUstream stream);
void order_before(Queue& queue, CUstream stream);

}  // namespace gpumap
