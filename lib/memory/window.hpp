// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace gpumap {

/// "79.6 GiB", "248 MiB", "4 KiB", "100 bytes".
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

/// Counts the live Placement::bar allocations of one device in this process. The driver's budget lags behind, and some
/// drivers give none; what this process holds is known exactly. GPUMAP_WINDOW_LIMIT=<bytes> lowers the window, to try
/// out on any machine what happens when it is full. Thread safety: every member from any thread.
class Window {
 public:
  /// A part of the window, given back on destruction. Move-only. The window outlives it.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept : window_(std::exchange(other.window_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(window_, other.window_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share();

   private:
    friend class Window;
    Share(Window* window, std::uint64_t bytes) : window_(window), bytes_(bytes) {}
    Window* window_ = nullptr;
    std::uint64_t bytes_ = 0;
  };

  /// What is left where the heaps hold `total` and the driver says `driver_free` is left (`total` when it cannot say).
  [[nodiscard]] std::uint64_t free_bytes(std::uint64_t total, std::uint64_t driver_free) const;
  /// Throws Error(no_memory) with the window, what is in use, what was asked, and the remedy.
  [[nodiscard]] Share reserve(const std::string& device, std::uint64_t bytes, std::uint64_t total,
                              std::uint64_t driver_free);

 private:
  [[nodiscard]] std::uint64_t free_locked(std::uint64_t total, std::uint64_t driver_free) const;

  mutable std::mutex mutex_;
  std::uint64_t in_use_ = 0;
};

}  // namespace gpumap
