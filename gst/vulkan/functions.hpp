// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include "gpumap/error.hpp"
#include "gst/vulkan/gst_vulkan_context.hpp"

#define GPUMAP_VULKAN_FUNCTIONS(X) \
  X(vkAllocateMemory)              \
  X(vkFreeMemory)                  \
  X(vkMapMemory)                   \
  X(vkCreateBuffer)                \
  X(vkDestroyBuffer)               \
  X(vkGetBufferMemoryRequirements) \
  X(vkBindBufferMemory)            \
  X(vkCreateCommandPool)           \
  X(vkDestroyCommandPool)          \
  X(vkAllocateCommandBuffers)      \
  X(vkBeginCommandBuffer)          \
  X(vkEndCommandBuffer)            \
  X(vkCmdPipelineBarrier)          \
  X(vkCmdCopyBuffer)               \
  X(vkCmdCopyBufferToImage)        \
  X(vkCmdCopyImageToBuffer)        \
  X(vkCreateFence)                 \
  X(vkDestroyFence)                \
  X(vkResetFences)                 \
  X(vkWaitForFences)               \
  X(vkQueueSubmit)

namespace gpumap::gst {

/// What is called on a Vulkan device of GStreamer's.
struct VulkanFunctions {
#define GPUMAP_VULKAN_MEMBER(name) PFN_##name name = nullptr;
  GPUMAP_VULKAN_FUNCTIONS(GPUMAP_VULKAN_MEMBER)
#undef GPUMAP_VULKAN_MEMBER

  /// Throws Error(not_supported).
  explicit VulkanFunctions(GstVulkanDevice* device) {
#define GPUMAP_VULKAN_LOAD(name)                                                                                  \
  name = reinterpret_cast<PFN_##name>(GstVulkanLibrary::get().gst_vulkan_device_get_proc_address(device, #name)); \
  if (name == nullptr) throw Error(ErrorCode::not_supported, "the Vulkan driver lacks " #name ": update it");
    GPUMAP_VULKAN_FUNCTIONS(GPUMAP_VULKAN_LOAD)
#undef GPUMAP_VULKAN_LOAD
  }
};

/// Throws Error(no_memory | device_lost) for a call that failed. `what` was tried.
inline void check_vulkan(VkResult result, const char* what) {
  if (result >= 0) return;
  const bool no_memory = result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY;
  throw Error(no_memory ? ErrorCode::no_memory : ErrorCode::device_lost,
              fmt::format("{} on the Vulkan device of GStreamer's elements failed: VkResult {}{}", what, int{result},
                          no_memory ? ", no memory is left: give smaller frames, or let fewer queues keep them"
                                    : ": see what the driver says, and GST_DEBUG=vulkan*:4"));
}

}  // namespace gpumap::gst
