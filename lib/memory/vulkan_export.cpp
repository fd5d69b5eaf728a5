// SPDX-License-Identifier: MIT
#include "gpumap/error.hpp"
#include "gpumap/vulkan.hpp"
#include "memory/gpu_mapping.hpp"

namespace gpumap {

VulkanExport export_to_vulkan(const Mapping& mapping) {
  const auto* own = dynamic_cast<const GpuMapping*>(&mapping);
  if (own == nullptr) {
    throw Error(ErrorCode::not_supported, "memory that is not the GPU's cannot be exported: copy it through the host");
  }
  MemoryExport memory = own->export_memory();
  return {memory.fd.release(), memory.allocation_bytes, memory.buffer_bytes, memory.base, memory.memory_type};
}

}  // namespace gpumap
