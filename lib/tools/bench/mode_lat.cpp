// SPDX-License-Identifier: MIT
// lat: a block in the CPU's hands until a kernel has read it, by size. Every block's content is checked. The rows
// "stored" are the CPU's stores alone: what gdrcopy's copylat measures.
#include <fmt/format.h>

#include <algorithm>
#include <gpumap/error.hpp>

#include "lat_paths.hpp"

namespace bench {
namespace {

using gpumap::Placement;

struct Path {
  std::string name;
  bool rival;
  std::unique_ptr<LatPath> path;
  std::vector<std::int64_t> stored{}, done{};
  std::int64_t cpu = 0;
  unsigned rounds = 0, discarded = 0;
};

// What a software driver's bound on loops lets a resident kernel read in one go, and far more than it is for.
constexpr std::size_t max_bytes = std::size_t{64} << 20;
constexpr const char* bar_resident = "BAR, resident kernel";
constexpr const char* bar_queued = "BAR, launch behind a bell";
constexpr const char* bar_launch = "BAR, launch";
constexpr const char* visible = "read by a kernel";

std::vector<Path> make_paths(const Context& context, const ResidentKernels& kernels, bool resident, std::size_t bytes) {
  std::vector<Path> paths;
  if (resident) {
    paths.push_back({bar_resident, false, resident_path(context, kernels, Placement::bar, bytes)});
    paths.push_back({"pinned in place, resident", true, resident_path(context, kernels, Placement::host, bytes)});
    if (auto queued = queued_path(context, kernels, bytes); queued) {
      paths.push_back({bar_queued, false, std::move(queued)});
    }
  }
  paths.push_back({bar_launch, false, launch_path(context, kernels, Placement::bar, bytes)});
  paths.push_back({"pinned, DMA, launch", true, dma_path(context, kernels, bytes)});
  paths.push_back({"pinned in place, launch", true, launch_path(context, kernels, Placement::host, bytes)});
  return paths;
}

/// False when the round says nothing. Throws when the kernel read other bytes than the CPU wrote.
bool run_round(Path& path, Blocks& blocks, std::size_t bytes, bool counts) {
  const auto round = path.path->round(blocks.next());
  if (!round) return false;
  if (round->checksum != blocks.checksum()) {
    throw std::runtime_error(fmt::format("lat: {}, {} bytes: the kernel read {:08x} where the CPU wrote {:08x}",
                                         path.name, bytes, round->checksum, blocks.checksum()));
  }
  if (counts) {
    path.stored.push_back(round->stored_ns);
    path.done.push_back(round->done_ns);
  }
  return true;
}

void run_block(Path& path, Blocks& blocks, std::size_t bytes, const Rounds& rounds) {
  path.path->begin();
  for (unsigned i = 0; i < rounds.warmup; ++i) run_round(path, blocks, bytes, false);
  const std::int64_t cpu = cpu_ns();
  unsigned valid = 0;
  unsigned discarded = 0;
  while (rounds.go_on(valid, discarded)) ++(run_round(path, blocks, bytes, true) ? valid : discarded);
  path.cpu += cpu_ns() - cpu;
  path.rounds += valid + discarded;
  path.discarded += discarded;
  path.path->end();
}

Rounds rounds_of(const Context& context, std::size_t bytes) {
  if (context.small()) return {.blocks = 2, .warmup = 1, .counted = 10};
  return {.blocks = 10, .warmup = 20, .counted = bytes > 65536 ? 50U : 200U};
}

void add_rows(ModeReport& report, std::vector<Path>& paths, std::size_t bytes) {
  for (Path& path : paths) {
    if (path.discarded > 0) {
      report.extra["discarded"].push_back({{"path", path.name}, {"bytes", bytes}, {"rounds", path.discarded}});
    }
    if (path.done.empty()) {
      report.not_measured.push_back(
          fmt::format("{}, {} bytes: other programs left the kernel no time", path.name, bytes));
      continue;
    }
    report.rows.push_back({.path = path.name,
                           .detail = visible,
                           .bytes = bytes,
                           .rival = path.rival,
                           .time = summarise(path.done),
                           .cpu_us = static_cast<double>(path.cpu) / path.rounds / 1e3});
  }
  // Two ways store alike; the launches', which every device has, stand for them.
  for (Path& path : paths) {
    if (path.name != bar_launch && path.name != "pinned in place, launch") continue;
    const Summary stored = summarise(path.stored);
    report.rows.push_back({.path = path.rival ? "memcpy to pinned, sfence" : "stores into the BAR, sfence",
                           .detail = "stored",
                           .bytes = bytes,
                           .rival = path.rival,
                           .time = stored,
                           .cpu_us = stored.median_us});
  }
}

void add_plot(ModeReport& report) {
  Plot plot{.title = "From the first store until a kernel has read the block", .x_label = "bytes", .y_label = "us"};
  for (const Row& row : report.rows) {
    if (row.detail != visible) continue;
    auto series = std::find_if(plot.series.begin(), plot.series.end(),
                               [&](const Series& other) { return other.name == row.path; });
    if (series == plot.series.end()) series = plot.series.insert(series, {.name = row.path, .points = {}});
    series->points.emplace_back(static_cast<double>(row.bytes), row.time.median_us);
  }
  report.plots.push_back(plot);
}

/// The small blocks are what a resident kernel is for: against the best launch of today's ways.
void add_targets(Context& context, const std::vector<Row>& rows) {
  for (const std::size_t bytes : {64, 4096}) {
    double mine = 0;
    double best = 0;
    for (const Row& row : rows) {
      if (row.bytes != bytes || row.detail != visible) continue;
      if (row.path == bar_resident) mine = row.time.median_us;
      if (row.rival && row.path.ends_with("launch")) best = std::min(best > 0 ? best : 1e9, row.time.median_us);
    }
    if (mine == 0 || best == 0) continue;
    context.targets.push_back(
        {.claim = fmt::format("lat: {} bytes by BAR and resident kernel over the best launch of today's ways", bytes),
         .value = mine / best,
         .bound = 0.5});
  }
}

}  // namespace

nlohmann::json run_lat(Context& context) {
  ModeReport report{
      .mode = "lat",
      .what = "from before the first store until the CPU has the checksum of a kernel that read the block"};
  report.not_measured = {"cold sources: the block is in the CPU's caches where it fits", "blocks over 1 MiB: see frame",
                         "what the resident kernel costs others: it keeps one multiprocessor of the GPU busy"};
  const std::string refused = refuse_resident(context);
  if (!refused.empty()) {
    report.extra["refused"] = refused;
    report.not_measured.push_back("a resident kernel: " + refused);
  }
  report.extra["discarded"] = nlohmann::json::array();

  const ResidentKernels kernels(context);
  const std::vector<std::size_t> sizes =
      context.sizes(context.small() ? std::vector<std::size_t>{4, 4096, 65536}
                                    : std::vector<std::size_t>{4, 64, 1024, 4096, 16384, 65536, 262144, 1048576});
  for (const std::size_t bytes : sizes) {
    if (bytes % 4 != 0 || bytes > max_bytes) {
      throw gpumap::Error(gpumap::ErrorCode::invalid,
                          fmt::format("lat: {} bytes asked: --sizes takes multiples of 4 up to 64 MiB here", bytes));
    }
    Blocks blocks(bytes);
    std::vector<Path> paths = make_paths(context, kernels, refused.empty(), bytes);
    const Rounds rounds = rounds_of(context, bytes);
    for (unsigned block = 0; block < rounds.blocks; ++block) {
      for (Path& path : paths) run_block(path, blocks, bytes, rounds);
    }
    add_rows(report, paths, bytes);
  }
  const bool queued =
      std::any_of(report.rows.begin(), report.rows.end(), [](const Row& row) { return row.path == bar_queued; });
  report.not_measured.push_back(
      queued ? fmt::format("{}: its calls of the driver, which come before the block; its CPU time has them and a wait "
                           "until the stream stands at the bell",
                           bar_queued)
             : fmt::format("{}: needs CUDA, and a GPU whose streams wait for words in memory", bar_queued));
  set_ratios(report.rows);
  add_plot(report);
  add_targets(context, report.rows);
  return make_report(report);
}

}  // namespace bench
