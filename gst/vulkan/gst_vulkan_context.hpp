// SPDX-License-Identifier: MIT
// Whose Vulkan device frames lie on. libgstvulkan wraps no device that others made, so gpumap's own VkDevice cannot be
// GStreamer's, and memory passes between the two. A device made by libgstvulkan alone cannot import memory. So
// gpumapkernel makes one that can, on its GPU, one for each GPU and process, and gives it to each neighbour that asks.
// Where a neighbour has another one all the same (of the application, or of an element farther away), that one counts.
#pragma once

#include <gst/gst.h>

#include "gpumap/device.hpp"
#include "gst/ptr.hpp"
#include "gst/vulkan/vulkan_library.hpp"

namespace gpumap::gst {

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

}  // namespace gpumap::gst
