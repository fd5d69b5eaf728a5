// SPDX-License-Identifier: MIT
#include "gpumap/kernel.hpp"

#include <fmt/format.h>

#include "gpumap/error.hpp"
#include "kernel/loaded.hpp"

namespace gpumap {

std::shared_ptr<Kernel> Kernel::load(const std::shared_ptr<Device>& device, const KernelSource& source) {
  auto gpu = std::dynamic_pointer_cast<GpuDevice>(device);
  if (!gpu) throw Error(ErrorCode::invalid, fmt::format("kernel {}: no device: open one first", source.name));
  gpu->check_alive();
  const Backend backend = backend_of(source.language);
  if (!gpu->has(backend)) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {}: {} has no {}: {}", source.name, gpu->info().name,
                            backend == Backend::cuda ? "CUDA" : "Vulkan",
                            backend == Backend::cuda ? "use a .comp or .spv kernel" : "use a .cu kernel"));
  }
  return backend == Backend::cuda ? load_cuda_kernel(std::move(gpu), source)
                                  : load_vulkan_kernel(std::move(gpu), source);
}

}  // namespace gpumap
