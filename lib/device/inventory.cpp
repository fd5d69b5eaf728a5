// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "device/budget.hpp"
#include "device/cuda_driver.hpp"
#include "device/nvrtc_library.hpp"
#include "device/unique_fd.hpp"
#include "device/vulkan_device.hpp"
#include "gpumap/device.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace {

/// A GPU as CUDA sees it.
struct CudaGpu {
  std::string name;
  Uuid uuid{};
  std::string pci_address;
  int ordinal = -1;
  std::uint64_t memory_bytes = 0;
  std::string compute_capability;
  std::string driver;
};

CudaGpu describe(const cuda::Driver& driver, CUdevice device, int ordinal) {
  CudaGpu gpu;
  gpu.ordinal = ordinal;
  std::array<char, 256> name{};
  driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device);
  gpu.name = name.data();
  CUuuid uuid{};
  driver.cuDeviceGetUuid(&uuid, device);
  std::transform(std::begin(uuid.bytes), std::end(uuid.bytes), gpu.uuid.begin(),
                 [](char byte) { return static_cast<std::uint8_t>(byte); });
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    driver.cuDeviceGetAttribute(&value, which, device);
    return value;
  };
  gpu.pci_address =
      fmt::format("{:04x}:{:02x}:{:02x}.0", attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                  attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID), attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
  gpu.compute_capability = fmt::format("{}.{}", attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                                       attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  std::size_t bytes = 0;
  driver.cuDeviceTotalMem(&bytes, device);
  gpu.memory_bytes = bytes;
  gpu.driver = driver.version_text();
  return gpu;
}

/// What there is. Sets `status` to a sentence, also for what is missing.
std::vector<CudaGpu> list_cuda_gpus(std::string& status) {
  std::vector<CudaGpu> gpus;
  try {
    const auto& driver = cuda::Driver::get();
    int count = 0;
    driver.cuDeviceGetCount(&count);
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      CUdevice device = 0;
      if (driver.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS) gpus.push_back(describe(driver, device, ordinal));
    }
    status = fmt::format("found CUDA {} with {} GPU{}", driver.version_text(), count, count == 1 ? "" : "s");
  } catch (const Error& error) {
    status = error.what();
  }
  return gpus;
}

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

/// As list_cuda_gpus().
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

/// One GPU has the same UUID on both sides; indices and names need not agree.
void merge(const CudaGpu& gpu, std::vector<DeviceInfo>& devices) {
  auto device = std::find_if(devices.begin(), devices.end(),
                             [&](const DeviceInfo& info) { return !info.software && info.uuid == gpu.uuid; });
  if (device == devices.end()) {
    DeviceInfo info;
    info.name = gpu.name;
    info.uuid = gpu.uuid;
    info.memory_bytes = gpu.memory_bytes;
    info.access = DeviceAccess::none;
    info.reason = "no Vulkan driver for it: install libvulkan1 and the driver's Vulkan ICD (nvidia_icd.json)";
    device = devices.insert(devices.end(), info);
  }
  device->cuda_index = gpu.ordinal;
  device->cuda_driver = gpu.driver;
  device->compute_capability = gpu.compute_capability;
  if (device->pci_address.empty()) device->pci_address = gpu.pci_address;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return result;
}

const DeviceInfo& select_auto(const Inventory& inventory) {
  for (const DeviceAccess wanted : {DeviceAccess::bar, DeviceAccess::software}) {
    for (const auto& device : inventory.devices) {
      if (device.access == wanted) return device;
    }
  }
  std::string reasons;
  for (const auto& device : inventory.devices) reasons += fmt::format("; {}: {}", device.name, device.reason);
  throw Error(ErrorCode::not_supported, "no device here lets the CPU write into its memory" + reasons);
}

std::string list_of(const Inventory& inventory) {
  std::string list;
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) {
    const auto& device = inventory.devices[i];
    list += fmt::format("{}{} = {} (GPU-{}{}{})", i == 0 ? "" : ", ", i, device.name, to_string(device.uuid),
                        device.pci_address.empty() ? "" : ", ", device.pci_address);
  }
  return list;
}

}  // namespace

Inventory take_inventory() {
  Inventory inventory;
  inventory.devices = list_vulkan_devices(inventory.vulkan);
  for (const auto& gpu : list_cuda_gpus(inventory.cuda)) merge(gpu, inventory.devices);
  inventory.nvrtc = nvrtc_status();
  std::stable_partition(inventory.devices.begin(), inventory.devices.end(),
                        [](const DeviceInfo& info) { return !info.software; });
  return inventory;
}

std::string_view to_string(DeviceAccess access) noexcept {
  constexpr std::array<std::string_view, 3> names{"none", "bar", "software"};
  return names[static_cast<std::size_t>(access)];
}

std::string name_of(const DeviceInfo& device) {
  return device.pci_address.empty() ? device.name : fmt::format("{} at {}", device.name, device.pci_address);
}

std::string to_string(const Uuid& uuid) {
  std::string text;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

const DeviceInfo& select_device(const Inventory& inventory, std::string_view selector) {
  if (inventory.devices.empty()) {
    check_descriptors("no GPU", "looking for one");
    throw Error(ErrorCode::no_driver, fmt::format("no GPU: Vulkan: {}. CUDA: {}", inventory.vulkan, inventory.cuda));
  }
  const std::string wanted = lower(selector);
  if (wanted == "auto") return select_auto(inventory);

  const char* const end = wanted.data() + wanted.size();
  std::size_t index = 0;
  if (const auto [stop, error] = std::from_chars(wanted.data(), end, index); stop == end && !wanted.empty()) {
    if (error == std::errc() && index < inventory.devices.size()) return inventory.devices[index];
    throw Error(ErrorCode::no_device, fmt::format("no device {}: this machine has {}: choose by number, UUID or PCI "
                                                  "address",
                                                  wanted, list_of(inventory)));
  }

  const std::string uuid = wanted.starts_with("gpu-") ? wanted.substr(4) : wanted;
  for (const auto& device : inventory.devices) {
    if (uuid == to_string(device.uuid)) return device;
    // "3b:00.0" means the same as "0000:3b:00.0", as in lspci.
    if (!device.pci_address.empty() && (wanted == device.pci_address || "0000:" + wanted == device.pci_address)) {
      return device;
    }
  }
  const bool looks_right = wanted.starts_with("gpu-") || uuid.size() == 36 || wanted.find(':') != std::string::npos;
  if (looks_right) {
    throw Error(ErrorCode::no_device, fmt::format("no device {}: this machine has {}: choose one of these, or auto",
                                                  selector, list_of(inventory)));
  }
  throw Error(ErrorCode::invalid, fmt::format("device \"{}\" is not auto, a number, a UUID or a PCI address: this "
                                              "machine has {}",
                                              selector, list_of(inventory)));
}

}  // namespace gpumap
