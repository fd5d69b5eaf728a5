// SPDX-License-Identifier: MIT
#include "memory/page_locked.hpp"

#include <sys/resource.h>

#include <fmt/format.h>
#include <limits>
#include <string>

namespace gpumap {
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
