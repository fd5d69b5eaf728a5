// SPDX-License-Identifier: MIT
//
// Which feature or property allows which capability says the Vulkan specification, appendix "Vulkan Environment for
// SPIR-V". The numbers are those of the SPIR-V specification, section 3.31.
#include "device/vulkan_features.hpp"

#include <array>
#include <utility>

#include "device/vulkan_instance.hpp"

namespace gpumap {
namespace {

// Matrix, Shader, Int64, Int8, Sampled1D, Image1D, SampledBuffer, ImageBuffer, ImageQuery, DeviceGroup,
// StorageBuffer8BitAccess, PhysicalStorageBufferAddresses: Vulkan's own, and what gpumap requires of a device.
constexpr std::array<std::uint32_t, 12> always{0, 1, 11, 39, 43, 44, 46, 47, 50, 4437, 4448, 5347};

}  // namespace

VulkanFeatures::VulkanFeatures(const vk::raii::PhysicalDevice& physical) : capabilities_(always.begin(), always.end()) {
  chain_.get<vk::PhysicalDeviceFeatures2>().features.shaderInt64 = VK_TRUE;
  auto& v12 = chain_.get<vk::PhysicalDeviceVulkan12Features>();
  v12.timelineSemaphore = VK_TRUE;
  v12.bufferDeviceAddress = VK_TRUE;
  v12.storageBuffer8BitAccess = VK_TRUE;
  v12.shaderInt8 = VK_TRUE;
  v12.scalarBlockLayout = VK_TRUE;
  if (physical.getProperties().apiVersion < VK_API_VERSION_1_3) {
    chain_.unlink<vk::PhysicalDeviceMaintenance4Features>();
  } else {
    chain_.get<vk::PhysicalDeviceMaintenance4Features>().maintenance4 = VK_TRUE;  // LocalSizeId
  }
  allow_arithmetic(physical);
  allow_float_atomics(physical);
  const auto properties = physical.getProperties2<vk::PhysicalDeviceProperties2, vk::PhysicalDeviceVulkan11Properties,
                                                  vk::PhysicalDeviceVulkan12Properties>();
  allow_subgroups(properties.get<vk::PhysicalDeviceVulkan11Properties>());
  allow_float_controls(properties.get<vk::PhysicalDeviceVulkan12Properties>());
}

void VulkanFeatures::allow_arithmetic(const vk::raii::PhysicalDevice& physical) {
  const auto has = physical.getFeatures2<vk::PhysicalDeviceFeatures2, vk::PhysicalDeviceVulkan11Features,
                                         vk::PhysicalDeviceVulkan12Features>();
  const auto& has_core = has.get<vk::PhysicalDeviceFeatures2>().features;
  const auto& has_11 = has.get<vk::PhysicalDeviceVulkan11Features>();
  const auto& has_12 = has.get<vk::PhysicalDeviceVulkan12Features>();
  auto& core = chain_.get<vk::PhysicalDeviceFeatures2>().features;
  auto& v11 = chain_.get<vk::PhysicalDeviceVulkan11Features>();
  auto& v12 = chain_.get<vk::PhysicalDeviceVulkan12Features>();
  const auto enable = [this](vk::Bool32 has_it, std::initializer_list<vk::Bool32*> features,
                             std::initializer_list<std::uint32_t> capabilities) {
    if (has_it == VK_FALSE) return;
    for (vk::Bool32* feature : features) *feature = VK_TRUE;
    capabilities_.insert(capabilities_.end(), capabilities);
  };
  enable(has_core.shaderInt16 & has_11.storageBuffer16BitAccess, {&core.shaderInt16, &v11.storageBuffer16BitAccess},
         {22, 4433});                                           // Int16, StorageBuffer16BitAccess
  enable(has_12.shaderFloat16, {&v12.shaderFloat16}, {9});      // Float16
  enable(has_core.shaderFloat64, {&core.shaderFloat64}, {10});  // Float64
  // Of atomics a capability does not tell whether they are on buffers or on shared memory, which fewer devices have.
  enable(has_12.shaderBufferInt64Atomics, {&v12.shaderBufferInt64Atomics}, {12});  // Int64Atomics
  v12.shaderSharedInt64Atomics = has_12.shaderSharedInt64Atomics;
  enable(has_11.variablePointersStorageBuffer, {&v11.variablePointersStorageBuffer}, {4441});
  enable(has_11.variablePointersStorageBuffer & has_11.variablePointers, {&v11.variablePointers}, {4442});
  enable(has_12.vulkanMemoryModel & has_12.vulkanMemoryModelDeviceScope,
         {&v12.vulkanMemoryModel, &v12.vulkanMemoryModelDeviceScope},
         {5345, 5346});  // VulkanMemoryModel, VulkanMemoryModelDeviceScope
}

void VulkanFeatures::allow_float_atomics(const vk::raii::PhysicalDevice& physical) {
  using Atomics = vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT;
  if (!has_extension(physical, VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME)) {
    chain_.unlink<Atomics>();
    return;
  }
  extensions_.push_back(VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME);
  const auto has = physical.getFeatures2<vk::PhysicalDeviceFeatures2, Atomics>().get<Atomics>();
  auto& atomics = chain_.get<Atomics>();
  atomics.shaderBufferFloat32Atomics = has.shaderBufferFloat32Atomics;
  atomics.shaderSharedFloat32Atomics = has.shaderSharedFloat32Atomics;
  atomics.shaderBufferFloat64Atomics = has.shaderBufferFloat64Atomics;
  atomics.shaderSharedFloat64Atomics = has.shaderSharedFloat64Atomics;
  atomics.shaderBufferFloat32AtomicAdd = has.shaderBufferFloat32AtomicAdd;
  atomics.shaderSharedFloat32AtomicAdd = has.shaderSharedFloat32AtomicAdd;
  atomics.shaderBufferFloat64AtomicAdd = has.shaderBufferFloat64AtomicAdd;
  atomics.shaderSharedFloat64AtomicAdd = has.shaderSharedFloat64AtomicAdd;
  if (has.shaderBufferFloat32AtomicAdd != VK_FALSE) capabilities_.push_back(6033);  // AtomicFloat32AddEXT
  if (has.shaderBufferFloat64AtomicAdd != VK_FALSE) capabilities_.push_back(6034);  // AtomicFloat64AddEXT
}

void VulkanFeatures::allow_subgroups(const vk::PhysicalDeviceVulkan11Properties& properties) {
  if (!(properties.subgroupSupportedStages & vk::ShaderStageFlagBits::eCompute)) return;
  using Operation = vk::SubgroupFeatureFlagBits;
  // GroupNonUniform and what follows it.
  constexpr std::array<std::pair<Operation, std::uint32_t>, 8> operations{{{Operation::eBasic, 61},
                                                                           {Operation::eVote, 62},
                                                                           {Operation::eArithmetic, 63},
                                                                           {Operation::eBallot, 64},
                                                                           {Operation::eShuffle, 65},
                                                                           {Operation::eShuffleRelative, 66},
                                                                           {Operation::eClustered, 67},
                                                                           {Operation::eQuad, 68}}};
  for (const auto& [operation, capability] : operations) {
    if (properties.subgroupSupportedOperations & operation) capabilities_.push_back(capability);
  }
}

void VulkanFeatures::allow_float_controls(const vk::PhysicalDeviceVulkan12Properties& properties) {
  const vk::PhysicalDeviceVulkan12Properties& has = properties;
  // A shader may ask for each of them with any width of float.
  const std::array<std::array<vk::Bool32, 3>, 5> controls{{
      {has.shaderDenormPreserveFloat16, has.shaderDenormPreserveFloat32, has.shaderDenormPreserveFloat64},
      {has.shaderDenormFlushToZeroFloat16, has.shaderDenormFlushToZeroFloat32, has.shaderDenormFlushToZeroFloat64},
      {has.shaderSignedZeroInfNanPreserveFloat16, has.shaderSignedZeroInfNanPreserveFloat32,
       has.shaderSignedZeroInfNanPreserveFloat64},
      {has.shaderRoundingModeRTEFloat16, has.shaderRoundingModeRTEFloat32, has.shaderRoundingModeRTEFloat64},
      {has.shaderRoundingModeRTZFloat16, has.shaderRoundingModeRTZFloat32, has.shaderRoundingModeRTZFloat64},
  }};
  std::uint32_t capability = 4464;  // DenormPreserve, the first of five in this order
  for (const auto& widths : controls) {
    if ((widths[0] & widths[1] & widths[2]) != 0) capabilities_.push_back(capability);
    ++capability;
  }
}

}  // namespace gpumap
