// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "gpumap/kernel.h"
#include "gpumap/memory.hpp"
#include "gst/vulkan/gst_vulkan_context.hpp"

namespace gpumap::gst {

struct VulkanFunctions;
struct VulkanWindow;

/// Copies pictures between gpumap's memory and frames on a Vulkan device of GStreamer's, with its queue. Where that
/// device imports gpumap's memory, each is one copy on the GPU; else there is one more, by the CPU, through memory of
/// that device which the CPU sees. Each call waits until the picture is there: then neither side has to know the
/// other's fences. Thread safety: one thread at a time.
class VulkanTransfer {
 public:
  enum class Direction { to_frame, from_frame };

  /// Throws Error(not_supported | device_lost).
  VulkanTransfer(VulkanSite site, const Device& device);
  /// What is under way has ended, or is left as it is.
  ~VulkanTransfer();
  VulkanTransfer(const VulkanTransfer&) = delete;
  VulkanTransfer& operator=(const VulkanTransfer&) = delete;

  [[nodiscard]] GstVulkanDevice* device() const noexcept { return site_.device.get(); }
  /// Memory passes as it is.
  [[nodiscard]] bool shares() const noexcept { return shares_; }

  /// Copy a picture of `info` between `frame` and `mapping`, which it keeps for the next time, and in which the picture
  /// lies as `layout`, of memory that begins at 0, says. Work of the frame's other users is waited for, on the GPU;
  /// that on the mapping has ended. shares() only. Throws Error(invalid) for a frame that is not on this device or of
  /// another size, Error(no_memory | device_lost).
  void copy(Direction direction, GstBuffer* frame, const GstVideoInfo& info, const gpumap_view& layout,
            const std::shared_ptr<Mapping>& mapping);
  /// The same with host memory of `bytes` bytes, by one copy more.
  void copy_through_host(Direction direction, GstBuffer* frame, const GstVideoInfo& info, const gpumap_view& layout,
                         std::byte* host, std::size_t bytes);

 private:
  [[nodiscard]] VulkanWindow& window_on(const std::shared_ptr<Mapping>& mapping);
  void make_room(std::size_t bytes);
  void run(Direction direction, GstBuffer* frame, const GstVideoInfo& info, const gpumap_view& layout,
           const VulkanWindow& window);

  VulkanSite site_;
  bool shares_;
  std::unique_ptr<VulkanFunctions> vulkan_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  VkFence fence_ = VK_NULL_HANDLE;
  std::map<const Mapping*, std::pair<std::shared_ptr<Mapping>, std::unique_ptr<VulkanWindow>>> windows_;
  std::unique_ptr<VulkanWindow> room_;  ///< that the CPU sees
  bool stuck_ = false;                  ///< the GPU still works: nothing may be freed
};

}  // namespace gpumap::gst
