// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "c/c_status.hpp"
#include "gpumap/device.hpp"

namespace gpumap::c {

/// One open of a device.
class DeviceObject final : public Object {
 public:
  static constexpr const char* name = "device";
  DeviceObject(std::shared_ptr<Device> opened, std::uint32_t its_flags) : device(std::move(opened)), flags(its_flags) {}
  [[nodiscard]] const char* what() const noexcept override { return name; }

  const std::shared_ptr<Device> device;
  const std::uint32_t flags;  ///< enum gpumap_device_flags
};

/// `options` with what the device's flags and those of the call (enum gpumap_memory_flags) ask for.
void require(MappingOptions& options, const DeviceObject& device, std::uint32_t memory_flags);

[[nodiscard]] inline std::uint32_t number_of(Backend backend) noexcept {
  return backend == Backend::cuda ? GPUMAP_BACKEND_CUDA : GPUMAP_BACKEND_VULKAN;
}

}  // namespace gpumap::c
