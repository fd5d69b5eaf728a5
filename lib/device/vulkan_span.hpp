// SPDX-License-Identifier: MIT
// Heavy: see vulkan_device.hpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/vulkan_device.hpp"
#include "gpumap/gpu_span.hpp"
#include "timing/clock_comparison.hpp"

namespace gpumap {

/// When on CLOCK_MONOTONIC a timestamp of one GPU was taken. The driver tells what both clocks show where it can
/// (VK_EXT_calibrated_timestamps); else a timestamp is submitted now and then while the CPU watches, which on a busy
/// GPU is as coarse as the wait for its turn.
/// Costs nothing until start(). Thread safety: every member from any thread.
class VulkanClock {
 public:
  explicit VulkanClock(VulkanContext& context)
      : context_(context), period_ns_(context.physical().getProperties().limits.timestampPeriod) {}
  ~VulkanClock();
  VulkanClock(const VulkanClock&) = delete;
  VulkanClock& operator=(const VulkanClock&) = delete;

  /// Compare for the first time; later calls cost a load. Throws vk::SystemError and Error(device_lost), as times().
  void start();
  /// Of two timestamps in the order in which they were taken. Empty while the clocks could not be compared.
  [[nodiscard]] std::optional<GpuTimes> times(std::uint64_t began_ticks, std::uint64_t ended_ticks);

 private:
  struct Sample {
    std::uint64_t ticks = 0;
    std::int64_t cpu_ns = 0;
    std::int64_t error_ns = 0;
  };

  void compare_if_due();
  [[nodiscard]] std::optional<Sample> ask_driver() const;
  [[nodiscard]] std::optional<Sample> watch(std::int64_t deadline_ns);
  void prepare();
  [[nodiscard]] bool is_idle();
  void add(const Sample& sample);
  [[nodiscard]] std::int64_t gpu_ns(std::uint64_t ticks) const;

  VulkanContext& context_;
  const double period_ns_;               // of a tick
  std::atomic<std::int64_t> due_ns_{0};  // when to compare next; 0: never did

  std::mutex comparing_;     // held while a thread compares; nobody waits for it
  bool unfinished_ = false;  // the GPU had not come to the timestamp when its round was given up
  vk::raii::CommandPool pool_{nullptr};
  vk::raii::QueryPool query_{nullptr};
  vk::raii::CommandBuffer commands_{nullptr};
  vk::raii::Fence fence_{nullptr};

  std::mutex mutex_;              // of what follows; held for a us
  std::uint64_t last_ticks_ = 0;  // of the last pair
  ClockComparison comparison_;
};

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
