// SPDX-License-Identifier: MIT
// What memory costs before and after it is used, for each placement: calls that an application makes once.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "bench.hpp"
#include "memory/mapping_steps.hpp"

namespace bench {
namespace {

using gpumap::MappingStep;
using gpumap::Placement;

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t hd_bytes = 3'110'400;
constexpr std::size_t page = 4096;

struct Kind {
  Placement placement;
  const char* name;
  bool rival;
};
constexpr std::array kinds{
    Kind{Placement::bar, "bar", false},
    Kind{Placement::host, "page-locked", true},
    Kind{Placement::mirrored, "page-locked + device", true},
    Kind{Placement::mirrored_pageable, "pageable + device", true},
    Kind{Placement::device, "device", false},
};

/// What is timed, as it follows in the life of a mapping; the names are those of the rows.
enum Call : std::size_t { allocate, map, import_to_cuda, made, first_touch, drop_import, unmap_free, freed };
constexpr std::array<const char*, 8> calls{"allocate",    "map",         "import",       "made, in all",
                                           "first touch", "drop import", "unmap + free", "freed, in all"};

/// A call of the interface, or a step of one.
constexpr bool is_whole(std::size_t call) {
  return call == made || call == first_touch || call == freed;
}

struct Times {
  std::vector<std::int64_t> ns;
  std::int64_t cpu_ns = 0;  // of whole calls: a look at the CPU clock is a system call, which steps must not pay for

  template <typename Call>
  void time(Call call) {
    const std::int64_t cpu_before = bench::cpu_ns();
    const std::int64_t began = now_ns();
    call();
    ns.push_back(now_ns() - began);
    cpu_ns += bench::cpu_ns() - cpu_before;
  }
  void add(std::optional<std::int64_t> step_ns) {
    if (step_ns) ns.push_back(*step_ns);
  }
};
using Life = std::array<Times, calls.size()>;
using Lives = std::array<Life, kinds.size()>;

void live_once(const Context& context, Placement placement, std::size_t bytes, Life& times) {
  std::shared_ptr<gpumap::Mapping> mapping;
  {
    const gpumap::MappingTimes steps;
    times[made].time([&] { mapping = context.allocate(placement, bytes); });
    times[allocate].add(steps.ns(MappingStep::allocate));
    times[map].add(steps.ns(MappingStep::map));
    times[import_to_cuda].add(steps.ns(MappingStep::import_to_cuda));
  }
  if (mapping->host() != nullptr) {
    times[first_touch].time([&] {
      volatile std::byte* const to = mapping->host();
      for (std::size_t at = 0; at < bytes; at += page) to[at] = std::byte{1};
    });
  }
  const gpumap::MappingTimes steps;
  times[freed].time([&] { mapping.reset(); });
  times[drop_import].add(steps.ns(MappingStep::drop_import));
  times[unmap_free].add(steps.ns(MappingStep::free));
}

Lives live(const Context& context, std::size_t bytes) {
  const std::int64_t budget_ns = context.small() ? 60'000'000 : 1'200'000'000;
  const unsigned least = context.small() ? 3 : 10;
  constexpr unsigned most = 400;
  Lives warmup;
  for (std::size_t k = 0; k < kinds.size(); ++k) live_once(context, kinds[k].placement, bytes, warmup[k]);
  Lives lives;
  const std::int64_t began = now_ns();
  for (unsigned i = 0; i < most && (i < least || now_ns() - began < budget_ns); ++i) {
    for (std::size_t k = 0; k < kinds.size(); ++k) live_once(context, kinds[k].placement, bytes, lives[k]);
  }
  return lives;
}

/// All buckets from the first to the last, so that a gap shows.
Series histogram(const char* name, const std::vector<std::int64_t>& ns) {
  Series series{.name = name, .points = {}};
  const auto buckets = log2_buckets(ns);
  if (buckets.empty()) return series;
  for (unsigned b = buckets.begin()->first; b <= buckets.rbegin()->first; ++b) {
    const auto found = buckets.find(b);
    series.points.emplace_back(std::exp2(b) / 1e3, found == buckets.end() ? 0.0 : static_cast<double>(found->second));
  }
  return series;
}

}  // namespace

nlohmann::json run_api(Context& context) {
  std::vector<std::size_t> sizes =
      context.sizes(context.small() ? std::vector<std::size_t>{64 << 10, mib}
                                    : std::vector<std::size_t>{64 << 10, mib, hd_bytes, 32 * mib, 256 * mib});
  // What is drawn: a frame where there is one, else the last.
  const std::size_t drawn = std::find(sizes.begin(), sizes.end(), hd_bytes) != sizes.end() ? hd_bytes : sizes.back();
  ModeReport report{.mode = "api",
                    .what =
                        "one call, or one step of it. Made, in all: memory that CPU and kernel reach, of which "
                        "allocate is the driver's memory and a buffer on it, map its CPU address, import the export "
                        "as a descriptor and CUDA's address for that. First touch stores a byte in each page of 4096. "
                        "Freed, in all: given back, of which drop import and unmap + free are steps"};
  report.extra["histograms"] = nlohmann::json::array();
  for (const char* call : calls) {
    report.plots.push_back({.title = std::string(call) + ", " + std::to_string(drawn) + " bytes",
                            .x_label = "us, in powers of two",
                            .y_label = "calls",
                            .log_y = false,
                            .style = Plot::Style::bars});
  }
  for (const std::size_t bytes : sizes) {
    Lives lives = live(context, bytes);
    for (std::size_t c = 0; c < calls.size(); ++c) {
      for (std::size_t k = 0; k < kinds.size(); ++k) {
        Times& times = lives[k][c];
        if (times.ns.empty()) continue;  // there is no such step: the CPU does not reach Placement::device
        nlohmann::json buckets = nlohmann::json::array();
        for (const auto& [b, count] : log2_buckets(times.ns)) buckets.push_back({std::uint64_t{1} << b, count});
        report.extra["histograms"].push_back(
            {{"path", kinds[k].name}, {"detail", calls[c]}, {"bytes", bytes}, {"from_ns_and_count", buckets}});
        if (bytes == drawn) report.plots[c].series.push_back(histogram(kinds[k].name, times.ns));
        const auto count = static_cast<double>(times.ns.size());
        std::optional<double> cpu_us;
        if (is_whole(c)) cpu_us = static_cast<double>(times.cpu_ns) / count / 1e3;
        report.rows.push_back({.path = kinds[k].name,
                               .detail = calls[c],
                               .bytes = bytes,
                               .rival = kinds[k].rival,
                               .time = summarise(times.ns),
                               .cpu_us = cpu_us,
                               .rate = false});
      }
    }
  }
  std::erase_if(report.plots, [](const Plot& plot) { return plot.series.empty(); });
  set_ratios(report.rows);
  // The driver's calls cut the way to memory differently for each path: only the whole way compares.
  for (Row& row : report.rows) {
    const auto call = static_cast<std::size_t>(std::find(calls.begin(), calls.end(), row.detail) - calls.begin());
    if (!is_whole(call)) row.ratio = 0;
  }
  report.not_measured = {
      "map where allocate gives the CPU's address with the memory: page-locked by CUDA, and pageable",
      "unmap on its own: the driver unmaps what it frees",
      "the DMA queue of page-locked + device by itself: the two in all contain it",
      "opening the device, which a process does once",
      "rings and pools of slots, which allocate once for all their slots"};
  if (!context.device->has(gpumap::Backend::cuda)) {
    report.not_measured.push_back("import and drop import: " + context.device->info().name + " has no CUDA");
  }
  return make_report(report);
}

}  // namespace bench
