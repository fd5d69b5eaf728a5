// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "gst/vulkan/vulkan_api.hpp"

namespace gpumap::gst {

/// libgstvulkan, opened at run time: it brings libxcb and Wayland into the process. GStreamer's Vulkan elements then
/// find the same copy of it.
struct GstVulkanLibrary {
#define GPUMAP_GST_VULKAN_MEMBER(result, name, ...) result (*name)(__VA_ARGS__) = nullptr;
  GPUMAP_GST_VULKAN(GPUMAP_GST_VULKAN_MEMBER)
#undef GPUMAP_GST_VULKAN_MEMBER
  bool has_semaphores = false;  ///< from GStreamer 1.24 on: barriers have their second form
  std::string problem;          ///< what is missing and how to get it; empty where it all is there

  /// The process's, initialised. Thread-safe.
  [[nodiscard]] static const GstVulkanLibrary& get();
};

/// The GPU's work on a piece of memory ends when the timeline reaches the value; a null handle: none is known.
struct VulkanWork {
  VkSemaphore timeline = VK_NULL_HANDLE;
  guint64 value = 0;
};
[[nodiscard]] VulkanWork work_on(const GstVulkanImageMemory& memory);
[[nodiscard]] VulkanWork work_on(const GstVulkanBufferMemory& memory);

struct VulkanImageState {
  VkImageLayout layout;
  VkImageSubresourceRange part;
};
[[nodiscard]] VulkanImageState state_of(const GstVulkanImageMemory& memory);
/// What a transfer, which has ended, left.
void set_transferred(GstVulkanImageMemory& memory, VkImageLayout layout, VkAccessFlags access);

}  // namespace gpumap::gst
