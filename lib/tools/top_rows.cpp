// SPDX-License-Identifier: MIT
#include "top_rows.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "gpumap/printable.hpp"

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

namespace {

std::string with_unit(double bytes) {
  constexpr std::array<const char*, 4> units{"B", "kB", "MB", "GB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < units.size(); ++unit) bytes /= 1000;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 2, units[unit]);
}
std::string or_dash(const std::optional<double>& figure, double factor = 1) {
  return figure ? fmt::format("{:.1f}", *figure * factor) : "-";
}
/// us below a millisecond, else ms.
std::string time_of(double us) {
  return us < 999.5 ? fmt::format("{:.0f} us", us) : fmt::format("{:.1f} ms", us * 1e-3);
}

std::string client_line(const ClientRow& row) {
  constexpr std::array<const char*, 3> policies{"no", "newest", "oldest"};
  const LinkClient& who = row.now.who;
  std::string text = fmt::format(
      "  {:>2} {:<23.23} {:>7} {:<6} {:>8} {:>5} {:>4} {:>8} {:>7}\n", who.index, visible(who.name), who.pid,
      policies[static_cast<std::size_t>(who.leak)], or_dash(row.frames_per_s), who.slots, row.now.lag,
      row.now.lag > 0 ? time_of(static_cast<double>(row.now.lag_ns) * 1e-3) : "-", who.dropped);
  if (row.latency) {
    text += fmt::format("     latency: P50 {}, P99 {}, max {}\n", time_of(row.latency->p50_us),
                        time_of(row.latency->p99_us), time_of(row.latency->max_us));
  }
  return text;
}

std::string ring_lines(const RingRow& row) {
  if (!row.now.report) return fmt::format("{}\n  no figures: {}\n", visible(row.now.path), visible(row.now.trouble));
  const LinkReport& ring = *row.now.report;
  std::string text = fmt::format("{}  {}, process {}, {}\n", visible(row.now.path), visible(ring.program), ring.pid,
                                 to_string(ring.transport));
  text +=
      fmt::format("  {:>10} {:>9} {:>10} {:>8} {:>8} {:>8}\n", "FRAME", "FRAMES/S", "MB/S", "USED", "DROPS", "UNSEEN");
  text += fmt::format("  {:>10} {:>9} {:>10} {:>8} {:>8} {:>8}\n",
                      ring.frames > 0 ? with_unit(static_cast<double>(row.frame_bytes)) : "-",
                      or_dash(row.frames_per_s), or_dash(row.bytes_per_s, 1e-6),
                      fmt::format("{}/{}", ring.queued + ring.busy, ring.slots), ring.dropped, ring.unseen);
  if (row.clients.empty()) return text + "  no client\n";
  text += fmt::format("  {:<26} {:>7} {:<6} {:>8} {:>5} {:>4} {:>8} {:>7}\n", "CLIENT", "PID", "LEAKY", "FRAMES/S",
                      "SLOTS", "LAG", "FOR", "MISSED");
  for (const ClientRow& client : row.clients) text += client_line(client);
  return text;
}

}  // namespace

std::string visible(const std::string& text) {
  std::string shown;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t bytes = printable_bytes(rest);
    shown += bytes > 0 ? rest.substr(0, bytes) : "?";
    rest.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return shown;
}

std::string to_table(std::span<const RingRow> rows) {
  if (rows.empty()) {
    return "no ring of this user is served at a socket: start a gpumapsink with socket-path=, or name its path\n";
  }
  std::string text;
  for (const RingRow& row : rows) text += (text.empty() ? "" : "\n") + ring_lines(row);
  return text;
}

namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<double>& figure) {
  return figure ? Json(*figure) : Json(nullptr);
}

Json of_client(const ClientRow& row) {
  const LinkClient& who = row.now.who;
  constexpr std::string_view policies[] = {"no", "newest", "oldest"};
  return {{"index", who.index},
          {"pid", who.pid},
          {"uid", who.uid},
          {"name", who.name},
          {"leaky", policies[static_cast<std::size_t>(who.leak)]},
          {"frames", who.shown},
          {"frames_per_s", or_null(row.frames_per_s)},
          {"slots", who.slots},
          {"lag_frames", row.now.lag},
          {"lag_ms", static_cast<double>(row.now.lag_ns) * 1e-6},
          {"missed", who.dropped},
          {"latency_p50_us", row.latency ? Json(row.latency->p50_us) : Json(nullptr)},
          {"latency_p99_us", row.latency ? Json(row.latency->p99_us) : Json(nullptr)},
          {"latency_max_us", row.latency ? Json(row.latency->max_us) : Json(nullptr)}};
}

Json of_ring(const RingRow& row) {
  if (!row.now.report) return {{"path", row.now.path}, {"trouble", row.now.trouble}};
  const LinkReport& ring = *row.now.report;
  Json clients = Json::array();
  for (const ClientRow& client : row.clients) clients.push_back(of_client(client));
  return {{"path", row.now.path},
          {"pid", ring.pid},
          {"program", ring.program},
          {"transport", to_string(ring.transport)},
          {"slots", ring.slots},
          {"slot_bytes", ring.slot_bytes},
          {"frame_bytes", row.frame_bytes},
          {"frames", ring.frames},
          {"frames_per_s", or_null(row.frames_per_s)},
          {"bytes", ring.bytes},
          {"bytes_per_s", or_null(row.bytes_per_s)},
          {"queued", ring.queued},
          {"with_clients", ring.busy},
          {"drops", ring.dropped},
          {"unseen", ring.unseen},
          {"stamps", ring.stamps},
          {"clients", std::move(clients)}};
}

}  // namespace

std::string to_json(std::span<const RingRow> rows, double interval_s) {
  Json rings = Json::array();
  for (const RingRow& row : rows) rings.push_back(of_ring(row));
  const Json all{{"version", GPUMAP_VERSION}, {"interval_s", interval_s}, {"rings", std::move(rings)}};
  // Names and paths come from other programs: what is not UTF-8 must not end this one, and no control character gets to
  // a terminal, of which ASCII with escapes has none.
  return all.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace gpumap::top
