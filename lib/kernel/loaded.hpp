// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "device/gpu_device.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap {

/// The two halves of Kernel::load. Throw as it does.
[[nodiscard]] std::shared_ptr<Kernel> load_cuda_kernel(std::shared_ptr<GpuDevice> device, const KernelSource& source);
[[nodiscard]] std::shared_ptr<Kernel> load_vulkan_kernel(std::shared_ptr<GpuDevice> device, const KernelSource& source);

}  // namespace gpumap
