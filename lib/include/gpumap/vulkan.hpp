// SPDX-License-Identifier: MIT
// What other Vulkan code needs to share memory with gpumap's, which lies on a VkDevice of its own.
#pragma once

#include <cstdint>

#include "gpumap/export.hpp"
#include "gpumap/memory.hpp"

namespace gpumap {

/// A dedicated VkDeviceMemory with one buffer on it, as another VkDevice of the same GPU and driver imports it.
struct VulkanExport {
  int fd = -1;  ///< VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT; the receiver's to close, or an import's
  std::uint64_t allocation_bytes = 0;  ///< of the memory
  std::uint64_t buffer_bytes = 0;      ///< of the buffer, which is bound at 0
  std::uint64_t base = 0;              ///< where in the buffer the mapping starts
  std::uint32_t memory_type = 0;       ///< its index
};

/// A new descriptor of the mapping's memory, for Placement::bar and ::device. What the GPU does to the memory on one
/// side is to have ended before the other side touches it. Thread-safe. Throws Error(not_supported) for other
/// placements and where the driver cannot, Error(device_lost).
[[nodiscard]] GPUMAP_API VulkanExport export_to_vulkan(const Mapping& mapping);

}  // namespace gpumap
