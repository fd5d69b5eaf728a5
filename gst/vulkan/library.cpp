// SPDX-License-Identifier: MIT
#include "gst/vulkan/library.hpp"

#include <dlfcn.h>

namespace gpumap::gst {

namespace {

constexpr const char* file_name = "libgstvulkan-1.0.so.0";

template <typename Function>
bool find(void* library, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  return function != nullptr;
}

GstVulkanLibrary open_library() {
  GstVulkanLibrary made;
  // Its types stay registered with GLib: it must stay too.
  void* library = dlopen(file_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    made.problem =
        std::string(file_name) + " was not found: install libgstreamer-plugins-bad1.0-0 and gstreamer1.0-plugins-bad";
    return made;
  }
  std::string missing;
#define GPUMAP_GST_VULKAN_LOAD(result, name, ...) \
  if (!find(library, #name, made.name)) missing += " " #name;
  GPUMAP_GST_VULKAN(GPUMAP_GST_VULKAN_LOAD)
#undef GPUMAP_GST_VULKAN_LOAD
  void (*init_memory)() = nullptr;
  void (*init_buffers)() = nullptr;
  void (*init_images)() = nullptr;
  if (!find(library, "gst_vulkan_memory_init_once", init_memory) ||
      !find(library, "gst_vulkan_buffer_memory_init_once", init_buffers) ||
      !find(library, "gst_vulkan_image_memory_init_once", init_images)) {
    missing += " gst_vulkan_…memory_init_once";
  }
  if (!missing.empty()) {
    made.problem = std::string(file_name) + " lacks" + missing + ": install GStreamer 1.22 or newer";
    return made;
  }
  // It came together with the timelines.
  made.has_semaphores = dlsym(library, "gst_vulkan_operation_new") != nullptr;
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
