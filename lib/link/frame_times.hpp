// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "gpumap/latency.hpp"
#include "gpumap/ring.hpp"

namespace gpumap::link {

/// What the producer stamped of a frame, ns on CLOCK_MONOTONIC, which both sides share. All 0: it did not stamp. When
/// it was published is in FrameInfo.
struct FrameTimes {
  std::int64_t acquired_ns = 0, first_store_ns = 0, last_store_ns = 0;
  std::int64_t due_ns = 0, captured_ns = 0;

  [[nodiscard]] static FrameTimes of(const std::optional<FrameRecord>& record) noexcept {
    if (!record) return {};
    return {record->at(Stamp::acquired), record->at(Stamp::first_store), record->at(Stamp::last_store), record->due_ns,
            record->captured_ns};
  }
};

/// The frame's way up to `published`. Empty where the producer did not stamp it, and where it says what cannot be: a
/// stamp before the clock's beginning, or after `now_ns`.
[[nodiscard]] inline std::optional<FrameRecord> record_of(const FrameInfo& info, const FrameTimes& times,
                                                          std::int64_t now_ns) noexcept {
  const std::array stamps{times.acquired_ns, times.first_store_ns, times.last_store_ns, info.publish_ns};
  const bool possible = std::all_of(stamps.begin(), stamps.end(), [&](auto at) { return at >= 0 && at <= now_ns; });
  if (times.acquired_ns == 0 || !possible) return std::nullopt;
  FrameRecord record;
  record.sequence = info.sequence;
  record.bytes = info.bytes;
  std::copy(stamps.begin(), stamps.end(), record.at_ns.begin());
  // Negative ones, of which differences could overflow, are none.
  record.due_ns = std::max<std::int64_t>(times.due_ns, 0);
  record.captured_ns = std::max<std::int64_t>(times.captured_ns, 0);
  return record;
}
static_assert(static_cast<int>(Stamp::acquired) == 0 && static_cast<int>(Stamp::first_store) == 1 &&
              static_cast<int>(Stamp::last_store) == 2 && static_cast<int>(Stamp::published) == 3);

}  // namespace gpumap::link
