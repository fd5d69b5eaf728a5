// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/queue.hpp"

namespace gpumap {

/// Finds out whether a kernel writes behind the end of what it may write to: there lie bytes that no kernel may change.
/// Thread safety: one thread at a time.
class GPUMAP_API BoundsCheck {
 public:
  /// What memory that is guarded has behind what the kernel may write to. A row of pixels too many is caught, a wild
  /// pointer is not.
  static constexpr std::size_t guard_bytes = 65536;

  /// What a kernel may write to: memory up to `end`, behind which there is room for a guard.
  struct Range {
    const Mapping* memory = nullptr;
    std::size_t end = 0;
    std::size_t bytes = 0;  ///< of what ends there
    std::string what;       ///< "its output"
    std::string remedy;     ///< what to compare positions with: "frame.out's width, height and bytes"
  };

  BoundsCheck(std::shared_ptr<Device> device, Backend backend);

  /// Before and after the kernel, on its queue.
  void write_guards(Queue& queue, std::vector<Range> ranges);
  void read_guards(Queue& queue);
  /// Once all that has run. Throws Error(invalid) where a guard has changed.
  void verify(const std::string& kernel) const;

 private:
  std::shared_ptr<Device> device_;
  Backend backend_;
  std::shared_ptr<Mapping> written_;
  std::vector<std::shared_ptr<Mapping>> read_;  ///< one for each range, and for those of frames before
  std::vector<Range> ranges_;
};

}  // namespace gpumap
