// SPDX-License-Identifier: MIT
#include "device/gpu_device.hpp"

#include <fmt/format.h>
#include <map>
#include <mutex>
#include <utility>

#include "device/cuda_driver.hpp"
#include "device/queues.hpp"
#include "device/vulkan_device.hpp"
#include "gpumap/error.hpp"
#include "memory/gpu_mapping.hpp"

namespace gpumap {

#if !GPUMAP_HAVE_CUDA
class CudaContext {};
#endif

namespace {

std::shared_ptr<GpuDevice> open_gpu(const DeviceInfo& info) {
  if (info.transport == "none") {
    throw Error(ErrorCode::not_supported, fmt::format("{} cannot be used: {}", info.name, info.reason));
  }
  auto health = std::make_shared<Health>();
  auto vulkan =
      std::make_unique<VulkanContext>(VulkanInstance::get(), static_cast<std::uint32_t>(info.vulkan_index), health);
  std::unique_ptr<CudaContext> cuda;
#if GPUMAP_HAVE_CUDA
  if (info.cuda_index >= 0) {
    cuda = std::make_unique<CudaContext>(cuda::Driver::get(), info.cuda_index, info.name, health);
  }
#endif
  return std::make_shared<GpuDevice>(info, std::move(health), std::move(vulkan), std::move(cuda));
}

/// Opened devices live as long as the process: never destroyed, always reachable.
struct OpenDevices {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<GpuDevice>, std::less<>> by_selector;  // as it was asked for
  std::map<Uuid, std::shared_ptr<GpuDevice>> by_uuid;
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

GpuDevice::GpuDevice(DeviceInfo info, std::shared_ptr<Health> health, std::unique_ptr<VulkanContext> vulkan,
                     std::unique_ptr<CudaContext> cuda)
    : info_(std::move(info)), health_(std::move(health)), vulkan_(std::move(vulkan)), cuda_(std::move(cuda)) {}

GpuDevice::~GpuDevice() = default;

Backend GpuDevice::default_backend() const noexcept {
  return cuda_ ? Backend::cuda : Backend::vulkan;
}

bool GpuDevice::has(Backend backend) const noexcept {
  return backend == Backend::cuda ? cuda_ != nullptr : vulkan_ != nullptr;
}

std::uint64_t GpuDevice::window_free_bytes() const {
  return vulkan_->window_free_bytes();
}

Backend GpuDevice::choose(std::optional<Backend> backend) const {
  check_alive();
  const Backend chosen = backend.value_or(default_backend());
  if (!has(chosen)) {
    throw Error(ErrorCode::not_supported,
                fmt::format("{} has no CUDA: use the Vulkan backend, or a GPU with the NVIDIA driver", info_.name));
  }
  return chosen;
}

std::shared_ptr<Mapping> GpuDevice::allocate(const MappingOptions& options, std::optional<Backend> backend) {
  const Backend chosen = choose(backend);
  if (options.bytes == 0) throw Error(ErrorCode::invalid, "a mapping of 0 bytes was asked for");
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

std::unique_ptr<Queue> GpuDevice::create_queue(std::optional<Backend> backend) {
  return choose(backend) == Backend::cuda ? create_cuda_queue(self()) : create_vulkan_queue(self());
}

}  // namespace gpumap
