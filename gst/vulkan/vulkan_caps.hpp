// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <array>

namespace gpumap::gst {

/// Caps features of the frames of GStreamer's own Vulkan elements (libgstvulkan), the ones preferred first: images, and
/// buffers without padding.
inline constexpr std::array vulkan_feature_names{"memory:VulkanImage", "memory:VulkanBuffer"};

/// True when the first structure asks for one of them.
[[nodiscard]] bool is_vulkan_caps(const GstCaps* caps);

/// `caps` (transfer full, both), as transform_kernel_caps() gives them, with what of them Vulkan's memory can hold
/// after that which asks for memory of GPUs: raw video in formats that libgstvulkan's elements and any GPU know.
[[nodiscard]] GstCaps* offer_vulkan(GstCaps* caps);

}  // namespace gpumap::gst
