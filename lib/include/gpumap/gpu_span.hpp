// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

namespace gpumap {

/// When the GPU was at a stretch of its work, on CLOCK_MONOTONIC.
struct GpuTimes {
  std::int64_t began_ns = 0;
  std::int64_t ended_ns = 0;
  std::int64_t error_ns = 0;  ///< neither is further off than this: the measured bound of comparing the clocks
};

/// A stretch of a queue's work, see Queue::begin_span. Thread safety: every member from any thread.
class GpuSpan {
 public:
  GpuSpan() = default;
  GpuSpan(const GpuSpan&) = delete;
  GpuSpan& operator=(const GpuSpan&) = delete;
  virtual ~GpuSpan() = default;

  /// Empty until the GPU has passed its end. Never blocks.
  [[nodiscard]] virtual std::optional<GpuTimes> times() = 0;
};

}  // namespace gpumap
