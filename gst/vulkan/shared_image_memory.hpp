// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gpumap/error.hpp"
#include "gpumap/memory.hpp"
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
