// SPDX-License-Identifier: MIT
#include "rows.hpp"

#include <array>
#include <cstddef>
#include <utility>

namespace gpumap::top {
namespace {

const LinkReport* same_ring(std::span<const LinkSight> before, const LinkSight& now) {
  for (const LinkSight& one : before) {
    if (one.report && one.path == now.path && one.report->generation == now.report->generation) return &*one.report;
  }
  return nullptr;
}

const LinkClientReport* same_client(const LinkReport* before, const LinkClientReport& now) {
  if (before == nullptr) return nullptr;
  for (const LinkClientReport& one : before->clients) {
    if (one.who.connection == now.who.connection) return &one;
  }
  return nullptr;
}

/// How much a count grew. A server may say anything: one that went down grew by nothing.
std::uint64_t growth(std::uint64_t before, std::uint64_t now) {
  return now > before ? now - before : 0;
}

std::optional<Latency> latency_between(const LinkClientReport& before, const LinkClientReport& now) {
  std::array<std::uint32_t, LinkTimeSteps::count> grown{};
  std::uint64_t frames = 0;
  for (std::size_t bucket = 0; bucket < grown.size(); ++bucket) {
    grown[bucket] = now.times[bucket] - before.times[bucket];  // also where it went past 2^32
    frames += grown[bucket];
  }
  if (frames == 0) return std::nullopt;
  const auto time_of = [&](double share) {
    std::uint64_t seen = 0;
    std::size_t bucket = 0;
    for (; bucket < grown.size(); ++bucket) {
      seen += grown[bucket];
      if (seen == frames || static_cast<double>(seen) >= share * static_cast<double>(frames)) break;
    }
    return static_cast<double>(LinkTimeSteps::middle_of(bucket)) * 1e-3;
  };
  return Latency{.p50_us = time_of(0.5), .p99_us = time_of(0.99), .max_us = time_of(1)};
}

}  // namespace

std::vector<RingRow> make_rows(std::span<const LinkSight> before, std::vector<LinkSight> now) {
  std::vector<RingRow> rows;
  for (LinkSight& sight : now) {
    RingRow& row = rows.emplace_back();
    row.now = std::move(sight);
    if (!row.now.report) continue;
    const LinkReport& report = *row.now.report;
    const LinkReport* const earlier = same_ring(before, row.now);
    const double seconds =
        earlier != nullptr ? (static_cast<double>(report.at_ns) - static_cast<double>(earlier->at_ns)) * 1e-9 : 0;
    std::uint64_t frames = report.frames;
    std::uint64_t bytes = report.bytes;
    if (earlier != nullptr && seconds > 0) {
      const std::uint64_t more = growth(earlier->frames, report.frames);
      const std::uint64_t more_bytes = growth(earlier->bytes, report.bytes);
      row.frames_per_s = static_cast<double>(more) / seconds;
      row.bytes_per_s = static_cast<double>(more_bytes) / seconds;
      if (more > 0) {
        frames = more;
        bytes = more_bytes;
      }
    }
    if (frames > 0) row.frame_bytes = bytes / frames;
    for (const LinkClientReport& client : report.clients) {
      ClientRow& one = row.clients.emplace_back();
      one.now = client;
      const LinkClientReport* const then = same_client(earlier, client);
      if (then == nullptr || seconds <= 0) continue;
      one.frames_per_s = static_cast<double>(growth(then->who.shown, client.who.shown)) / seconds;
      one.latency = latency_between(*then, client);
    }
  }
  return rows;
}

}  // namespace gpumap::top
