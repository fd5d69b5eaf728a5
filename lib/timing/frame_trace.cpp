// SPDX-License-Identifier: MIT
#include <utility>

#include "gpumap/latency.hpp"

namespace gpumap {

FrameTrace::FrameTrace(std::shared_ptr<LatencyLog> log, const FrameRecord& begun)
    : log_(std::move(log)), record_(begun) {}

FrameTrace::~FrameTrace() {
  try {
    log_->add(record_, std::move(spans_));
  } catch (const std::exception&) {
    // Out of memory: a frame less in the figures.
  }
}

void FrameTrace::stamp(Stamp stamp, std::int64_t at_ns) noexcept {
  const std::lock_guard lock(mutex_);
  std::int64_t& at = record_.at_ns[static_cast<std::size_t>(stamp)];
  if (stamp != Stamp::launched || at == 0) at = at_ns;
}

void FrameTrace::add_span(std::shared_ptr<GpuSpan> span) {
  if (!span) return;
  const std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
}

FrameRecord FrameTrace::record() const {
  const std::lock_guard lock(mutex_);
  return record_;
}

}  // namespace gpumap
