// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>
#include <gst/gst.h>
#include <gst/video/video.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/kernel.h"
#include "gpumap/memory.hpp"
#include "gst/ptr.hpp"
#include "gst/vulkan/gst_vulkan_context.hpp"

namespace gpumap::gst {

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

struct VulkanFunctions;
struct VulkanWindow;

/// Copies pictures between gpumap's memory and frames on a Vulkan device of GStreamer's, with its queue. Where that
/// device imports gpumap's memory, each is one copy on the GPU; else there is one more, by the CPU, through memory of
/// that device which the CPU sees. Each call waits until the picture is there: then neither side has to know the
/// other's fences. Where a picture is given up, what the GPU still uses stays until the next call, or for good.
/// Thread safety: one thread at a time.
class VulkanTransfer {
 public:
  enum class Direction { to_frame, from_frame };

  /// Waits ask `given_up` whether anybody wants the picture. Throws Error(not_supported | device_lost).
  VulkanTransfer(VulkanSite site, const Device& device, std::function<bool()> given_up);
  /// What is under way has ended, or is left as it is.
  ~VulkanTransfer();
  VulkanTransfer(const VulkanTransfer&) = delete;
  VulkanTransfer& operator=(const VulkanTransfer&) = delete;

  [[nodiscard]] GstVulkanDevice* device() const noexcept { return site_.device.get(); }
  /// Memory passes as it is.
  [[nodiscard]] bool shares() const noexcept { return shares_; }

  /// Copy a picture of `info` between `frame` and `mapping`, which it keeps for the next time, and in which the picture
  /// lies as `layout`, of memory that begins at 0, says. Work of the frame's other users is waited for, on the GPU;
  /// that on the mapping has ended. shares() only. False: given up. Throws Error(invalid) for a frame that is not on
  /// this device or of another size, Error(no_memory | device_lost).
  [[nodiscard]] bool copy(Direction direction, GstBuffer* frame, const GstVideoInfo& info, const gpumap_view& layout,
                          const std::shared_ptr<Mapping>& mapping);
  /// The same with host memory of `bytes` bytes, by one copy more.
  [[nodiscard]] bool copy_through_host(Direction direction, GstBuffer* frame, const GstVideoInfo& info,
                                       const gpumap_view& layout, std::byte* host, std::size_t bytes);

 private:
  [[nodiscard]] VulkanWindow& window_on(const std::shared_ptr<Mapping>& mapping);
  void make_room(std::size_t bytes);
  [[nodiscard]] bool run(Direction direction, GstBuffer* frame, const GstVideoInfo& info, const gpumap_view& layout,
                         const VulkanWindow& window);
  [[nodiscard]] bool wait_for_end();  ///< of what is under way, if something is

  VulkanSite site_;
  bool shares_;
  std::unique_ptr<VulkanFunctions> vulkan_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  VkFence fence_ = VK_NULL_HANDLE;
  std::map<const Mapping*, std::pair<std::shared_ptr<Mapping>, std::unique_ptr<VulkanWindow>>> windows_;
  std::unique_ptr<VulkanWindow> room_;  ///< that the CPU sees
  std::function<bool()> given_up_;
  Ptr<GstBuffer> under_way_;  ///< that the GPU still works on, and nothing of it may be freed; null: none
};

}  // namespace gpumap::gst
