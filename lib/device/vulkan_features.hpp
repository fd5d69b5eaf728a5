// SPDX-License-Identifier: MIT
// Heavy: see vulkan_device.hpp.
#pragma once

#include <cstdint>
#include <vector>
#include <vulkan/vulkan_raii.hpp>

namespace gpumap {

/// What gpumap enables of a device: what it needs, and what shaders may use where the device has it.
class VulkanFeatures {
 public:
  explicit VulkanFeatures(const vk::raii::PhysicalDevice& physical);
  VulkanFeatures(const VulkanFeatures&) = delete;
  VulkanFeatures& operator=(const VulkanFeatures&) = delete;

  /// For vk::DeviceCreateInfo; lives as long as this.
  [[nodiscard]] const vk::PhysicalDeviceFeatures2& chain() const { return chain_.get<vk::PhysicalDeviceFeatures2>(); }
  [[nodiscard]] const std::vector<const char*>& extensions() const noexcept { return extensions_; }

  /// SpvCapability values that a shader may declare; what another one means on this device is undefined.
  [[nodiscard]] const std::vector<std::uint32_t>& capabilities() const noexcept { return capabilities_; }

 private:
  void allow_arithmetic(const vk::raii::PhysicalDevice& physical);
  void allow_float_atomics(const vk::raii::PhysicalDevice& physical);
  void allow_subgroups(const vk::PhysicalDeviceVulkan11Properties& properties);
  void allow_float_controls(const vk::PhysicalDeviceVulkan12Properties& properties);

  vk::StructureChain<vk::PhysicalDeviceFeatures2, vk::PhysicalDeviceVulkan11Features,
                     vk::PhysicalDeviceVulkan12Features, vk::PhysicalDeviceMaintenance4Features,
                     vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT>
      chain_;
  std::vector<const char*> extensions_;
  std::vector<std::uint32_t> capabilities_;
};

}  // namespace gpumap
