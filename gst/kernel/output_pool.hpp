// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "gpumap/device.hpp"
#include "gst/memory/memory.hpp"

namespace gpumap::gst {

/// How long destructors wait for GPU work before they leave its memory allocated for good.
inline constexpr std::chrono::seconds patience_at_end{5};

/// Blocks of memory for a kernel's results, used again once every reader is done. Blocks that are out when the pool
/// goes keep what they need. Thread safety: every member from any thread.
class OutputPool : public std::enable_shared_from_this<OutputPool> {
 public:
  OutputPool(std::shared_ptr<Device> device, Backend backend, Placement placement, std::size_t bytes)
      : device_(std::move(device)), backend_(backend), placement_(placement), bytes_(bytes) {}
  /// Waits for what still reads the blocks.
  ~OutputPool();
  OutputPool(const OutputPool&) = delete;
  OutputPool& operator=(const OutputPool&) = delete;

  /// A block that no one reads any more: one that came back, or a new one. Where `max_read` have come back and all are
  /// still read, this waits for the oldest: otherwise a slow reader, which is asked for nothing, would be given one
  /// block of device memory a frame. Empty when cancelled. Throws Error(no_memory | device_lost).
  [[nodiscard]] std::optional<OutputBlock> take(const std::atomic<bool>& cancelled);
  void give_back(OutputBlock&& block);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  static constexpr std::size_t max_read = 4;

 private:
  [[nodiscard]] std::shared_ptr<Mapping> allocate();
  [[nodiscard]] std::optional<OutputBlock> take_idle();
  [[nodiscard]] std::optional<OutputBlock> take_oldest();

  std::shared_ptr<Device> device_;
  Backend backend_;
  Placement placement_;
  std::size_t bytes_;
  std::mutex mutex_;
  std::deque<OutputBlock> free_;  ///< in the order in which they came back
};

}  // namespace gpumap::gst
