// SPDX-License-Identifier: MIT
#include "gpumap/queue.hpp"

#include <chrono>

#include "gpumap/error.hpp"

namespace gpumap {

QueueCancelled::~QueueCancelled() = default;

const char* QueueCancelled::what() const noexcept {
  return "cancelled";
}

bool Queue::waited_for(const Fence& fence) const {
  if (fence.signalled()) return true;
  return wait_ ? wait_(fence) : fence.wait_for(std::chrono::minutes(1)) == WaitResult::ready;
}

void Queue::finish() {
  if (!waited_for(submit())) throw QueueCancelled();
}

void Queue::end_span(GpuSpan& /*span*/) {
  throw Error(ErrorCode::invalid, "end_span: the span was begun on another queue: end it there");
}

}  // namespace gpumap
