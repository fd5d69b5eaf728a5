// SPDX-License-Identifier: MIT
//
// gpumap's own declarations of libgstvulkan against its headers: it compiles where they agree. Built where Meson finds
// them. They are of one version: of the two forms of a barrier it sees that one.

// Ours first: the headers make macros of names that are used there.
#include "gst/vulkan/vulkan_api.hpp"

namespace gpumap::gst::ours {

#define OURS(result, name, ...) using name = result(__VA_ARGS__);
GPUMAP_GST_VULKAN(OURS)
#undef OURS

}  // namespace gpumap::gst::ours

#define GST_USE_UNSTABLE_API
#include <gst/vulkan/vulkan.h>

#include <string_view>

#include "compare_headers.hpp"
#include "gst/vulkan/gst_vulkan_context.hpp"

#define OURS gpumap::gst
namespace theirs {

static_assert(gpumap::gst::vulkan_instance_type == std::string_view(GST_VULKAN_INSTANCE_CONTEXT_TYPE_STR));
static_assert(gpumap::gst::vulkan_device_type == std::string_view(GST_VULKAN_DEVICE_CONTEXT_TYPE_STR));
static_assert(gpumap::gst::vulkan_queue_type == std::string_view(GST_VULKAN_QUEUE_CONTEXT_TYPE_STR));
static_assert(gpumap::gst::vulkan_feature_names[0] == std::string_view(GST_CAPS_FEATURE_MEMORY_VULKAN_IMAGE));
static_assert(gpumap::gst::vulkan_feature_names[1] == std::string_view(GST_CAPS_FEATURE_MEMORY_VULKAN_BUFFER));

THEIRS(GstVulkanInstance)
SAME_MEMBER(GstVulkanInstance, instance)
SAME_MEMBER(GstVulkanInstance, n_physical_devices)
THEIRS(GstVulkanDevice)
SAME_MEMBER(GstVulkanDevice, instance)
SAME_MEMBER(GstVulkanDevice, device)
THEIRS(GstVulkanQueue)
SAME_MEMBER(GstVulkanQueue, device)
SAME_MEMBER(GstVulkanQueue, queue)
SAME_MEMBER(GstVulkanQueue, family)

SAME_MEMBER(GstVulkanImageMemory, parent)
SAME_MEMBER(GstVulkanImageMemory, device)
SAME_MEMBER(GstVulkanImageMemory, image)
SAME_MEMBER(GstVulkanImageMemory, create_info)
SAME_MEMBER(GstVulkanBufferMemory, parent)
SAME_MEMBER(GstVulkanBufferMemory, device)
SAME_MEMBER(GstVulkanBufferMemory, buffer)
SAME_MEMBER(GstVulkanBufferMemory, requirements)

#if GST_CHECK_VERSION(1, 24, 0)
#define FORM barrier24
using OurBarrier = gpumap::gst::GstVulkanBarrier24;
#else
#define FORM barrier22
using OurBarrier = gpumap::gst::GstVulkanBarrier22;
#endif
using OurImageBarrier = gpumap::gst::GstVulkanImageBarrier<OurBarrier>;

static_assert(offsetof(gpumap::gst::GstVulkanImageMemory, FORM) == offsetof(::GstVulkanImageMemory, barrier));
static_assert(offsetof(gpumap::gst::GstVulkanBufferMemory, FORM) == offsetof(::GstVulkanBufferMemory, barrier));
static_assert(sizeof(OurBarrier) == sizeof(::GstVulkanBarrierMemoryInfo));
static_assert(sizeof(OurImageBarrier) == sizeof(::GstVulkanBarrierImageInfo));
#define SAME_IN(ours, theirs_of, member)                                 \
  static_assert(offsetof(ours, member) == offsetof(theirs_of, member) && \
                sizeof(ours::member) == sizeof(theirs_of::member));
SAME_IN(OurBarrier, ::GstVulkanBarrierMemoryInfo, pipeline_stages)
SAME_IN(OurBarrier, ::GstVulkanBarrierMemoryInfo, access_flags)
SAME_IN(OurImageBarrier, ::GstVulkanBarrierImageInfo, image_layout)
SAME_IN(OurImageBarrier, ::GstVulkanBarrierImageInfo, subresource_range)
#if GST_CHECK_VERSION(1, 24, 0)
SAME_IN(OurBarrier, ::GstVulkanBarrierMemoryInfo, semaphore)
SAME_IN(OurBarrier, ::GstVulkanBarrierMemoryInfo, semaphore_value)
// has_semaphores goes by it.
static_assert(sizeof(&::gst_vulkan_operation_new) != 0);
#endif

// From 1.28 on some ask not to be called in vain, which is no part of a type.
#pragma GCC diagnostic ignored "-Wignored-attributes"
#define SAME_FUNCTION(result, name, ...) \
  static_assert(std::is_same_v<Theirs<gpumap::gst::ours::name>::type, decltype(::name)>, #name " differs");
GPUMAP_GST_VULKAN(SAME_FUNCTION)

}  // namespace theirs

int main() {}
