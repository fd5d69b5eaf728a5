// SPDX-License-Identifier: MIT
#include <utility>

#include "gpumap/latency.hpp"

namespace gpumap {

FrameTrace::FrameTrace(std::shared_ptr<LatencyLog> log, const FrameRecord& begun)
    : log_(std::move(log)), begun_(begun) {
  for (std::size_t i = 0; i < later_.size(); ++i) {
    later_[i].store(begun_.at_ns[first_later + i], std::memory_order_relaxed);
  }
}

FrameTrace::~FrameTrace() {
  try {
    log_->add(record(), std::move(spans_));
  } catch (const std::exception&) {
    // Out of memory: a frame less in the figures.
  }
}

void FrameTrace::stamp(Stamp stamp, std::int64_t at_ns) noexcept {
  const auto index = static_cast<std::size_t>(stamp);
  if (index < first_later || index >= stamp_count) return;
  auto& at = later_[index - first_later];
  std::int64_t none = 0;
  if (stamp == Stamp::launched) {
    at.compare_exchange_strong(none, at_ns, std::memory_order_relaxed);
  } else {
    at.store(at_ns, std::memory_order_relaxed);
  }
}

void FrameTrace::add_span(std::shared_ptr<GpuSpan> span) {
  if (!span) return;
  const std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
}

FrameRecord FrameTrace::record() const {
  FrameRecord made = begun_;
  for (std::size_t i = 0; i < later_.size(); ++i) {
    made.at_ns[first_later + i] = later_[i].load(std::memory_order_relaxed);
  }
  return made;
}

}  // namespace gpumap
