// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/memory.hpp"

namespace gpumap {

/// Counts what this process holds of a memory that is short: the BAR window of a device, or page-locked memory. What a
/// driver says lags behind, and some say nothing; what this process holds is known exactly. An environment variable
/// with a number of bytes lowers the whole, to try out on any machine what happens when it is used up.
/// Thread safety: every member from any thread.
class Budget {
 public:
  /// A part of the budget, given back on destruction. Move-only. The budget outlives it.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share();

   private:
    friend class Budget;
    Share(Budget* budget, std::uint64_t bytes) : budget_(budget), bytes_(bytes) {}
    Budget* budget_ = nullptr;
    std::uint64_t bytes_ = 0;
  };

  /// What an error tells of a budget that cannot give what was asked.
  struct Figures {
    std::uint64_t total = 0, in_use = 0, asked = 0;
  };
  using Explain = std::function<Error(const Figures&)>;

  explicit Budget(const char* limit_variable) : limit_variable_(limit_variable) {}

  /// What is left where there is `total` and the driver says `driver_free` is left (`total` when it cannot say).
  [[nodiscard]] std::uint64_t free_bytes(std::uint64_t total, std::uint64_t driver_free) const;
  /// Held by this process.
  [[nodiscard]] std::uint64_t in_use() const;
  /// Throws what `explain` gives.
  [[nodiscard]] Share reserve(std::uint64_t bytes, std::uint64_t total, std::uint64_t driver_free,
                              const Explain& explain);

 private:
  [[nodiscard]] std::uint64_t limited(std::uint64_t total) const;
  [[nodiscard]] std::uint64_t free_locked(std::uint64_t total, std::uint64_t driver_free) const;

  const char* const limit_variable_;
  mutable std::mutex mutex_;
  std::uint64_t in_use_ = 0;
};

inline constexpr const char* window_limit_variable = "GPUMAP_WINDOW_LIMIT";

/// Count page-locked host memory, of all devices of this process. No driver tells how much there may be, so the count
/// is there for the error's figures and for GPUMAP_PINNED_LIMIT=<bytes>. Throws Error(no_memory).
[[nodiscard]] Budget::Share reserve_page_locked(std::uint64_t bytes);

/// The error for page-locked memory that a driver, named by `who`, does not give: what was asked, what this process
/// holds, the limits and the remedies. The bytes asked have a Share already.
[[nodiscard]] Error page_locked_refused(std::string_view who, std::uint64_t bytes);

}  // namespace gpumap
