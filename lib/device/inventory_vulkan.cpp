// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <algorithm>

#include "device/budget.hpp"
#include "device/inventory_parts.hpp"
#include "device/vulkan_instance.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace {

std::string driver_of(const vk::PhysicalDeviceProperties& properties,
                      const vk::PhysicalDeviceDriverProperties& driver) {
  return fmt::format("{} {}, Vulkan {}.{}.{}", driver.driverName.data(), driver.driverInfo.data(),
                     VK_API_VERSION_MAJOR(properties.apiVersion), VK_API_VERSION_MINOR(properties.apiVersion),
                     VK_API_VERSION_PATCH(properties.apiVersion));
}

void read_memory(const vk::raii::PhysicalDevice& physical, DeviceInfo& info) {
  const auto memory = physical.getMemoryProperties();
  const auto budgets = heap_budgets(physical, has_extension(physical, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME));
  const std::uint32_t window = window_heaps(memory);
  std::uint64_t driver_free = 0;
  for (std::uint32_t heap = 0; heap < memory.memoryHeapCount; ++heap) {
    const std::uint64_t size = memory.memoryHeaps[heap].size;
    // A small window is a heap of its own, cut out of the big one: the biggest is the whole.
    if (memory.memoryHeaps[heap].flags & vk::MemoryHeapFlagBits::eDeviceLocal) {
      info.memory_bytes = std::max(info.memory_bytes, size);
    }
    if ((window >> heap & 1U) == 0) continue;
    info.window_bytes += size;
    driver_free += budgets[heap];
  }
  info.window_free_bytes = Budget(window_limit_variable).free_bytes(info.window_bytes, driver_free);
}

void judge(DeviceInfo& info, vk::PhysicalDeviceType type, const std::string& missing) {
  info.access = DeviceAccess::none;
  if (!missing.empty()) {
    info.reason = fmt::format("its Vulkan driver lacks {}: update the driver", missing);
  } else if (info.window_bytes == 0) {
    info.reason = "its Vulkan driver maps no device memory: turn on resizable BAR in the firmware, update the driver";
  } else if (info.software) {
    info.access = DeviceAccess::software;
    info.reason = "a software Vulkan driver: kernels run on the CPU, slots are ordinary memory";
  } else {
    info.access = DeviceAccess::bar;
    info.reason = fmt::format("the CPU writes its memory through a BAR window of {}", format_bytes(info.window_bytes));
    if (type == vk::PhysicalDeviceType::eIntegratedGpu) {
      info.reason =
          fmt::format("an integrated GPU: it shares {} of memory with the CPU", format_bytes(info.window_bytes));
    } else if (info.window_bytes < info.memory_bytes / 2) {
      info.reason += " (turn on resizable BAR in the firmware to reach all of it)";
    }
  }
}

DeviceInfo describe(const vk::raii::PhysicalDevice& physical, int index) {
  DeviceInfo info;
  info.vulkan_index = index;
  const auto core = physical.getProperties();
  info.name = core.deviceName.data();
  info.software = core.deviceType == vk::PhysicalDeviceType::eCpu;
  if (core.apiVersion >= VK_API_VERSION_1_2) {
    const auto chain = physical.getProperties2<vk::PhysicalDeviceProperties2, vk::PhysicalDeviceIDProperties,
                                               vk::PhysicalDeviceDriverProperties>();
    const auto& uuid = chain.get<vk::PhysicalDeviceIDProperties>().deviceUUID;
    std::copy(uuid.begin(), uuid.end(), info.uuid.begin());
    info.vulkan_driver = driver_of(core, chain.get<vk::PhysicalDeviceDriverProperties>());
  }
  if (has_extension(physical, VK_EXT_PCI_BUS_INFO_EXTENSION_NAME)) {
    const auto chain =
        physical.getProperties2<vk::PhysicalDeviceProperties2, vk::PhysicalDevicePCIBusInfoPropertiesEXT>();
    const auto& pci = chain.get<vk::PhysicalDevicePCIBusInfoPropertiesEXT>();
    info.pci_address =
        fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.pciDomain, pci.pciBus, pci.pciDevice, pci.pciFunction);
  }
  read_memory(physical, info);
  judge(info, core.deviceType, missing_features(physical));
  return info;
}

}  // namespace

std::vector<DeviceInfo> list_vulkan_devices(std::string& status) {
  std::vector<DeviceInfo> devices;
  try {
    const auto& physical = VulkanInstance::get().devices();
    for (const auto& device : physical) devices.push_back(describe(device, static_cast<int>(devices.size())));
    status = physical.empty()
                 ? "the Vulkan driver found no device: check the GPU's driver, or install "
                   "mesa-vulkan-drivers for one in software"
                 : fmt::format("found Vulkan with {} device{}", physical.size(), physical.size() == 1 ? "" : "s");
  } catch (const Error& error) {
    status = error.what();
  } catch (const vk::SystemError& error) {
    status = fmt::format("the Vulkan driver failed: {}: update the driver", error.what());
  }
  return devices;
}

}  // namespace gpumap
