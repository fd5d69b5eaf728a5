// SPDX-License-Identifier: MIT
#include "device/budget.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "gpumap/error.hpp"

namespace gpumap {

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

Budget::Share::~Share() {
  if (budget_ == nullptr) return;
  const std::lock_guard lock(budget_->mutex_);
  budget_->in_use_ -= bytes_;
}

/// The environment is asked afresh each time: a test sets it for one case.
std::uint64_t Budget::limited(std::uint64_t total) const {
  const char* text = std::getenv(limit_variable_);
  if (text == nullptr || *text == '\0') return total;
  const std::string_view view(text);
  std::uint64_t limit = 0;
  const auto [stop, error] = std::from_chars(view.data(), view.data() + view.size(), limit);
  if (error != std::errc() || stop != view.data() + view.size()) {
    throw Error(ErrorCode::invalid, fmt::format("{}=\"{}\" is not a number of bytes: write digits alone, or unset it",
                                                limit_variable_, view));
  }
  return std::min(total, limit);
}

std::uint64_t Budget::free_locked(std::uint64_t total, std::uint64_t driver_free) const {
  const std::uint64_t size = limited(total);
  return std::min(size > in_use_ ? size - in_use_ : 0, driver_free);
}

std::uint64_t Budget::free_bytes(std::uint64_t total, std::uint64_t driver_free) const {
  const std::lock_guard lock(mutex_);
  return free_locked(total, driver_free);
}

std::uint64_t Budget::in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

Budget::Share Budget::reserve(std::uint64_t bytes, std::uint64_t total, std::uint64_t driver_free,
                              const Explain& explain) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t free = free_locked(total, driver_free);
  if (bytes > free) {
    const std::uint64_t size = limited(total);
    const Figures asked{.total = size, .in_use = size > free ? size - free : 0, .asked = bytes};
    throw FiguredError(explain(asked), {{"asked-bytes", asked.asked},
                                        {"used-bytes", asked.in_use},
                                        {"total-bytes", asked.total},
                                        {"free-bytes", free}});
  }
  in_use_ += bytes;
  return Share(this, bytes);
}

namespace {

Budget& page_locked() {
  static auto* const budget = new Budget("GPUMAP_PINNED_LIMIT");  // devices outlive static objects, too
  return *budget;
}

std::string ulimit_text() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : format_bytes(limit.rlim_cur);
}

Error explain(std::uint64_t asked, std::uint64_t held, const std::string& limit) {
  return {ErrorCode::no_memory,
          fmt::format("page-locked host memory: {} asked, {} held by this process, {}, ulimit -l {}",
                      format_bytes(asked), format_bytes(held), limit, ulimit_text()),
          "lower slots or slot-size, raise the limit (ulimit -l, LimitMEMLOCK= of a service, the memory of a "
          "container), or use transport=pageable"};
}

}  // namespace

Budget::Share reserve_page_locked(std::uint64_t bytes) {
  constexpr auto any = std::numeric_limits<std::uint64_t>::max();
  return page_locked().reserve(bytes, any, any, [](const Budget::Figures& figures) {
    return explain(figures.asked, figures.in_use, fmt::format("GPUMAP_PINNED_LIMIT {}", format_bytes(figures.total)));
  });
}

Error page_locked_refused(std::string_view who, std::uint64_t bytes) {
  return explain(bytes, page_locked().in_use() - bytes, fmt::format("refused by {}", who));
}

}  // namespace gpumap
