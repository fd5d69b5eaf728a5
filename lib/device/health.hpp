// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "gpumap/error.hpp"

namespace gpumap {

/// Whether a GPU context still works. Once lost it stays lost: neither CUDA nor Vulkan can mend a context in place.
/// Thread safety: every member from any thread.
class Health {
 public:
  /// The first reason wins: what follows a fault are echoes of it.
  void mark_lost(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (lost_.load(std::memory_order_relaxed)) return;
    reason_ = reason;
    lost_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  /// Throws Error(device_lost) with the reason once lost. A load while healthy.
  void check() const {
    if (lost()) throw Error(ErrorCode::device_lost, reason());
  }

 private:
  std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;
  std::string reason_;
};

}  // namespace gpumap
