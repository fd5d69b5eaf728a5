// SPDX-License-Identifier: MIT
#include "device/vulkan_span.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "device/vulkan_clock.hpp"
#include "gpumap/error.hpp"

namespace gpumap {

class VulkanSpan final : public GpuSpan {
 public:
  VulkanSpan(std::shared_ptr<VulkanSpans> spans, std::uint32_t first, std::uint64_t begun)
      : spans_(std::move(spans)), first_(first), begun_(begun) {}
  ~VulkanSpan() override {
    if (!times_) spans_->give_back(first_);
  }

  [[nodiscard]] std::optional<GpuTimes> times() override {
    const std::lock_guard lock(mutex_);
    if (times_ || value_ == 0) return times_;
    spans_->device_->check_alive();
    // Not the queries' own availability: until the GPU comes to their reset they hold an earlier span's times.
    if (spans_->timeline_->completed() < value_) return std::nullopt;
    if (spans_->lost(begun_) || spans_->lost(value_)) return std::nullopt;
    VulkanContext& context = spans_->context_;
    try {
      using Ticks = std::array<std::uint64_t, 2>;
      const auto [result, ticks] =
          spans_->queries_.getResult<Ticks>(first_, 2, sizeof(std::uint64_t), vk::QueryResultFlagBits::e64);
      if (result != vk::Result::eSuccess) return std::nullopt;
      times_ = context.clock().times(ticks[0], ticks[1]);
    } catch (const vk::SystemError& error) {
      context.fail(error, "reading timestamps");
    }
    if (times_) spans_->give_back(first_);
    return times_;
  }

  [[nodiscard]] bool is_of(const VulkanSpans& spans) const noexcept { return spans_.get() == &spans; }
  /// In the thread of begin() and end().
  [[nodiscard]] bool has_ended() const noexcept { return value_ != 0; }
  [[nodiscard]] std::uint32_t first() const noexcept { return first_; }
  [[nodiscard]] std::uint64_t begun() const noexcept { return begun_; }
  void set_ended(std::uint64_t value) {
    const std::lock_guard lock(mutex_);
    value_ = value;
  }

 private:
  const std::shared_ptr<VulkanSpans> spans_;
  const std::uint32_t first_;  // its queries are the span's own until it has its times
  const std::uint64_t begun_;  // a value of the queue's timeline
  std::mutex mutex_;
  std::uint64_t value_ = 0;  // of the queue's timeline, when done; 0: not ended
  std::optional<GpuTimes> times_;
};

VulkanSpans::VulkanSpans(std::shared_ptr<GpuDevice> device, std::shared_ptr<VulkanTimeline> timeline)
    : device_(std::move(device)), context_(*device_->vulkan()), timeline_(std::move(timeline)) {
  if (context_.timestamp_bits() == 0) return;
  constexpr std::uint32_t count = 2 * GpuSpan::max_per_queue;
  queries_ = vk::raii::QueryPool(context_.device(), vk::QueryPoolCreateInfo({}, vk::QueryType::eTimestamp, count));
  idle_.reserve(GpuSpan::max_per_queue);
  for (std::uint32_t first = 0; first < count; first += 2) idle_.push_back(first);
}

std::shared_ptr<GpuSpan> VulkanSpans::begin(const std::function<const vk::raii::CommandBuffer&()>& commands,
                                            std::uint64_t value) {
  reason_.clear();
  if (!*queries_) {
    reason_ = fmt::format("the compute queue of {} takes no timestamps (timestampValidBits is 0): use another device",
                          context_.name());
    return nullptr;
  }
  context_.clock().start();
  std::uint32_t first = 0;
  {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) {
      reason_ = fmt::format("{} spans of this queue are held unread: read their times or let go of them",
                            GpuSpan::max_per_queue);
      return nullptr;
    }
    first = idle_.back();
    idle_.pop_back();
  }
  auto span = std::make_shared<VulkanSpan>(shared_from_this(), first, value);
  const vk::raii::CommandBuffer& buffer = commands();
  // A reset comes after what earlier commands do to the same queries: a span may go before the GPU came to its end.
  buffer.resetQueryPool(*queries_, first, 2);
  // The bottom of the pipe: once all commands before are done. What comes after is kept back by its own barrier, so
  // that both start from the same point.
  buffer.writeTimestamp(vk::PipelineStageFlagBits::eBottomOfPipe, *queries_, first);
  return span;
}

void VulkanSpans::check_end(const GpuSpan& span) const {
  const auto* const own = dynamic_cast<const VulkanSpan*>(&span);
  if (own == nullptr || !own->is_of(*this)) {
    throw Error(ErrorCode::invalid, "end_span: the span was begun on another queue: end it there");
  }
  if (own->has_ended()) throw Error(ErrorCode::invalid, "end_span: the span has ended: begin a new one");
}

void VulkanSpans::end(GpuSpan& span, const vk::raii::CommandBuffer& commands, std::uint64_t value) {
  auto& own = dynamic_cast<VulkanSpan&>(span);
  // What would have made the query ready went with its commands.
  if (!lost(own.begun())) {
    commands.writeTimestamp(vk::PipelineStageFlagBits::eBottomOfPipe, *queries_, own.first() + 1);
  }
  own.set_ended(value);
}

void VulkanSpans::lose(std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  lost_.push_back(value);
}

bool VulkanSpans::lost(std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  return std::find(lost_.begin(), lost_.end(), value) != lost_.end();
}

void VulkanSpans::give_back(std::uint32_t first) noexcept {
  const std::lock_guard lock(mutex_);
  idle_.push_back(first);
}

}  // namespace gpumap
