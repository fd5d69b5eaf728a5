// SPDX-License-Identifier: MIT
// Heavy: vulkan_raii.hpp takes many seconds to compile. For the files in gpumap_vulkan_sources and no other header.
#pragma once

#include <vulkan/vulkan_raii.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/budget.hpp"
#include "device/gpu_device.hpp"
#include "gpumap/fence.hpp"

namespace gpumap {

/// The process's Vulkan instance: made on first use (0.3 s with a hardware driver), then kept.
class VulkanInstance {
 public:
  /// Throws Error(no_driver) naming what to install; tries again next time.
  [[nodiscard]] static VulkanInstance& get();

  /// Vulkan's function of this name, or null; serves every device.
  [[nodiscard]] PFN_vkVoidFunction function(const char* name) const { return instance_.getProcAddr(name); }
  [[nodiscard]] const std::vector<vk::raii::PhysicalDevice>& devices() const noexcept { return devices_; }

 private:
  VulkanInstance();

  vk::raii::Context context_;
  vk::raii::Instance instance_{nullptr};
  vk::raii::DebugUtilsMessengerEXT messenger_{nullptr};
  std::vector<vk::raii::PhysicalDevice> devices_;  // in vkEnumeratePhysicalDevices order
};

/// What a physical device lacks of what gpumap needs, as "shaderInt64, bufferDeviceAddress"; empty when nothing.
[[nodiscard]] std::string missing_features(const vk::raii::PhysicalDevice& device);
[[nodiscard]] bool has_extension(const vk::raii::PhysicalDevice& device, const char* name);
/// Heaps behind the memory types that are DEVICE_LOCAL and HOST_VISIBLE: the BAR window. A bit for each heap.
[[nodiscard]] std::uint32_t window_heaps(const vk::PhysicalDeviceMemoryProperties& memory);
/// Budget left in each heap as the driver tells it; the heap's size where it has no VK_EXT_memory_budget.
[[nodiscard]] std::vector<std::uint64_t> heap_budgets(const vk::raii::PhysicalDevice& device, bool has_budget);

class VulkanClock;
class VulkanTimeline;

/// An open Vulkan device with one compute queue, and with the features that VulkanFeatures enables. Thread safety:
/// every member from any thread.
class VulkanContext {
 public:
  /// Of the driver, where it has them.
  struct Optional {
    bool memory_budget = false;  ///< VK_EXT_memory_budget
    bool export_fd = false;      ///< VK_KHR_external_memory_fd, and buffers can be exported as OPAQUE_FD
    /// VK_EXT_calibrated_timestamps, with CLOCK_MONOTONIC (and GPUMAP_VULKAN_CLOCK is not "bracket")
    bool calibrated_timestamps = false;
  };

  VulkanContext(VulkanInstance& instance, std::uint32_t index, std::shared_ptr<Health> health);
  ~VulkanContext();
  VulkanContext(const VulkanContext&) = delete;
  VulkanContext& operator=(const VulkanContext&) = delete;

  [[nodiscard]] const vk::raii::PhysicalDevice& physical() const noexcept { return physical_; }
  [[nodiscard]] const vk::raii::Device& device() const noexcept { return device_; }
  [[nodiscard]] std::uint32_t queue_family() const noexcept { return queue_family_; }
  [[nodiscard]] const Optional& optional() const noexcept { return optional_; }
  /// SpvCapability values that a shader may declare.
  [[nodiscard]] const std::vector<std::uint32_t>& capabilities() const noexcept { return capabilities_; }
  [[nodiscard]] const vk::PhysicalDeviceMemoryProperties& memory() const noexcept { return memory_; }
  [[nodiscard]] std::uint32_t timestamp_bits() const noexcept { return timestamp_bits_; }  ///< 0: the queue has none
  [[nodiscard]] std::uint64_t non_coherent_atom() const noexcept { return non_coherent_atom_; }
  [[nodiscard]] std::uint64_t max_allocation() const noexcept { return max_allocation_; }  ///< and of one buffer
  [[nodiscard]] Budget& window() noexcept { return window_; }  ///< what this process holds of the BAR window
  [[nodiscard]] VulkanClock& clock() noexcept { return *clock_; }
  [[nodiscard]] const Health& health() const noexcept { return *health_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// While some of it runs, memory stays allocated.
  [[nodiscard]] StuckWork& stuck_work() const noexcept { return stuck_; }

  /// vkQueueSubmit under the queue's mutex: one VkQueue serves every gpumap Queue of the process.
  void submit(const vk::SubmitInfo& info, vk::Fence fence = {});
  /// The same of work that brings `timeline` to `value`.
  void submit(const vk::SubmitInfo& info, VulkanTimeline& timeline, std::uint64_t value);

  /// As Timeline::ahead_of(): work takes its turns on the VkQueue, and none is signalled before what was submitted
  /// before it has ended.
  [[nodiscard]] WorkAhead ahead_of(const VulkanTimeline& timeline, std::uint64_t value) const;
  void remove(const VulkanTimeline& timeline) const noexcept;

  /// Destroys `semaphore` once many others have come. Where lavapipe (Mesa 22.3) has signalled what a batch signals,
  /// its thread still lets go of what the batch waited for, and would use a semaphore that is destroyed in between.
  void retire(vk::raii::Semaphore semaphore) const noexcept;

  /// Turn a failed Vulkan call into an Error; a lost device marks the health first. `what` finishes "… while".
  [[noreturn]] void fail(const vk::SystemError& error, std::string_view what) const;

  /// Budget left in one heap: the driver's figure where it gives one, else the heap's size.
  [[nodiscard]] std::uint64_t heap_free_bytes(std::uint32_t heap) const;
  [[nodiscard]] std::uint64_t window_bytes() const;         ///< size of the heaps that the CPU can map
  [[nodiscard]] std::uint64_t window_budget_bytes() const;  ///< what the driver says is left in them
  /// Budget left in the heaps that the CPU can map, less what GPUMAP_WINDOW_LIMIT takes away.
  [[nodiscard]] std::uint64_t window_free_bytes() const;

 private:
  vk::raii::PhysicalDevice physical_;
  std::shared_ptr<Health> health_;
  Optional optional_;
  std::vector<std::uint32_t> capabilities_;
  vk::PhysicalDeviceMemoryProperties memory_;
  std::uint64_t non_coherent_atom_ = 1;
  std::uint64_t max_allocation_ = 0;
  std::uint32_t queue_family_ = 0;
  std::uint32_t timestamp_bits_ = 0;
  std::string name_;
  vk::raii::Device device_{nullptr};
  std::mutex queue_mutex_;
  vk::raii::Queue queue_{nullptr};
  Budget window_{window_limit_variable};
  std::unique_ptr<VulkanClock> clock_;
  mutable StuckWork stuck_;
  struct Submitted {
    VulkanTimeline* timeline;
    std::uint64_t value;
  };
  mutable std::mutex submitted_mutex_;
  mutable std::deque<Submitted> submitted_;  ///< in order; what has ended goes with the next one
  mutable std::mutex retired_mutex_;
  mutable std::deque<vk::raii::Semaphore> retired_;
};

/// A timeline semaphore.
class VulkanTimeline final : public Timeline {
 public:
  explicit VulkanTimeline(std::shared_ptr<GpuDevice> device);
  ~VulkanTimeline() override {
    context_.remove(*this);
    context_.retire(std::move(semaphore_));
  }
  VulkanTimeline(const VulkanTimeline&) = delete;
  VulkanTimeline& operator=(const VulkanTimeline&) = delete;

  [[nodiscard]] std::uint64_t completed() override;
  [[nodiscard]] WorkAhead ahead_of(std::uint64_t value) override { return context_.ahead_of(*this, value); }
  void set_endless(std::uint64_t value) noexcept override;
  void check() override;
  void give_up(const Fence& end, const std::string& work) override;
  /// Nobody waits for `value` any more.
  [[nodiscard]] bool is_endless(std::uint64_t value) const noexcept { return value <= endless_; }

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
  std::atomic<std::uint64_t> endless_{0};  ///< up to this value
};

}  // namespace gpumap
