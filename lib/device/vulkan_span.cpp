// SPDX-License-Identifier: MIT
#include "device/vulkan_span.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/latency.hpp"

namespace gpumap {

VulkanClock::~VulkanClock() {
  try {
    constexpr std::uint64_t patience_ns = std::chrono::nanoseconds(patience_at_end).count();
    if (!unfinished_ || context_.health().lost()) return;
    if (context_.device().waitForFences(*fence_, VK_TRUE, patience_ns) == vk::Result::eSuccess) return;
  } catch (const std::exception&) {
    return;  // lost: nothing of it runs any more
  }
  // The GPU may still come to it: it stays for good.
  static_cast<void>(fence_.release());
  static_cast<void>(commands_.release());
  static_cast<void>(query_.release());
  static_cast<void>(pool_.release());
}

void VulkanClock::start() {
  if (due_ns_.load(std::memory_order_relaxed) == 0) compare_if_due();
}

std::optional<GpuTimes> VulkanClock::times(std::uint64_t began_ticks, std::uint64_t ended_ticks) {
  compare_if_due();
  const std::lock_guard lock(mutex_);
  if (comparison_.pairs().empty()) return std::nullopt;
  const auto first = comparison_.read(gpu_ns(began_ticks));
  const auto last = comparison_.read(gpu_ns(ended_ticks), first.pair);
  return GpuTimes{.began_ns = first.cpu_ns,
                  .ended_ns = last.cpu_ns,
                  .error_ns = std::max(first.error_ns, last.error_ns) + static_cast<std::int64_t>(period_ns_) + 1};
}

void VulkanClock::compare_if_due() {
  if (monotonic_ns() < due_ns_.load(std::memory_order_relaxed)) return;
  const std::unique_lock lock(comparing_, std::try_to_lock);
  if (!lock) return;  // another thread is at it
  // Should it throw, not every reader shall run into the same.
  due_ns_.store(monotonic_ns() + GpuSpan::comparison_ns, std::memory_order_relaxed);
  const std::int64_t deadline_ns = monotonic_ns() + comparison_limit_ns;
  std::optional<Sample> best;
  for (int round = 0; round < comparison_rounds && monotonic_ns() < deadline_ns; ++round) {
    const auto sample = context_.optional().calibrated_timestamps ? ask_driver() : watch(deadline_ns);
    if (!sample) break;
    if (!best || sample->error_ns < best->error_ns) best = sample;
    if (best->error_ns <= close_enough_ns) break;
  }
  if (best) return add(*best);
  due_ns_.store(monotonic_ns() + comparison_retry_ns, std::memory_order_relaxed);
}

std::optional<VulkanClock::Sample> VulkanClock::ask_driver() const {
  const std::array<vk::CalibratedTimestampInfoEXT, 2> clocks{
      vk::CalibratedTimestampInfoEXT(vk::TimeDomainEXT::eDevice),
      vk::CalibratedTimestampInfoEXT(vk::TimeDomainEXT::eClockMonotonic)};
  const auto [counts, deviation] = context_.device().getCalibratedTimestampsEXT(clocks);
  return Sample{.ticks = counts[0],
                .cpu_ns = static_cast<std::int64_t>(counts[1]),
                .error_ns = static_cast<std::int64_t>(deviation)};
}

std::optional<VulkanClock::Sample> VulkanClock::watch(std::int64_t deadline_ns) {
  prepare();
  if (!is_idle()) return std::nullopt;
  context_.device().resetFences(*fence_);
  const vk::CommandBuffer commands = *commands_;
  const std::int64_t before_ns = monotonic_ns();
  context_.submit(vk::SubmitInfo({}, {}, commands, {}), *fence_);
  unfinished_ = true;
  while (!is_idle()) {
    if (monotonic_ns() > deadline_ns) return std::nullopt;
  }
  const std::int64_t after_ns = monotonic_ns();
  const auto [result, ticks] =
      query_.getResult<std::uint64_t>(0, 1, sizeof(std::uint64_t), vk::QueryResultFlagBits::e64);
  if (result != vk::Result::eSuccess) return std::nullopt;
  const std::int64_t half_ns = (after_ns - before_ns) / 2;
  return Sample{.ticks = ticks, .cpu_ns = before_ns + half_ns, .error_ns = half_ns + 1};
}

void VulkanClock::prepare() {
  if (*fence_) return;
  const auto& device = context_.device();
  pool_ = vk::raii::CommandPool(device, vk::CommandPoolCreateInfo({}, context_.queue_family()));
  query_ = vk::raii::QueryPool(device, vk::QueryPoolCreateInfo({}, vk::QueryType::eTimestamp, 1));
  const vk::CommandBufferAllocateInfo info(*pool_, vk::CommandBufferLevel::ePrimary, 1);
  commands_ = std::move(vk::raii::CommandBuffers(device, info).front());
  commands_.begin(vk::CommandBufferBeginInfo());
  commands_.resetQueryPool(*query_, 0, 1);
  commands_.writeTimestamp(vk::PipelineStageFlagBits::eBottomOfPipe, *query_, 0);
  commands_.end();
  fence_ = vk::raii::Fence(device, vk::FenceCreateInfo());
}

/// False while the GPU is still to come to a round that was given up.
bool VulkanClock::is_idle() {
  if (unfinished_) unfinished_ = fence_.getStatus() == vk::Result::eNotReady;
  return !unfinished_;
}

void VulkanClock::add(const Sample& sample) {
  const std::lock_guard lock(mutex_);
  const std::int64_t at_ns = comparison_.pairs().empty() ? 0 : gpu_ns(sample.ticks);
  const auto resolution_ns = static_cast<std::int64_t>(period_ns_) + 1;
  static_cast<void>(
      comparison_.add({.gpu_ns = at_ns, .cpu_ns = sample.cpu_ns, .error_ns = sample.error_ns + resolution_ns}));
  last_ticks_ = sample.ticks;
}

/// On the scale of the comparison. The ticks are less than half the range of the counter from the last pair's; the
/// narrowest that Vulkan allows, 36 bits, leaves half a minute for a clock of 1 ns and more for coarser ones.
std::int64_t VulkanClock::gpu_ns(std::uint64_t ticks) const {
  const std::int64_t ahead = ticks_between(last_ticks_, ticks, context_.timestamp_bits());
  return comparison_.pairs().back().gpu_ns + std::llround(static_cast<double>(ahead) * period_ns_);
}

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
