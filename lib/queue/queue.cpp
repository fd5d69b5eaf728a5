// SPDX-License-Identifier: MIT
#include "gpumap/queue.hpp"

#include <fmt/format.h>

#include <chrono>

#include "gpumap/error.hpp"

namespace gpumap {
namespace {

constexpr int longest_wait_s = 60;

}  // namespace

QueueCancelled::~QueueCancelled() = default;

const char* QueueCancelled::what() const noexcept {
  return "cancelled";
}

bool Queue::waited_for(const Fence& fence) const {
  if (fence.signalled()) return true;
  if (wait_) return wait_(fence);
  if (fence.wait_for(std::chrono::seconds(longest_wait_s)) == WaitResult::ready) return true;
  throw Error(ErrorCode::io,
              fmt::format("the work of a queue has not ended for {} s, and more was asked of it: a kernel "
                          "on it does not end: end that one",
                          longest_wait_s));
}

void Queue::finish() {
  if (!waited_for(submit())) throw QueueCancelled();
}

void Queue::end_span(GpuSpan& /*span*/) {
  throw Error(ErrorCode::invalid, "end_span: the span was begun on another queue: end it there");
}

}  // namespace gpumap
