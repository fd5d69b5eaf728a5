// SPDX-License-Identifier: MIT
#pragma once

#include <vulkan/vulkan_core.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

namespace gpumap {

class VulkanContext;

/// Copies between device memory and ordinary host memory through a CPU-cached staging buffer, made at the first copy
/// and kept. Thread safety: copies from several threads take turns.
class VulkanStaging {
 public:
  explicit VulkanStaging(VulkanContext& context);
  ~VulkanStaging();
  VulkanStaging(const VulkanStaging&) = delete;
  VulkanStaging& operator=(const VulkanStaging&) = delete;

  /// Both block until done. Throw Error(device_lost | no_memory).
  void download(VkBuffer buffer, std::uint64_t offset, std::span<std::byte> to);
  void upload(std::span<const std::byte> from, VkBuffer buffer, std::uint64_t offset);

 private:
  struct Block;
  class LastCopy;
  void let_go();
  /// Call `chunk` with the block, where the chunk starts and its size, until `bytes` are done.
  void copy(std::size_t bytes, const char* what,
            const std::function<void(Block& block, std::size_t at, std::size_t bytes)>& chunk);

  VulkanContext& context_;
  std::mutex mutex_;
  std::unique_ptr<Block> block_;
};

}  // namespace gpumap
