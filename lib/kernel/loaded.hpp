// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/gpu_device.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap {

/// The two halves of Kernel::load. Throw as it does.
[[nodiscard]] std::shared_ptr<Kernel> load_cuda_kernel(std::shared_ptr<GpuDevice> device, const KernelSource& source);
[[nodiscard]] std::shared_ptr<Kernel> load_vulkan_kernel(std::shared_ptr<GpuDevice> device, const KernelSource& source);

/// `functions` of `source`, or the kernel that it means, as functions of one that stays on the GPU, for
/// create_resident_queue(); they share one owner(). For a device that has CUDA. Throws as Kernel::load, and
/// Error(not_supported) for what cannot stay.
[[nodiscard]] std::vector<std::shared_ptr<Kernel>> load_resident_kernels(const std::shared_ptr<GpuDevice>& device,
                                                                         const KernelSource& source,
                                                                         std::vector<std::string> functions);

}  // namespace gpumap
