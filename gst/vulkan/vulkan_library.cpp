// SPDX-License-Identifier: MIT
#include "gst/vulkan/vulkan_library.hpp"

#include "gst/runtime_library.hpp"

namespace gpumap::gst {

namespace {

GstVulkanLibrary open_library() {
  GstVulkanLibrary made;
  RuntimeLibrary library("libgstvulkan-1.0.so.0");
#define GPUMAP_GST_VULKAN_LOAD(result, name, ...) library.find(#name, made.name);
  GPUMAP_GST_VULKAN(GPUMAP_GST_VULKAN_LOAD)
#undef GPUMAP_GST_VULKAN_LOAD
  void (*init_memory)() = nullptr;
  void (*init_buffers)() = nullptr;
  void (*init_images)() = nullptr;
  library.find("gst_vulkan_memory_init_once", init_memory);
  library.find("gst_vulkan_buffer_memory_init_once", init_buffers);
  library.find("gst_vulkan_image_memory_init_once", init_images);
  made.problem = library.problem("libgstreamer-plugins-bad1.0-0 and gstreamer1.0-plugins-bad", "1.22");
  if (!made.problem.empty()) return made;
  // It came together with the timelines.
  void (*with_timelines)() = nullptr;
  library.find("gst_vulkan_operation_new", with_timelines);
  made.has_semaphores = with_timelines != nullptr;
  init_memory();
  init_buffers();
  init_images();
  return made;
}

}  // namespace

const GstVulkanLibrary& GstVulkanLibrary::get() {
  static const auto* const library = new GstVulkanLibrary(open_library());
  return *library;
}

VulkanWork work_on(const GstVulkanImageMemory& memory) {
  if (!GstVulkanLibrary::get().has_semaphores) return {};
  const GstVulkanBarrier24& barrier = memory.barrier24.parent;
  return {barrier.semaphore, barrier.semaphore_value};
}

VulkanWork work_on(const GstVulkanBufferMemory& memory) {
  if (!GstVulkanLibrary::get().has_semaphores) return {};
  return {memory.barrier24.semaphore, memory.barrier24.semaphore_value};
}

VulkanImageState state_of(const GstVulkanImageMemory& memory) {
  if (GstVulkanLibrary::get().has_semaphores) {
    return {memory.barrier24.image_layout, memory.barrier24.subresource_range};
  }
  return {memory.barrier22.image_layout, memory.barrier22.subresource_range};
}

void set_transferred(GstVulkanImageMemory& memory, VkImageLayout layout, VkAccessFlags access) {
  const auto set = [&](auto& barrier) {
    barrier.parent.pipeline_stages = VK_PIPELINE_STAGE_TRANSFER_BIT;
    barrier.parent.access_flags = access;
    barrier.image_layout = layout;
  };
  if (GstVulkanLibrary::get().has_semaphores) {
    set(memory.barrier24);
  } else {
    set(memory.barrier22);
  }
}

}  // namespace gpumap::gst
