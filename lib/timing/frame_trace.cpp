// SPDX-License-Identifier: MIT
#include <utility>

#include "gpumap/latency.hpp"

namespace gpumap {
namespace {

constexpr auto first_later = static_cast<std::size_t>(Stamp::launched);

}  // namespace

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
  const auto index = static_cast<std::size_t>(stamp);
  if (index < first_later || index >= stamp_count) return;
  const std::atomic_ref at(record_.at_ns[index]);
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
  FrameRecord made;
  made.sequence = record_.sequence;
  made.bytes = record_.bytes;
  for (std::size_t i = 0; i < first_later; ++i) made.at_ns[i] = record_.at_ns[i];
  for (std::size_t i = first_later; i < stamp_count; ++i) {
    made.at_ns[i] = std::atomic_ref(record_.at_ns[i]).load(std::memory_order_relaxed);
  }
  made.due_ns = record_.due_ns;  // what the GPU says, and its error, is not known here
  made.captured_ns = record_.captured_ns;
  return made;
}

}  // namespace gpumap
