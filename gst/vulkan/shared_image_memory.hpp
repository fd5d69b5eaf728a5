// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gpumap/memory.hpp"
#include "gst/vulkan/functions.hpp"

namespace gpumap::gst {

/// Memory that a picture lies in, as the device of GStreamer's elements sees it.
struct VulkanWindow {
  const VulkanFunctions& vulkan;
  VkDevice device;
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  std::uint64_t base = 0;  ///< where in the buffer the memory begins
  std::size_t bytes = 0;
  std::byte* host = nullptr;

  VulkanWindow(const VulkanFunctions& functions, VkDevice of) : vulkan(functions), device(of) {}
  ~VulkanWindow() {
    vulkan.vkDestroyBuffer(device, buffer, nullptr);
    vulkan.vkFreeMemory(device, memory, nullptr);
  }
  VulkanWindow(const VulkanWindow&) = delete;
  VulkanWindow& operator=(const VulkanWindow&) = delete;

  /// Throw Error(no_memory | device_lost). `next` (may be null) says more of what is made.
  void create_buffer(std::uint64_t buffer_bytes, const void* next);
  void bind_new_memory(std::uint64_t allocation_bytes, std::uint32_t type, const void* next);
};

/// gpumap's memory. Throws Error(not_supported | no_memory | device_lost).
[[nodiscard]] std::unique_ptr<VulkanWindow> import_window(const VulkanFunctions& vulkan, VkDevice device,
                                                          const Mapping& mapping);
/// New memory that the CPU sees. Throws likewise.
[[nodiscard]] std::unique_ptr<VulkanWindow> host_window(const VulkanFunctions& vulkan, const GstVulkanDevice& device,
                                                        std::size_t bytes);

}  // namespace gpumap::gst
