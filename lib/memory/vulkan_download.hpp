// SPDX-License-Identifier: MIT
#pragma once

#include <vulkan/vulkan_core.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

namespace gpumap {

class VulkanContext;

/// Copies device memory to ordinary host memory through a CPU-cached staging buffer, made at the first download and
/// kept. Thread safety: downloads from several threads take turns.
class VulkanDownloader {
 public:
  explicit VulkanDownloader(VulkanContext& context);
  ~VulkanDownloader();
  VulkanDownloader(const VulkanDownloader&) = delete;
  VulkanDownloader& operator=(const VulkanDownloader&) = delete;

  /// Blocks until done. Throws Error(device_lost | no_memory).
  void download(VkBuffer buffer, std::uint64_t offset, std::span<std::byte> to);

 private:
  struct Staging;

  VulkanContext& context_;
  std::mutex mutex_;
  std::unique_ptr<Staging> staging_;
};

}  // namespace gpumap
