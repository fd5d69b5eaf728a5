// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "device/gpu_device.hpp"
#include "gpumap/queue.hpp"

namespace gpumap {

[[nodiscard]] std::unique_ptr<Queue> create_vulkan_queue(std::shared_ptr<GpuDevice> device);
/// Throws Error(not_supported) in a build without CUDA.
[[nodiscard]] std::unique_ptr<Queue> create_cuda_queue(std::shared_ptr<GpuDevice> device);

}  // namespace gpumap
