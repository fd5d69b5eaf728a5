// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "gpumap/export.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/latency.hpp"

namespace gpumap {

/// Who holds the memory of an input frame, and is told what the GPU does with it.
class GPUMAP_API FrameHolder {
 public:
  FrameHolder() = default;
  FrameHolder(const FrameHolder&) = delete;
  FrameHolder& operator=(const FrameHolder&) = delete;
  virtual ~FrameHolder();
  /// GPU work that reads it: it must not be written to before that is done.
  virtual void add_read_fence(const Fence& fence) = 0;
  /// A stamp of the frame's way. `at_ns` as monotonic_ns().
  virtual void stamp(Stamp stamp, std::int64_t at_ns) const noexcept = 0;
};

}  // namespace gpumap
