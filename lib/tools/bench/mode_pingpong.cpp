// SPDX-License-Identifier: MIT
// pingpong: the CPU raises a doorbell, a thread that stays on the GPU answers into host memory, the CPU sees it. The
// doorbell lies in the BAR, so that the GPU polls its own memory; the rival's lies in host memory, which the GPU polls
// across the PCIe. What gdrcopy's pplat measures.
#include <fmt/format.h>

#include <array>
#include <gpumap/error.hpp>

#include "resident.hpp"

namespace bench {
namespace {

using gpumap::Placement;

struct Path {
  const char* name;
  Placement placement;
  unsigned bell_bytes;

  std::unique_ptr<Resident> resident{};
  std::vector<std::int64_t> times{};
  std::int64_t cpu = 0;
  unsigned rounds = 0, discarded = 0;
};

void run_block(Path& path, const Rounds& rounds) {
  Resident& resident = *path.resident;
  resident.start();
  for (unsigned i = 0; i < rounds.warmup; ++i) {
    resident.ring();
    static_cast<void>(resident.answer());
  }
  const std::int64_t cpu = cpu_ns();
  unsigned valid = 0;
  unsigned discarded = 0;
  while (rounds.go_on(valid, discarded)) {
    const std::int64_t began = now_ns();
    resident.ring();
    const bool answered = resident.answer();
    const std::int64_t ended = now_ns();
    if (answered) {
      path.times.push_back(ended - began);
      ++valid;
    } else {
      ++discarded;
    }
  }
  path.cpu += cpu_ns() - cpu;
  path.rounds += valid + discarded;
  path.discarded += discarded;
  resident.stop();
}

std::vector<std::pair<double, double>> percentiles(const std::vector<std::int64_t>& sorted_ns) {
  std::vector<std::pair<double, double>> points;
  for (std::size_t percent = 1; percent < 100; ++percent) {
    const double share = static_cast<double>(percent) / 100;
    points.emplace_back(percent, static_cast<double>(percentile(sorted_ns, share)) / 1e3);
  }
  return points;
}

}  // namespace

nlohmann::json run_pingpong(Context& context) {
  ModeReport report{.mode = "pingpong",
                    .what = "from before the store of a doorbell until the CPU sees the GPU's answer"};
  report.not_measured = {"a payload: see launch", "sleeping: the CPU and the GPU poll"};
  if (const std::string reason = refuse_resident(context); !reason.empty()) {
    report.extra["refused"] = reason;
    report.not_measured.push_back("anything: " + reason);
    return make_report(report);
  }

  const auto kernel = load_resident(context);
  std::array<Path, 4> paths{{
      {"BAR", Placement::bar, 4},
      {"host memory", Placement::host, 4},
      {"BAR", Placement::bar, 8},
      {"host memory", Placement::host, 8},
  }};
  for (Path& path : paths) {
    path.resident = std::make_unique<Resident>(context, *kernel, path.placement, path.bell_bytes);
  }
  const Rounds rounds = context.small() ? Rounds{.blocks = 2, .warmup = 2, .counted = 25}
                                        : Rounds{.blocks = 10, .warmup = 100, .counted = 2000};
  for (unsigned block = 0; block < rounds.blocks; ++block) {
    for (Path& path : paths) run_block(path, rounds);
  }

  Plot plot{.title = "Doorbell round trips",
            .x_label = "per cent of the round trips that take",
            .y_label = "us or less",
            .log_x = false,
            .log_y = false};
  report.extra["discarded"] = nlohmann::json::array();
  for (Path& path : paths) {
    const std::string detail = fmt::format("{}-byte doorbell", path.bell_bytes);
    report.extra["discarded"].push_back({{"path", path.name}, {"detail", detail}, {"rounds", path.discarded}});
    if (path.times.empty()) {
      report.not_measured.push_back(fmt::format("{}, {}: other programs left the kernel no time", path.name, detail));
      continue;
    }
    const Summary summary = summarise(path.times);
    plot.series.push_back({.name = fmt::format("{}, {}", path.name, detail), .points = percentiles(path.times)});
    report.rows.push_back({.path = path.name,
                           .detail = detail,
                           .bytes = path.bell_bytes,
                           .rival = path.placement == Placement::host,
                           .time = summary,
                           .cpu_us = static_cast<double>(path.cpu) / path.rounds / 1e3,
                           .rate = false});
  }
  report.plots.push_back(plot);
  set_ratios(report.rows);
  if (report.rows.size() == paths.size()) {
    context.targets.push_back({.claim = "pingpong: 4-byte doorbell in the BAR over one in host memory, round trip",
                               .value = report.rows[0].ratio,
                               .bound = 0.9});
  }
  return make_report(report);
}

}  // namespace bench
