// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <gpumap/link_report.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpumap::top {

/// By nearest rank, within 1 in 16.
struct Latency {
  double p50_us = 0, p99_us = 0, max_us = 0;
};

/// What two looks at a client make. Empty where the first look did not see it.
struct ClientRow {
  LinkClientReport now;
  std::optional<double> frames_per_s;
  std::optional<Latency> latency;  ///< of the frames that came back between the looks
};
struct RingRow {
  LinkSight now;
  std::optional<double> frames_per_s, bytes_per_s;
  std::uint64_t frame_bytes = 0;  ///< mean of the frames between the looks, else of all; 0: there was none
  std::vector<ClientRow> clients{};
};

/// One row for each of `now`, in its order. A ring is the same in both where its generation is, a client where its
/// connection is.
[[nodiscard]] std::vector<RingRow> make_rows(std::span<const LinkSight> before, std::vector<LinkSight> now);

/// For people; lines end with '\n' and have no control characters, whatever paths and names have.
[[nodiscard]] std::string to_table(std::span<const RingRow> rows);
[[nodiscard]] std::string to_json(std::span<const RingRow> rows, double interval_s);

/// `text` for a terminal: what is no UTF-8 or would move its cursor is '?'.
[[nodiscard]] std::string visible(const std::string& text);

}  // namespace gpumap::top
