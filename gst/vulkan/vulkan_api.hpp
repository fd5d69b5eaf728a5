// SPDX-License-Identifier: MIT
//
// What gpumap uses of libgstvulkan, GStreamer's Vulkan library, declared here: so that building takes no headers of it,
// and one build runs with each version. The functions are the same from 1.22 to 1.28. So is how each struct begins, but
// for a barrier, which has two forms: image_state() and semaphore_of() in library.hpp know which one is there.
// tests/unit/gst_vulkan_api_test.cpp compares all that with the headers where they are.
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>
#include <vulkan/vulkan_core.h>

// X(result, name, parameters...)
#define GPUMAP_GST_VULKAN(X)                                                                                         \
  X(GstVulkanInstance*, gst_vulkan_instance_new, void)                                                               \
  X(gboolean, gst_vulkan_instance_open, GstVulkanInstance* instance, GError** error)                                 \
  X(gpointer, gst_vulkan_instance_get_proc_address, GstVulkanInstance* instance, const gchar* name)                  \
  X(gboolean, gst_vulkan_instance_handle_context_query, GstElement* element, GstQuery* query,                        \
    GstVulkanInstance* instance)                                                                                     \
  X(gboolean, gst_context_get_vulkan_instance, GstContext* context, GstVulkanInstance** instance)                    \
  X(GstVulkanDevice*, gst_vulkan_device_new_with_index, GstVulkanInstance* instance, guint index)                    \
  X(VkPhysicalDevice, gst_vulkan_device_get_physical_device, GstVulkanDevice* device)                                \
  X(gboolean, gst_vulkan_device_enable_extension, GstVulkanDevice* device, const gchar* name)                        \
  X(gboolean, gst_vulkan_device_is_extension_enabled, GstVulkanDevice* device, const gchar* name)                    \
  X(gboolean, gst_vulkan_device_open, GstVulkanDevice* device, GError** error)                                       \
  X(gpointer, gst_vulkan_device_get_proc_address, GstVulkanDevice* device, const gchar* name)                        \
  X(GstVulkanQueue*, gst_vulkan_device_get_queue, GstVulkanDevice* device, guint32 family, guint32 index)            \
  X(gboolean, gst_vulkan_device_handle_context_query, GstElement* element, GstQuery* query, GstVulkanDevice* device) \
  X(gboolean, gst_context_get_vulkan_device, GstContext* context, GstVulkanDevice** device)                          \
  X(gboolean, gst_vulkan_queue_handle_context_query, GstElement* element, GstQuery* query, GstVulkanQueue* queue)    \
  X(gboolean, gst_context_get_vulkan_queue, GstContext* context, GstVulkanQueue** queue)                             \
  X(void, gst_vulkan_queue_submit_lock, GstVulkanQueue* queue)                                                       \
  X(void, gst_vulkan_queue_submit_unlock, GstVulkanQueue* queue)                                                     \
  X(gboolean, gst_is_vulkan_image_memory, GstMemory* memory)                                                         \
  X(gboolean, gst_is_vulkan_buffer_memory, GstMemory* memory)                                                        \
  X(GstBufferPool*, gst_vulkan_image_buffer_pool_new, GstVulkanDevice* device)                                       \
  X(GstBufferPool*, gst_vulkan_buffer_pool_new, GstVulkanDevice* device)

namespace gpumap::gst {

/// GObjects, and how each begins; libgstvulkan makes them. What they point to is borrowed.
struct GstVulkanPhysicalDevice;
struct GstVulkanInstance {
  GstObject parent;
  VkInstance instance;
  VkPhysicalDevice* physical_devices;
  guint32 n_physical_devices;
};
struct GstVulkanDevice {
  GstObject parent;
  GstVulkanInstance* instance;
  GstVulkanPhysicalDevice* physical_device;
  VkDevice device;
};
struct GstVulkanQueue {
  GstObject parent;
  GstVulkanDevice* device;
  VkQueue queue;
  guint32 family;
  guint32 index;
};
struct GstVulkanMemory;

/// The state that a user of a piece of memory left it in, of GStreamer 1.22; and the same from 1.24 on.
struct GstVulkanBarrier22 {
  guint type;
  guint flags;
  GstVulkanQueue* queue;
  VkPipelineStageFlags pipeline_stages;
  VkAccessFlags access_flags;
  gpointer reserved[GST_PADDING];
};
struct GstVulkanBarrier24 {
  guint type;
  guint flags;
  GstVulkanQueue* queue;
  guint64 pipeline_stages;
  guint64 access_flags;
  VkSemaphore semaphore;  ///< a timeline; null: none
  guint64 semaphore_value;
  gpointer reserved[GST_PADDING];
};
/// Of an image, one of these two follows.
template <typename Barrier>
struct GstVulkanImageBarrier {
  Barrier parent;
  VkImageLayout image_layout;
  VkImageSubresourceRange subresource_range;
};

struct GstVulkanImageMemory {
  GstMemory parent;
  GstVulkanDevice* device;
  VkImage image;
  GstVulkanMemory* vk_mem;
  VkImageCreateInfo create_info;
  VkMemoryRequirements requirements;
  VkImageFormatProperties format_properties;
  VkImageUsageFlags usage;
  union {
    GstVulkanImageBarrier<GstVulkanBarrier22> barrier22;
    GstVulkanImageBarrier<GstVulkanBarrier24> barrier24;
  };
};
struct GstVulkanBufferMemory {
  GstMemory parent;
  GstVulkanDevice* device;
  VkBuffer buffer;
  GstVulkanMemory* vk_mem;
  VkMemoryRequirements requirements;
  VkBufferUsageFlags usage;
  union {
    GstVulkanBarrier22 barrier22;
    GstVulkanBarrier24 barrier24;
  };
};

inline constexpr const char* vulkan_instance_type = "gst.vulkan.instance";
inline constexpr const char* vulkan_device_type = "gst.vulkan.device";
inline constexpr const char* vulkan_queue_type = "gst.vulkan.queue";

}  // namespace gpumap::gst
