// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "gpumap/fence.hpp"
#include "gpumap/gpu_span.hpp"

namespace gpumap {

/// Of a span that the GPU is done with, or will be. The clocks compare only when the GPU's side answers within a
/// millisecond, which on a machine with more to do than cores may take them many tries.
inline std::optional<GpuTimes> told(GpuSpan& span) {
  const Deadline deadline = Clock::now() + std::chrono::seconds(60);
  std::optional<GpuTimes> times = span.times();
  for (; !times && Clock::now() < deadline; times = span.times()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return times;
}

/// The smallest error of spans from `make`, which has a minute to come below `enough_ns`: while others use this
/// machine, a comparison of the clocks may be wide or its pair far from the span.
inline std::int64_t smallest_error_ns(std::int64_t enough_ns, const std::function<std::shared_ptr<GpuSpan>()>& make) {
  std::int64_t smallest = INT64_MAX;
  for (const Deadline deadline = Clock::now() + std::chrono::minutes(1); Clock::now() < deadline;) {
    const auto times = told(*make());
    if (!times) break;
    smallest = std::min(smallest, times->error_ns);
    if (smallest < enough_ns) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return smallest;
}

}  // namespace gpumap
