// SPDX-License-Identifier: MIT
#include "device/vulkan_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "device/vulkan_clock.hpp"
#include "device/vulkan_features.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace {

/// A family that computes and does no graphics has its own hardware queues; any that computes will do.
std::uint32_t find_compute_family(const vk::raii::PhysicalDevice& physical) {
  const auto families = physical.getQueueFamilyProperties();
  constexpr auto none = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t found = none;
  for (std::uint32_t family = 0; family < families.size(); ++family) {
    const auto flags = families[family].queueFlags;
    if (!(flags & vk::QueueFlagBits::eCompute)) continue;
    if (!(flags & vk::QueueFlagBits::eGraphics)) return family;
    if (found == none) found = family;
  }
  if (found == none) {
    throw Error(ErrorCode::not_supported, "the Vulkan driver has no queue that computes: choose another device");
  }
  return found;
}

bool can_export(const vk::raii::PhysicalDevice& physical) {
  constexpr auto usage = vk::BufferUsageFlagBits::eStorageBuffer | vk::BufferUsageFlagBits::eTransferSrc |
                         vk::BufferUsageFlagBits::eTransferDst | vk::BufferUsageFlagBits::eShaderDeviceAddress;
  const auto properties =
      physical.getExternalBufferProperties({{}, usage, vk::ExternalMemoryHandleTypeFlagBits::eOpaqueFd});
  return static_cast<bool>(properties.externalMemoryProperties.externalMemoryFeatures &
                           vk::ExternalMemoryFeatureFlagBits::eExportable);
}

bool can_calibrate(const vk::raii::PhysicalDevice& physical) {
  const char* clock = std::getenv("GPUMAP_VULKAN_CLOCK");
  if (clock != nullptr && std::string_view(clock) == "bracket") return false;
  if (!has_extension(physical, VK_EXT_CALIBRATED_TIMESTAMPS_EXTENSION_NAME)) return false;
  const auto domains = physical.getCalibrateableTimeDomainsEXT();
  return std::find(domains.begin(), domains.end(), vk::TimeDomainEXT::eDevice) != domains.end() &&
         std::find(domains.begin(), domains.end(), vk::TimeDomainEXT::eClockMonotonic) != domains.end();
}

std::uint64_t find_max_allocation(const vk::raii::PhysicalDevice& physical) {
  if (physical.getProperties().apiVersion < VK_API_VERSION_1_3) {
    return physical.getProperties2<vk::PhysicalDeviceProperties2, vk::PhysicalDeviceMaintenance3Properties>()
        .get<vk::PhysicalDeviceMaintenance3Properties>()
        .maxMemoryAllocationSize;
  }
  const auto chain = physical.getProperties2<vk::PhysicalDeviceProperties2, vk::PhysicalDeviceMaintenance3Properties,
                                             vk::PhysicalDeviceMaintenance4Properties>();
  return std::min<std::uint64_t>(chain.get<vk::PhysicalDeviceMaintenance3Properties>().maxMemoryAllocationSize,
                                 chain.get<vk::PhysicalDeviceMaintenance4Properties>().maxBufferSize);
}

}  // namespace

VulkanContext::VulkanContext(VulkanInstance& instance, std::uint32_t index, std::shared_ptr<Health> health)
    : physical_(instance.devices().at(index)), health_(std::move(health)), memory_(physical_.getMemoryProperties()) {
  const auto properties = physical_.getProperties();
  name_ = properties.deviceName.data();
  const std::string missing = missing_features(physical_);
  if (!missing.empty()) {
    throw Error(ErrorCode::not_supported,
                fmt::format("the Vulkan driver of {} lacks {}: update the driver", name_, missing));
  }
  non_coherent_atom_ = std::max<std::uint64_t>(1, properties.limits.nonCoherentAtomSize);
  max_allocation_ = find_max_allocation(physical_);
  queue_family_ = find_compute_family(physical_);
  timestamp_bits_ = physical_.getQueueFamilyProperties().at(queue_family_).timestampValidBits;

  std::vector<const char*> extensions;
  optional_.memory_budget = has_extension(physical_, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (optional_.memory_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  optional_.export_fd = has_extension(physical_, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME) && can_export(physical_);
  if (optional_.export_fd) extensions.push_back(VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
  optional_.calibrated_timestamps = can_calibrate(physical_);
  if (optional_.calibrated_timestamps) extensions.push_back(VK_EXT_CALIBRATED_TIMESTAMPS_EXTENSION_NAME);

  const VulkanFeatures features(physical_);
  extensions.insert(extensions.end(), features.extensions().begin(), features.extensions().end());
  capabilities_ = features.capabilities();

  constexpr float priority = 1.0F;
  const vk::DeviceQueueCreateInfo queue({}, queue_family_, 1, &priority);
  vk::DeviceCreateInfo info;
  info.setPNext(&features.chain());
  info.setQueueCreateInfos(queue);
  info.setPEnabledExtensionNames(extensions);
  try {
    device_ = vk::raii::Device(physical_, info);
    queue_ = vk::raii::Queue(device_, queue_family_, 0);
    clock_ = std::make_unique<VulkanClock>(*this);
  } catch (const vk::SystemError& error) {
    fail(error, "opening the device");
  }
}

VulkanContext::~VulkanContext() = default;

void VulkanContext::submit(const vk::SubmitInfo& info, vk::Fence fence) {
  health_->check();
  const std::lock_guard lock(queue_mutex_);
  queue_.submit(info, fence);
}

void VulkanContext::retire(vk::raii::Semaphore semaphore) const noexcept {
  constexpr std::size_t most = 256;
  const std::lock_guard lock(retired_mutex_);
  try {
    retired_.push_back(std::move(semaphore));
  } catch (const std::bad_alloc&) {
    return;  // it goes now
  }
  if (retired_.size() > most) retired_.pop_front();
}

void VulkanContext::fail(const vk::SystemError& error, std::string_view what) const {
  const auto result = static_cast<vk::Result>(error.code().value());
  switch (result) {
    case vk::Result::eErrorDeviceLost:
      health_->mark_lost(fmt::format(
          "the Vulkan device of {} was lost while {} (VK_ERROR_DEVICE_LOST): restart the process", name_, what));
      throw Error(ErrorCode::device_lost, health_->reason());
    case vk::Result::eErrorOutOfHostMemory:
    case vk::Result::eErrorOutOfDeviceMemory:
    case vk::Result::eErrorTooManyObjects:
    case vk::Result::eErrorMemoryMapFailed:
      throw Error(ErrorCode::no_memory,
                  fmt::format("{}: Vulkan reported {} while {}", name_, vk::to_string(result), what),
                  "free memory on the device");
    default:
      throw Error(ErrorCode::not_supported, fmt::format("{}: Vulkan reported {} while {}: update the driver", name_,
                                                        vk::to_string(result), what));
  }
}

std::uint64_t VulkanContext::heap_free_bytes(std::uint32_t heap) const {
  return heap_budgets(physical_, optional_.memory_budget).at(heap);
}

std::uint64_t VulkanContext::window_bytes() const {
  const std::uint32_t heaps = window_heaps(memory_);
  std::uint64_t total = 0;
  for (std::uint32_t heap = 0; heap < memory_.memoryHeapCount; ++heap) {
    if ((heaps >> heap & 1U) != 0) total += memory_.memoryHeaps[heap].size;
  }
  return total;
}

std::uint64_t VulkanContext::window_budget_bytes() const {
  const std::uint32_t heaps = window_heaps(memory_);
  const auto free = heap_budgets(physical_, optional_.memory_budget);
  std::uint64_t total = 0;
  for (std::uint32_t heap = 0; heap < free.size(); ++heap) {
    if ((heaps >> heap & 1U) != 0) total += free[heap];
  }
  return total;
}

std::uint64_t VulkanContext::window_free_bytes() const {
  return window_.free_bytes(window_bytes(), window_budget_bytes());
}

}  // namespace gpumap
