// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/queue.hpp"

namespace gpumap {

/// Finds out whether a kernel writes behind the end of its output: there lie bytes that no kernel may change. Thread
/// safety: one thread at a time.
class GPUMAP_API BoundsCheck {
 public:
  /// What an output block has more than the output takes. A row of pixels too many is caught, a wild pointer is not.
  static constexpr std::size_t guard_bytes = 65536;

  BoundsCheck(Device& device, Backend backend);

  /// Before and after the kernel, on its queue; `block` has room for `bytes` and the guard.
  void write_guard(Queue& queue, const Mapping& block, std::size_t bytes);
  void read_guard(Queue& queue, const Mapping& block, std::size_t bytes);
  /// Once all that has run. Throws Error(invalid) where the guard has changed.
  void verify(const std::string& kernel, std::size_t bytes) const;

 private:
  std::shared_ptr<Mapping> written_, read_;
};

}  // namespace gpumap
