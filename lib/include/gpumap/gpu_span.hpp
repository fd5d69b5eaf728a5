// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "gpumap/export.hpp"

namespace gpumap {

/// When the GPU worked on a span: CLOCK_MONOTONIC, in ns. The two come from one comparison of the clocks, so that their
/// difference is truer than either: off by what the GPU's own clock resolves (CUDA's events 0.5 us, Vulkan one period
/// of its timestamps).
struct GpuTimes {
  std::int64_t began_ns = 0;  ///< all that was asked for before the span was done, and the GPU came to the span
  std::int64_t ended_ns = 0;  ///< all that was asked for up to the end of the span was done
  /// Neither is further off than this. Not assumed but measured: how closely the GPU's clock could be compared with the
  /// CPU's, and how far their rates may have moved since (10 ppm, or more where more was seen). A few us as a rule.
  std::int64_t error_ns = 0;
};

/// A stretch of a queue's work, from Queue::begin_span() to Queue::end_span().
/// Ownership: shared; it may outlive its queue. Destroy it, or read its times, and the queue can use its events again.
/// Thread safety: every member from any thread.
class GPUMAP_API GpuSpan {
 public:
  /// As many spans of one queue may be neither read nor destroyed; begin_span() gives none beyond that.
  static constexpr std::size_t max_per_queue = 1024;

  GpuSpan() = default;
  GpuSpan(const GpuSpan&) = delete;
  GpuSpan& operator=(const GpuSpan&) = delete;
  virtual ~GpuSpan() = default;

  /// Empty until the span was ended and submitted and the GPU is done with it (Vulkan: with all of its submission), and
  /// while the clocks could not be compared even once; empty for good where that never comes. Once told, the times
  /// stay as they are.
  /// Never waits for the GPU's work. It does renew the comparison of the clocks where the last is older than
  /// GpuSpan::comparison_ns: some 20 us of the caller's time, 1 ms at most where the GPU is too busy to answer (the
  /// older comparison then serves, with a larger error). A thread that launches frames leaves the reading to another.
  /// Throws Error(device_lost) where the GPU's context was lost before the times were told.
  [[nodiscard]] virtual std::optional<GpuTimes> times() = 0;

  static constexpr std::int64_t comparison_ns = 250'000'000;
};

}  // namespace gpumap
