// SPDX-License-Identifier: MIT
// Heavy: see vulkan_device.hpp.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "device/gpu_device.hpp"
#include "device/vulkan_device.hpp"
#include "gpumap/fence.hpp"

namespace gpumap {

/// A timeline semaphore.
class VulkanTimeline final : public Timeline {
 public:
  explicit VulkanTimeline(std::shared_ptr<GpuDevice> device);
  ~VulkanTimeline() override { context_.retire(std::move(semaphore_)); }
  VulkanTimeline(const VulkanTimeline&) = delete;
  VulkanTimeline& operator=(const VulkanTimeline&) = delete;

  [[nodiscard]] std::uint64_t completed() override;
  void check() override;
  void give_up(const Fence& end, const std::string& work) override { context_.stuck_work().note(end, work); }

  [[nodiscard]] const VulkanContext& context() const noexcept { return context_; }
  [[nodiscard]] vk::Semaphore semaphore() const noexcept { return *semaphore_; }
  /// Block until `value` is reached, for `longest` at most; false: it is not. For destructors: never throws, and is
  /// true once the device is lost.
  [[nodiscard]] bool drain(std::uint64_t value, std::chrono::nanoseconds longest) noexcept;

 private:
  const std::shared_ptr<GpuDevice> device_;
  const VulkanContext& context_;
  vk::raii::Semaphore semaphore_{nullptr};
  std::atomic<std::uint64_t> seen_{0};
};

}  // namespace gpumap
