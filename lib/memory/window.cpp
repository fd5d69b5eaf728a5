// SPDX-License-Identifier: MIT
#include "memory/window.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "gpumap/error.hpp"

namespace gpumap {
namespace {

/// Asked afresh each time: a test sets it for one case.
std::uint64_t environment_limit() {
  constexpr auto none = std::numeric_limits<std::uint64_t>::max();
  const char* text = std::getenv("GPUMAP_WINDOW_LIMIT");
  if (text == nullptr || *text == '\0') return none;
  const std::string_view view(text);
  std::uint64_t limit = 0;
  const auto [stop, error] = std::from_chars(view.data(), view.data() + view.size(), limit);
  if (error != std::errc() || stop != view.data() + view.size()) {
    throw Error(ErrorCode::invalid, fmt::format("GPUMAP_WINDOW_LIMIT=\"{}\" is not a number of bytes", view));
  }
  return limit;
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::uint64_t kib = 1024;
  constexpr std::uint64_t mib = kib * kib;
  constexpr std::uint64_t gib = kib * mib;
  const auto in = [bytes](std::uint64_t unit, const char* name) {
    const double value = std::round(static_cast<double>(bytes) / static_cast<double>(unit) * 10) / 10;
    return fmt::format("{} {}", value, name);
  };
  if (bytes >= 16 * gib) return in(gib, "GiB");
  if (bytes >= mib) return in(mib, "MiB");
  if (bytes >= kib) return in(kib, "KiB");
  return fmt::format("{} bytes", bytes);
}

Window::Share::~Share() {
  if (window_ == nullptr) return;
  const std::lock_guard lock(window_->mutex_);
  window_->in_use_ -= bytes_;
}

std::uint64_t Window::free_locked(std::uint64_t total, std::uint64_t driver_free) const {
  const std::uint64_t size = std::min(total, environment_limit());
  return std::min(size > in_use_ ? size - in_use_ : 0, driver_free);
}

std::uint64_t Window::free_bytes(std::uint64_t total, std::uint64_t driver_free) const {
  const std::lock_guard lock(mutex_);
  return free_locked(total, driver_free);
}

Window::Share Window::reserve(const std::string& device, std::uint64_t bytes, std::uint64_t total,
                              std::uint64_t driver_free) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t free = free_locked(total, driver_free);
  if (bytes > free) {
    const std::uint64_t size = std::min(total, environment_limit());
    throw Error(
        ErrorCode::no_memory,
        fmt::format("{}: BAR window {}, {} in use, {} asked: lower slots or slot-size, or use another transport",
                    device, format_bytes(size), format_bytes(size > free ? size - free : 0), format_bytes(bytes)));
  }
  in_use_ += bytes;
  return Share(this, bytes);
}

}  // namespace gpumap
