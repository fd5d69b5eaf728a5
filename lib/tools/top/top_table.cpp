// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "gpumap/printable.hpp"
#include "rows.hpp"

namespace gpumap::top {
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

}  // namespace gpumap::top
