// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>

#include "device/gpu_device.hpp"

namespace gpumap {

/// The one implementation of Device: a GPU's contexts, and the memory and the queues that are made on them.
class OpenDevice final : public GpuDevice {
 public:
  OpenDevice(DeviceInfo info, std::shared_ptr<Health> health, std::unique_ptr<VulkanContext> vulkan,
             std::unique_ptr<CudaContext> cuda);
  ~OpenDevice() override;

  [[nodiscard]] std::shared_ptr<Mapping> allocate(const MappingOptions& options,
                                                  std::optional<Backend> backend) override;
  [[nodiscard]] std::unique_ptr<Queue> create_queue(std::optional<Backend> backend) override;
  [[nodiscard]] VulkanStaging& staging() noexcept override { return *staging_; }

 private:
  std::unique_ptr<VulkanStaging> staging_;  // null without Vulkan; goes before the context that it is on
};

}  // namespace gpumap
