// SPDX-License-Identifier: MIT
// Whose Vulkan device frames lie on. libgstvulkan wraps no device that others made, so gpumap's own VkDevice cannot be
// GStreamer's, and memory passes between the two. A device made by libgstvulkan alone cannot import memory. So
// gpumapkernel makes one that can, on its GPU, one for each GPU and process, and gives it to each neighbour that asks.
// Where a neighbour has another one all the same (of the application, or of an element farther away), that one counts.
#pragma once

#include <gst/gst.h>

#include <array>
#include <string>

#include "gpumap/device.hpp"
#include "gst/ptr.hpp"
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

/// A device and the queue of it that gpumap and the neighbour share: libgstvulkan's lock is the queue object's.
struct VulkanSite {
  Ptr<GstVulkanDevice> device;
  Ptr<GstVulkanQueue> queue;
};

/// Answer a CONTEXT query of a Vulkan element around `element`: with the device made for `device`, its instance or its
/// queue. False for any other query, where `element` was given a context of others, and where there is no such device.
/// Opens libgstvulkan. Thread-safe.
[[nodiscard]] bool answer_vulkan_context(GstElement* element, GstQuery* query, const Device& device);

/// The site of what is linked to `pad`; where that names none, the one made for `device`. Throws Error(not_supported).
[[nodiscard]] VulkanSite site_of_peer(GstPad* pad, const Device& device);
/// The same on `device`, that of a frame that came in through `pad`. Throws Error(not_supported).
[[nodiscard]] VulkanSite site_on(GstVulkanDevice* device, GstPad* pad);

/// Whose memory `buffer` has first (borrowed); null where that is not Vulkan's.
[[nodiscard]] GstVulkanDevice* vulkan_device_of(GstBuffer* buffer);

/// `site` is on the same GPU as `device`, with the same driver, and imports memory.
[[nodiscard]] bool shares_memory(const VulkanSite& site, const Device& device);

/// Of a function of the driver, for `device`. Null where it has none of that name.
template <typename Function>
[[nodiscard]] Function vulkan_function(const GstVulkanDevice& device, const char* name) {
  return reinterpret_cast<Function>(
      GstVulkanLibrary::get().gst_vulkan_instance_get_proc_address(device.instance, name));
}

/// Caps features of the frames of GStreamer's own Vulkan elements (libgstvulkan), the ones preferred first: images, and
/// buffers without padding.
inline constexpr std::array vulkan_feature_names{"memory:VulkanImage", "memory:VulkanBuffer"};

/// True when the first structure asks for one of them.
[[nodiscard]] bool is_vulkan_caps(const GstCaps* caps);

/// `caps` (transfer full, both), as transform_kernel_caps() gives them, with what of them Vulkan's memory can hold
/// after that which asks for memory of GPUs: raw video in formats that libgstvulkan's elements and any GPU know.
[[nodiscard]] GstCaps* offer_vulkan(GstCaps* caps);

}  // namespace gpumap::gst
