// SPDX-License-Identifier: MIT
#include "gst/vulkan/shared_image_memory.hpp"

#include <unistd.h>

#include "gpumap/memory.hpp"

namespace gpumap::gst {

namespace {

/// Of memory that the CPU sees, which each device has in a coherent kind.
std::uint32_t host_type(const GstVulkanDevice& device, std::uint32_t allowed) {
  constexpr VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  const auto get =
      vulkan_function<PFN_vkGetPhysicalDeviceMemoryProperties>(device, "vkGetPhysicalDeviceMemoryProperties");
  VkPhysicalDeviceMemoryProperties memory{};
  if (get != nullptr) {
    auto* of = const_cast<GstVulkanDevice*>(&device);
    get(GstVulkanLibrary::get().gst_vulkan_device_get_physical_device(of), &memory);
  }
  std::uint32_t chosen = memory.memoryTypeCount;
  for (std::uint32_t i = memory.memoryTypeCount; i-- > 0;) {
    const VkMemoryPropertyFlags flags = memory.memoryTypes[i].propertyFlags;
    if ((allowed >> i & 1U) == 0 || (flags & wanted) != wanted) continue;
    chosen = i;
    if ((flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0) break;  // which the CPU reads faster
  }
  if (chosen == memory.memoryTypeCount) {
    throw Error(ErrorCode::not_supported,
                "the Vulkan device of GStreamer's elements has no memory that the CPU sees: give it another device");
  }
  return chosen;
}

}  // namespace

void VulkanWindow::create_buffer(std::uint64_t buffer_bytes, const void* next) {
  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.pNext = next;
  info.size = buffer_bytes;
  info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  check_vulkan(vulkan.vkCreateBuffer(device, &info, nullptr, &buffer), "making a buffer");
}

void VulkanWindow::bind_new_memory(std::uint64_t allocation_bytes, std::uint32_t type, const void* next) {
  VkMemoryAllocateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  info.pNext = next;
  info.allocationSize = allocation_bytes;
  info.memoryTypeIndex = type;
  check_vulkan(vulkan.vkAllocateMemory(device, &info, nullptr, &memory), "getting memory");
  check_vulkan(vulkan.vkBindBufferMemory(device, buffer, memory, 0), "binding memory");
}

std::unique_ptr<VulkanWindow> import_window(const VulkanFunctions& vulkan, VkDevice device, const Mapping& mapping) {
  const VulkanExport from = export_to_vulkan(mapping);
  auto window = std::make_unique<VulkanWindow>(vulkan, device);
  try {
    VkExternalMemoryBufferCreateInfo external{};
    external.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO;
    external.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    window->create_buffer(from.buffer_bytes, &external);
    VkMemoryDedicatedAllocateInfo dedicated{};
    dedicated.sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO;
    dedicated.buffer = window->buffer;
    VkImportMemoryFdInfoKHR import{};
    import.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR;
    import.pNext = &dedicated;
    import.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    import.fd = from.fd;
    window->bind_new_memory(from.allocation_bytes, from.memory_type, &import);
  } catch (...) {
    if (window->memory == VK_NULL_HANDLE) close(from.fd);  // else it is the driver's
    throw;
  }
  window->base = from.base;
  window->bytes = mapping.bytes();
  return window;
}

std::unique_ptr<VulkanWindow> host_window(const VulkanFunctions& vulkan, const GstVulkanDevice& device,
                                          std::size_t bytes) {
  auto window = std::make_unique<VulkanWindow>(vulkan, device.device);
  window->create_buffer(bytes, nullptr);
  VkMemoryRequirements needs{};
  vulkan.vkGetBufferMemoryRequirements(window->device, window->buffer, &needs);
  window->bind_new_memory(needs.size, host_type(device, needs.memoryTypeBits), nullptr);
  void* host = nullptr;
  check_vulkan(vulkan.vkMapMemory(window->device, window->memory, 0, VK_WHOLE_SIZE, 0, &host), "mapping memory");
  window->host = static_cast<std::byte*>(host);
  window->bytes = bytes;
  return window;
}

}  // namespace gpumap::gst
