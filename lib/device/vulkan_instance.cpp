// SPDX-License-Identifier: MIT
#include "device/vulkan_instance.hpp"

#include <fmt/format.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>

#include "gpumap/device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"

namespace gpumap {
namespace {

constexpr const char* validation_layer = "VK_LAYER_KHRONOS_validation";
std::atomic<std::uint64_t> validation_messages{0};

bool validation_wanted() {
  const char* value = std::getenv("GPUMAP_VALIDATION");
  return value != nullptr && std::string_view(value) == "1";
}

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data, void*) {
  // Exported memory under a buffer not declared external: the only way to NVIDIA's BAR memory, see
  // vulkan_allocation.cpp.
  if (data->pMessageIdName != nullptr &&
      std::string_view(data->pMessageIdName) == "VUID-vkBindBufferMemory-memory-02726") {
    return VK_FALSE;
  }
  validation_messages.fetch_add(1, std::memory_order_relaxed);
  // Not by fmt::print(), which throws where standard error is closed: through Vulkan's C.
  std::fprintf(stderr, "gpumap: Vulkan validation: %s\n", printable(data->pMessage, "\n\t").c_str());
  return VK_FALSE;
}

bool has_layer(const vk::raii::Context& context, const char* name) {
  for (const auto& layer : context.enumerateInstanceLayerProperties()) {
    if (std::strcmp(layer.layerName.data(), name) == 0) return true;
  }
  return false;
}

vk::raii::Context open_loader() {
  try {
    return vk::raii::Context();
  } catch (const std::exception&) {
    throw Error(ErrorCode::no_driver, "no Vulkan: libvulkan.so.1 was not found: install libvulkan1");
  }
}

}  // namespace

std::uint64_t validation_message_count() noexcept {
  return validation_messages.load(std::memory_order_relaxed);
}

VulkanInstance& VulkanInstance::get() {
  // Never destroyed: drivers do not like to be torn down by exit(), and what they hold stays reachable from here.
  static std::mutex mutex;
  static VulkanInstance* instance = nullptr;
  const std::lock_guard lock(mutex);
  if (instance == nullptr) instance = new VulkanInstance;
  return *instance;
}

VulkanInstance::VulkanInstance() : context_(open_loader()) {
  const bool validate = validation_wanted();
  std::vector<const char*> layers;
  std::vector<const char*> extensions;
  try {
    if (validate) {
      if (!has_layer(context_, validation_layer)) {
        throw Error(ErrorCode::no_driver, fmt::format("GPUMAP_VALIDATION=1 but Vulkan has no {}: install "
                                                      "vulkan-validationlayers, or unset GPUMAP_VALIDATION",
                                                      validation_layer));
      }
      layers.push_back(validation_layer);
      extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
    }
    const vk::ApplicationInfo application("gpumap", 1, "gpumap", 1, VK_API_VERSION_1_3);
    instance_ = vk::raii::Instance(context_, vk::InstanceCreateInfo({}, &application, layers, extensions));
    if (validate) {
      // Vulkan's own structure: Vulkan-Hpp's has had two types for the callback.
      VkDebugUtilsMessengerCreateInfoEXT messenger{};
      messenger.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
      messenger.messageSeverity =
          VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
      messenger.messageType =
          VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT;
      messenger.pfnUserCallback = &on_message;
      messenger_ = vk::raii::DebugUtilsMessengerEXT(instance_, vk::DebugUtilsMessengerCreateInfoEXT(messenger));
    }
    for (auto& device : vk::raii::PhysicalDevices(instance_)) devices_.push_back(std::move(device));
  } catch (const vk::IncompatibleDriverError&) {
    throw Error(ErrorCode::no_driver,
                "no Vulkan driver: the loader found no installable client driver: install the GPU's Vulkan driver, or "
                "mesa-vulkan-drivers for one in software (VK_DRIVER_FILES and VK_ICD_FILENAMES choose drivers too)");
  } catch (const vk::SystemError& error) {
    throw Error(ErrorCode::no_driver,
                fmt::format("no Vulkan driver works: {}: install the GPU's Vulkan driver, or mesa-vulkan-drivers for "
                            "one in software",
                            error.what()));
  }
}

std::string missing_features(const vk::raii::PhysicalDevice& device) {
  if (device.getProperties().apiVersion < VK_API_VERSION_1_2) return "Vulkan 1.2";
  const auto chain = device.getFeatures2<vk::PhysicalDeviceFeatures2, vk::PhysicalDeviceVulkan12Features>();
  const auto& core = chain.get<vk::PhysicalDeviceFeatures2>().features;
  const auto& v12 = chain.get<vk::PhysicalDeviceVulkan12Features>();
  std::string missing;
  const auto need = [&missing](vk::Bool32 has, const char* name) {
    if (has == VK_FALSE) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  need(v12.timelineSemaphore, "timelineSemaphore");
  need(v12.bufferDeviceAddress, "bufferDeviceAddress");
  need(v12.storageBuffer8BitAccess, "storageBuffer8BitAccess");
  need(v12.shaderInt8, "shaderInt8");
  need(v12.scalarBlockLayout, "scalarBlockLayout");
  need(core.shaderInt64, "shaderInt64");
  return missing;
}

bool has_extension(const vk::raii::PhysicalDevice& device, const char* name) {
  for (const auto& extension : device.enumerateDeviceExtensionProperties()) {
    if (std::strcmp(extension.extensionName.data(), name) == 0) return true;
  }
  return false;
}

std::uint32_t window_heaps(const vk::PhysicalDeviceMemoryProperties& memory) {
  constexpr auto wanted = vk::MemoryPropertyFlagBits::eDeviceLocal | vk::MemoryPropertyFlagBits::eHostVisible;
  std::uint32_t heaps = 0;
  for (std::uint32_t type = 0; type < memory.memoryTypeCount; ++type) {
    if ((memory.memoryTypes[type].propertyFlags & wanted) == wanted) heaps |= 1U << memory.memoryTypes[type].heapIndex;
  }
  return heaps;
}

std::vector<std::uint64_t> heap_budgets(const vk::raii::PhysicalDevice& device, bool has_budget) {
  std::vector<std::uint64_t> free;
  if (!has_budget) {
    const auto memory = device.getMemoryProperties();
    for (std::uint32_t heap = 0; heap < memory.memoryHeapCount; ++heap) free.push_back(memory.memoryHeaps[heap].size);
    return free;
  }
  const auto chain =
      device.getMemoryProperties2<vk::PhysicalDeviceMemoryProperties2, vk::PhysicalDeviceMemoryBudgetPropertiesEXT>();
  const auto& memory = chain.get<vk::PhysicalDeviceMemoryProperties2>().memoryProperties;
  const auto& budget = chain.get<vk::PhysicalDeviceMemoryBudgetPropertiesEXT>();
  for (std::uint32_t heap = 0; heap < memory.memoryHeapCount; ++heap) {
    free.push_back(budget.heapBudget[heap] > budget.heapUsage[heap] ? budget.heapBudget[heap] - budget.heapUsage[heap]
                                                                    : 0);
  }
  return free;
}

}  // namespace gpumap
