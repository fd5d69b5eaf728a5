// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/fence.hpp"

namespace gpumap {

/// Whether a GPU context still works. Once lost it stays lost: neither CUDA nor Vulkan can mend a context in place.
/// Thread safety: every member from any thread.
class Health {
 public:
  /// The first reason wins: what follows a fault are echoes of it.
  void mark_lost(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (lost_.load(std::memory_order_relaxed)) return;
    reason_ = reason;
    lost_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  /// Throws Error(device_lost) with the reason once lost. A load while healthy.
  void check() const {
    if (lost()) throw Error(ErrorCode::device_lost, reason());
  }

 private:
  std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;
  std::string reason_;
};

/// The work of one GPU context that nobody waits for any more (Fence::give_up()). Until it has ended, memory, code and
/// other things that it may use are not freed. Thread safety: every member.
class StuckWork {
 public:
  /// `end` is when the work ends; `work` names it on standard error and in errors: "kernel blur.cu"; empty: its name is
  /// not known. The caller keeps the timeline: without it the work counts as ended.
  void note(const Fence& end, const std::string& work);
  /// The first of them that still runs; empty: none does.
  [[nodiscard]] std::string running() const;
  [[nodiscard]] bool any() const noexcept;

 private:
  struct One {
    std::weak_ptr<Timeline> timeline;
    std::uint64_t until;
    std::string work;
  };
  mutable std::atomic<bool> may_run_{false};
  mutable std::mutex mutex_;
  mutable std::vector<One> noted_;
};

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
