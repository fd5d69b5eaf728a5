// SPDX-License-Identifier: MIT
#include <algorithm>

#include "device/inventory_parts.hpp"
#include "device/nvrtc_library.hpp"
#include "gpumap/device.hpp"

namespace gpumap {
namespace {

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

}  // namespace gpumap
