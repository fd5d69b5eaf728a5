// SPDX-License-Identifier: MIT
#include <ctime>

#include "gpumap/latency.hpp"

namespace gpumap {
namespace {

constexpr std::array<std::string_view, stamp_count> stamp_names{
    "acquired", "first-store",    "last-store",   "published", "received",
    "launched", "kernel-started", "kernel-ended", "visible",   "released"};
constexpr std::array<std::string_view, stage_count> stage_names{"hold",  "write",  "publish", "queue",  "dispatch",
                                                                "start", "kernel", "notice",  "release"};
constexpr std::array<std::string_view, total_count> total_names{"whole", "result", "lateness"};

template <std::size_t count, typename Of>
std::string_view name_in(const std::array<std::string_view, count>& names, Of of) noexcept {
  const auto at = static_cast<std::size_t>(of);
  return at < count ? names[at] : "?";
}

/// Where the frame's result was there, as far as anybody looked.
std::int64_t result_ns(const FrameRecord& frame) noexcept {
  for (const Stamp stamp : {Stamp::visible, Stamp::kernel_ended, Stamp::received}) {
    if (frame.at(stamp) != 0) return frame.at(stamp);
  }
  return 0;
}

}  // namespace

std::string_view to_string(Stamp stamp) noexcept {
  return name_in(stamp_names, stamp);
}
std::string_view to_string(Stage stage) noexcept {
  return name_in(stage_names, stage);
}
std::string_view to_string(Total total) noexcept {
  return name_in(total_names, total);
}

std::int64_t monotonic_ns() noexcept {
  constexpr std::int64_t second = 1'000'000'000;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * second + now.tv_nsec;
}

std::array<std::optional<std::int64_t>, stage_count> stage_times(const FrameRecord& frame) noexcept {
  std::array<std::optional<std::int64_t>, stage_count> times;
  std::int64_t before = frame.at_ns[0];
  for (std::size_t stage = 0; stage < stage_count; ++stage) {
    const std::int64_t end = frame.at_ns[stage + 1];
    if (end == 0) continue;
    if (before != 0) times[stage] = end - before;
    before = end;
  }
  return times;
}

std::optional<std::int64_t> total_time(const FrameRecord& frame, Total total) noexcept {
  std::int64_t from = 0;
  std::int64_t to = 0;
  switch (total) {
    case Total::whole:
      for (const std::int64_t at : frame.at_ns) {
        if (from == 0) from = at;
        if (at != 0) to = at;
      }
      break;
    case Total::result:
      from = frame.at(Stamp::last_store);
      to = result_ns(frame);
      break;
    case Total::lateness:
      from = frame.due_ns;
      to = result_ns(frame);
      break;
  }
  if (from == 0 || to == 0) return std::nullopt;
  return to - from;
}

}  // namespace gpumap
