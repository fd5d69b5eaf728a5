// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "device/health.hpp"
#include "gpumap/device.hpp"

namespace gpumap {

class VulkanContext;
class VulkanStaging;
class CudaContext;

/// The contexts of a Device: a Vulkan device for memory (and kernels), and a CUDA context where the GPU has one. Memory
/// and queues are made on it by rooms above this one: open_device.hpp brings them together.
class GpuDevice : public Device {
 public:
  GpuDevice(DeviceInfo info, std::shared_ptr<Health> health, std::unique_ptr<VulkanContext> vulkan,
            std::unique_ptr<CudaContext> cuda);
  ~GpuDevice() override;

  [[nodiscard]] const DeviceInfo& info() const noexcept final { return info_; }
  [[nodiscard]] Backend default_backend() const noexcept final;
  [[nodiscard]] bool has(Backend backend) const noexcept final;
  [[nodiscard]] std::uint64_t window_free_bytes() const final;
  [[nodiscard]] std::string lost() const final { return health_->reason(); }

  [[nodiscard]] VulkanContext* vulkan() const noexcept { return vulkan_.get(); }  ///< never null on an open device
  [[nodiscard]] CudaContext* cuda() const noexcept { return cuda_.get(); }        ///< null where the GPU has no CUDA
  /// Copies between Vulkan's device memory and ordinary memory. There is a vulkan().
  [[nodiscard]] virtual VulkanStaging& staging() noexcept = 0;
  /// Work of it that was given up still runs: until it ends nothing is freed.
  [[nodiscard]] bool stuck() const noexcept;
  void mark_lost(const std::string& reason) { health_->mark_lost(reason); }
  void check_alive() const { health_->check(); }  ///< throws Error(device_lost)
  [[nodiscard]] std::shared_ptr<GpuDevice> self() { return std::static_pointer_cast<GpuDevice>(shared_from_this()); }

 protected:
  /// The back end that was asked for, or the default one. Throws Error(not_supported | device_lost).
  [[nodiscard]] Backend choose(std::optional<Backend> backend) const;

 private:
  DeviceInfo info_;
  std::shared_ptr<Health> health_;
  std::unique_ptr<VulkanContext> vulkan_;
  std::unique_ptr<CudaContext> cuda_;
};

}  // namespace gpumap
