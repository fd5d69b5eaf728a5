// SPDX-License-Identifier: MIT
// Heavy: see vulkan_device.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/vulkan_device.hpp"
#include "device/vulkan_timeline.hpp"
#include "gpumap/gpu_span.hpp"

namespace gpumap {

/// The spans of one Vulkan queue: two timestamps each in one query pool, used again once a span was read or is gone.
/// Ownership: shared by the queue and its spans. Thread safety: begin() and end() in the queue's thread; spans give
/// their queries back from any.
class VulkanSpans : public std::enable_shared_from_this<VulkanSpans> {
 public:
  /// Throws vk::SystemError, as begin() and end().
  VulkanSpans(std::shared_ptr<GpuDevice> device, std::shared_ptr<VulkanTimeline> timeline);

  /// Null where there is no telling; reason() says why. Asks for `commands` only where there is. `value`: what the
  /// queue's timeline reaches once the commands are done.
  [[nodiscard]] std::shared_ptr<GpuSpan> begin(const std::function<const vk::raii::CommandBuffer&()>& commands,
                                               std::uint64_t value);
  /// Throws Error(invalid) for a span that is not of these or has ended.
  void check_end(const GpuSpan& span) const;
  /// A span that was checked.
  void end(GpuSpan& span, const vk::raii::CommandBuffer& commands, std::uint64_t value);
  /// The commands of this value will never be done, whatever the timeline reaches: spans that have a part in them have
  /// no times.
  void lose(std::uint64_t value);
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  friend class VulkanSpan;
  void give_back(std::uint32_t first) noexcept;
  [[nodiscard]] bool lost(std::uint64_t value);

  const std::shared_ptr<GpuDevice> device_;
  VulkanContext& context_;
  const std::shared_ptr<VulkanTimeline> timeline_;
  vk::raii::QueryPool queries_{nullptr};  // null where the queue has no timestamps
  std::string reason_;

  std::mutex mutex_;
  std::vector<std::uint32_t> idle_;  // the first of two queries
  std::vector<std::uint64_t> lost_;
};

}  // namespace gpumap
