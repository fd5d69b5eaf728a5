// SPDX-License-Identifier: MIT
#include "device/vulkan_timeline.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace gpumap {

VulkanTimeline::VulkanTimeline(std::shared_ptr<GpuDevice> device)
    : device_(std::move(device)), context_(*device_->vulkan()) {
  try {
    const vk::SemaphoreTypeCreateInfo type(vk::SemaphoreType::eTimeline, 0);
    semaphore_ = vk::raii::Semaphore(context_.device(), vk::SemaphoreCreateInfo({}, &type));
  } catch (const vk::SystemError& error) {
    context_.fail(error, "creating a timeline");
  }
}

std::uint64_t VulkanTimeline::completed() {
  // A lost device may answer anything, even that all is done: keep to what was seen while it was well.
  if (context_.health().lost()) return seen_.load(std::memory_order_acquire);
  try {
    const std::uint64_t value = semaphore_.getCounterValue();
    seen_.store(value, std::memory_order_release);
    return value;
  } catch (const vk::SystemError&) {
    return seen_.load(std::memory_order_acquire);  // check() asks again and says what happened
  }
}

void VulkanTimeline::check() {
  context_.health().check();
  try {
    static_cast<void>(semaphore_.getCounterValue());
  } catch (const vk::SystemError& error) {
    context_.fail(error, "running kernels");
  }
}

bool VulkanTimeline::drain(std::uint64_t value, std::chrono::nanoseconds longest) noexcept {
  constexpr std::chrono::nanoseconds look_again = std::chrono::milliseconds(100);
  const auto until = Clock::now() + longest;
  try {
    const vk::Semaphore semaphore = *semaphore_;
    const vk::SemaphoreWaitInfo info({}, semaphore, value);
    while (!context_.health().lost()) {
      const auto left = std::max(until - Clock::now(), Clock::duration::zero());
      const auto wait = static_cast<std::uint64_t>(std::min<std::chrono::nanoseconds>(left, look_again).count());
      if (context_.device().waitSemaphores(info, wait) == vk::Result::eSuccess) return true;
      if (left == Clock::duration::zero()) return false;
    }
  } catch (const std::exception&) {
    // The device is lost: nothing runs on it any more.
  }
  return true;
}

}  // namespace gpumap
