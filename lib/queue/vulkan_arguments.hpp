// SPDX-License-Identifier: MIT
// Heavy: see device/vulkan_device.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "device/vulkan_device.hpp"
#include "gpumap/kernel.h"
#include "memory/vulkan_allocation.hpp"

namespace gpumap {

/// Blocks of host memory with a device address, one for each launch in flight. Grows as needed, never shrinks.
/// Thread safety: one thread at a time.
class VulkanArguments {
 public:
  explicit VulkanArguments(VulkanContext& context) : context_(context) {}

  using Block = std::uint32_t;
  /// Copy `frame` to a block that nobody uses.
  [[nodiscard]] Block store(const gpumap_frame& frame);
  [[nodiscard]] std::uint64_t address(Block block) const;
  void recycle(const std::vector<Block>& blocks) { idle_.insert(idle_.end(), blocks.begin(), blocks.end()); }

 private:
  VulkanContext& context_;
  std::vector<VulkanAllocation> chunks_;
  std::vector<Block> idle_;
};

}  // namespace gpumap
