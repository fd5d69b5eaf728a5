// SPDX-License-Identifier: MIT
#include "gst/vulkan/vulkan_caps.hpp"

#include <algorithm>

#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

namespace {

// libgstvulkan ends the process for formats that it does not know. Those here it has an image for from 1.22 on, and
// each GPU can copy. Buffers have no room between rows, whatever the caps say: so they are offered where none is to be.
constexpr const char* vulkan_caps =
    "video/x-raw(memory:VulkanImage), format={ RGBA, BGRA, RGBx, BGRx, NV12 }; "
    "video/x-raw(memory:VulkanBuffer), format={ RGBA, BGRA, RGBx, BGRx, NV12 }, width=[4,2147483644,4]";

}  // namespace

bool is_vulkan_caps(const GstCaps* caps) {
  return std::any_of(vulkan_feature_names.begin(), vulkan_feature_names.end(),
                     [caps](const char* name) { return begins_with_feature(caps, name); });
}

GstCaps* offer_vulkan(GstCaps* caps) {
  if (gst_caps_is_any(caps)) return caps;
  const Ptr<GstCaps> given(caps);
  // Before system memory, behind that of other GPU elements.
  GstCaps* offered = structures_if(caps, [](const GstCapsFeatures* features) { return !is_system_memory(features); });
  gst_caps_append(offered, gpu_caps_as(caps, {vulkan_feature_names[0], vulkan_feature_names[1]}, vulkan_caps));
  gst_caps_append(offered, structures_if(caps, is_system_memory));
  return offered;
}

}  // namespace gpumap::gst
