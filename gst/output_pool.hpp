// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "gpumap/device.hpp"
#include "memory.hpp"

namespace gpumap::gst {

/// Blocks of memory for a kernel's results, used again once every reader is done. Blocks that are out when the pool
/// goes keep what they need. Thread safety: every member from any thread.
class OutputPool : public std::enable_shared_from_this<OutputPool> {
 public:
  OutputPool(std::shared_ptr<Device> device, Backend backend, Placement placement, std::size_t bytes)
      : device_(std::move(device)), backend_(backend), placement_(placement), bytes_(bytes) {}

  /// A block that no one reads any more: one that came back, or a new one. Throws Error(no_memory).
  [[nodiscard]] OutputBlock take();
  void give_back(OutputBlock&& block);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::shared_ptr<Device> device_;
  Backend backend_;
  Placement placement_;
  std::size_t bytes_;
  std::mutex mutex_;
  std::vector<OutputBlock> free_;
};

}  // namespace gpumap::gst
