// SPDX-License-Identifier: MIT
// Heavy: see vulkan_device.hpp.
#pragma once

#include <string>
#include <vector>
#include <vulkan/vulkan_raii.hpp>

namespace gpumap {

/// The process's Vulkan instance: made on first use (0.3 s with a hardware driver), then kept.
class VulkanInstance {
 public:
  /// Throws Error(no_driver) naming what to install; tries again next time.
  [[nodiscard]] static VulkanInstance& get();

  /// Vulkan's function of this name, or null; serves every device.
  [[nodiscard]] PFN_vkVoidFunction function(const char* name) const { return instance_.getProcAddr(name); }
  [[nodiscard]] const std::vector<vk::raii::PhysicalDevice>& devices() const noexcept { return devices_; }

 private:
  VulkanInstance();

  vk::raii::Context context_;
  vk::raii::Instance instance_{nullptr};
  vk::raii::DebugUtilsMessengerEXT messenger_{nullptr};
  std::vector<vk::raii::PhysicalDevice> devices_;  // in vkEnumeratePhysicalDevices order
};

/// What a physical device lacks of what gpumap needs, as "shaderInt64, bufferDeviceAddress"; empty when nothing.
[[nodiscard]] std::string missing_features(const vk::raii::PhysicalDevice& device);
[[nodiscard]] bool has_extension(const vk::raii::PhysicalDevice& device, const char* name);
/// Heaps behind the memory types that are DEVICE_LOCAL and HOST_VISIBLE: the BAR window. A bit for each heap.
[[nodiscard]] std::uint32_t window_heaps(const vk::PhysicalDeviceMemoryProperties& memory);
/// Budget left in each heap as the driver tells it; the heap's size where it has no VK_EXT_memory_budget.
[[nodiscard]] std::vector<std::uint64_t> heap_budgets(const vk::raii::PhysicalDevice& device, bool has_budget);

}  // namespace gpumap
