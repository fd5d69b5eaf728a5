// SPDX-License-Identifier: MIT
#include "device/gpu_device.hpp"

#include <fmt/format.h>
#include <utility>

#include "device/cuda_driver.hpp"
#include "device/vulkan_device.hpp"
#include "gpumap/error.hpp"

namespace gpumap {

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

bool GpuDevice::stuck() const noexcept {
  return (vulkan_ && vulkan_->stuck_work().any()) || (cuda_ && cuda_->stuck());
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

}  // namespace gpumap
