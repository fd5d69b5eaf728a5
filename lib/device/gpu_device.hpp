// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "device/health.hpp"
#include "gpumap/device.hpp"

namespace gpumap {

class VulkanContext;
class CudaContext;

/// The one implementation of Device: a Vulkan device for memory (and kernels), and a CUDA context where the GPU has
/// one.
class GpuDevice final : public Device {
 public:
  GpuDevice(DeviceInfo info, std::shared_ptr<Health> health, std::unique_ptr<VulkanContext> vulkan,
            std::unique_ptr<CudaContext> cuda);
  ~GpuDevice() override;

  [[nodiscard]] const DeviceInfo& info() const noexcept override { return info_; }
  [[nodiscard]] Backend default_backend() const noexcept override;
  [[nodiscard]] bool has(Backend backend) const noexcept override;
  [[nodiscard]] std::uint64_t window_free_bytes() const override;
  [[nodiscard]] std::shared_ptr<Mapping> allocate(const MappingOptions& options,
                                                  std::optional<Backend> backend) override;
  [[nodiscard]] std::unique_ptr<Queue> create_queue(std::optional<Backend> backend) override;
  [[nodiscard]] std::string lost() const override { return health_->reason(); }

  [[nodiscard]] VulkanContext* vulkan() const noexcept { return vulkan_.get(); }  ///< never null on an open device
  [[nodiscard]] CudaContext* cuda() const noexcept { return cuda_.get(); }        ///< null where the GPU has no CUDA
  void mark_lost(const std::string& reason) { health_->mark_lost(reason); }
  void check_alive() const { health_->check(); }  ///< throws Error(device_lost)
  [[nodiscard]] std::shared_ptr<GpuDevice> self() { return std::static_pointer_cast<GpuDevice>(shared_from_this()); }

 private:
  [[nodiscard]] Backend choose(std::optional<Backend> backend) const;

  DeviceInfo info_;
  std::shared_ptr<Health> health_;
  std::unique_ptr<VulkanContext> vulkan_;
  std::unique_ptr<CudaContext> cuda_;
};

}  // namespace gpumap
