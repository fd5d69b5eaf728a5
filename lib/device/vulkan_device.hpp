// SPDX-License-Identifier: MIT
// Heavy: vulkan_raii.hpp takes many seconds to compile. For the files in gpumap_vulkan_sources and no other header.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>
#include <vulkan/vulkan_raii.hpp>

#include "device/budget.hpp"
#include "device/health.hpp"
#include "device/vulkan_instance.hpp"

namespace gpumap {

class VulkanClock;

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

  /// Destroys `semaphore` once many others have come. Where lavapipe (Mesa 22.3) has signalled what a batch signals,
  /// its thread still lets go of what the batch waited for, and would use a semaphore that is destroyed in between.
  void retire(vk::raii::Semaphore semaphore) const noexcept;

  /// Turn a failed Vulkan call into an Error; a lost device marks the health first. `what` finishes "… while".
  [[noreturn]] void fail(const vk::SystemError& error, std::string_view what) const;

  /// Throws Error(no_resources) where this process has no file descriptor left, of which drivers say that memory is
  /// short. `what` as above.
  void check_descriptors(std::string_view what) const;

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
  mutable std::mutex retired_mutex_;
  mutable std::deque<vk::raii::Semaphore> retired_;
};

}  // namespace gpumap
