// SPDX-License-Identifier: MIT
#include "open_device.hpp"

#include <fmt/format.h>
#include <map>
#include <mutex>
#include <utility>

#include "device/cuda_driver.hpp"
#include "device/vulkan_device.hpp"
#include "gpumap/error.hpp"
#include "memory/gpu_mapping.hpp"
#include "memory/vulkan_allocation.hpp"
#include "queue/queues.hpp"

namespace gpumap {
namespace {

std::shared_ptr<OpenDevice> open_gpu(const DeviceInfo& info) {
  if (info.access == DeviceAccess::none) {
    throw Error(ErrorCode::not_supported, fmt::format("{} cannot be used: {}", info.name, info.reason));
  }
  auto health = std::make_shared<Health>();
  auto vulkan =
      std::make_unique<VulkanContext>(VulkanInstance::get(), static_cast<std::uint32_t>(info.vulkan_index), health);
  std::unique_ptr<CudaContext> cuda;
  if (info.cuda_index >= 0) {
    cuda = std::make_unique<CudaContext>(cuda::Driver::get(), info.cuda_index, info.name, health);
  }
  return std::make_shared<OpenDevice>(info, std::move(health), std::move(vulkan), std::move(cuda));
}

/// Opened devices live as long as the process: never destroyed, always reachable.
struct OpenDevices {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<OpenDevice>, std::less<>> by_selector;  // as it was asked for
  std::map<Uuid, std::shared_ptr<OpenDevice>> by_uuid;
};

OpenDevices& open_devices() {
  static auto* const devices = new OpenDevices;
  return *devices;
}

}  // namespace

std::shared_ptr<Device> Device::open(std::string_view selector) {
  auto& open = open_devices();
  const std::lock_guard lock(open.mutex);
  auto found = open.by_selector.find(selector);
  if (found == open.by_selector.end()) {
    const Inventory inventory = take_inventory();
    const DeviceInfo& info = select_device(inventory, selector);
    auto& device = open.by_uuid[info.uuid];
    if (!device) device = open_gpu(info);
    found = open.by_selector.emplace(selector, device).first;
  }
  found->second->check_alive();
  return found->second;
}

OpenDevice::OpenDevice(DeviceInfo info, std::shared_ptr<Health> health, std::unique_ptr<VulkanContext> vulkan,
                       std::unique_ptr<CudaContext> cuda)
    : GpuDevice(std::move(info), std::move(health), std::move(vulkan), std::move(cuda)) {
  if (this->vulkan() != nullptr) staging_ = std::make_unique<VulkanStaging>(*this->vulkan());
}

OpenDevice::~OpenDevice() = default;

std::shared_ptr<Mapping> OpenDevice::allocate(const MappingOptions& options, std::optional<Backend> backend) {
  const Backend chosen = choose(backend);
  if (options.bytes == 0) throw Error(ErrorCode::invalid, "a mapping of 0 bytes was asked for: ask for 1 or more");
  switch (options.placement) {
    case Placement::mirrored:
    case Placement::mirrored_pageable:
      return allocate_mirrored(self(), options);
    case Placement::host:
      if (chosen == Backend::cuda) return allocate_cuda_host(self(), options);
      break;
    default:
      break;
  }
  return allocate_vulkan(self(), options);
}

std::unique_ptr<Queue> OpenDevice::create_queue(std::optional<Backend> backend) {
  return choose(backend) == Backend::cuda ? create_cuda_queue(self()) : create_vulkan_queue(self());
}

}  // namespace gpumap
