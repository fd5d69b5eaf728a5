// SPDX-License-Identifier: MIT
// How fast a CPU stores into slots, by size, store kernel and threads, and how fast what else there is.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>

#include "ways.hpp"

namespace bench {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;
constexpr std::size_t hd_bytes = 3'110'400;

class Measurement {
 public:
  Measurement(const Context& context, Ways& ways, std::size_t bytes) : context_(context), ways_(ways), bytes_(bytes) {
    ways.set_bytes(bytes);
    for (const Way& way : ways.all()) {
      if (bytes <= way.max_bytes) runs_.push_back({.way = &way});
    }
  }

  void measure() {
    std::mt19937 order(static_cast<unsigned>(bytes_));  // NOLINT(cert-msc51-cpp): the same in every run
    for (Run& run : runs_) size_visits(run);
    for (unsigned round = 0; round < rounds(); ++round) {
      // In another order each time: what follows a download, say, finds the caches full of what that left to be
      // written.
      std::shuffle(runs_.begin(), runs_.end(), order);
      for (Run& run : runs_) {
        for (int i = 0; i < (run.way->warm ? 3 : 1); ++i) static_cast<void>(sample(run));  // wakes helpers, warms
        const std::int64_t before = cpu_ns();
        for (std::size_t i = 0; i < run.visit; ++i) run.ns.push_back(sample(run));
        run.cpu_ns += cpu_ns() - before;
      }
    }
    std::sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.way < b.way; });
    for (const Run& run : runs_) verify(*run.way);
  }

  [[nodiscard]] std::vector<Row> rows() {
    std::vector<Row> made;
    for (Run& run : runs_) {
      const double copies = static_cast<double>(run.ns.size()) * static_cast<double>(batch(*run.way));
      made.push_back({.path = run.way->path,
                      .detail = run.way->detail,
                      .bytes = bytes_,
                      .threads = run.way->threads,
                      .rival = run.way->rival,
                      .time = summarise(run.ns),
                      .cpu_us = static_cast<double>(run.cpu_ns) / copies / 1e3});
      made.back().time /= static_cast<double>(batch(*run.way));
    }
    set_ratios(made);
    return made;
  }

 private:
  struct Run {
    const Way* way;
    std::vector<std::int64_t> ns{};  // of a batch
    std::int64_t cpu_ns = 0;
    std::size_t visit = 1;  // batches in each round
  };

  [[nodiscard]] unsigned rounds() const { return context_.small() ? 2 : 6; }

  /// Small copies are timed many at once: reading the clock takes as long as they do.
  [[nodiscard]] std::size_t batch(const Way& way) const {
    constexpr std::size_t worth_timing = 64 * kib;
    return way.waits || bytes_ >= worth_timing ? 1 : worth_timing / bytes_;
  }

  [[nodiscard]] std::size_t offset(std::uint64_t n) const {
    constexpr std::size_t line = 64;
    const std::size_t stride = (bytes_ + line - 1) / line * line;
    return n % (ways_.region_bytes() / stride) * stride;
  }

  std::int64_t sample(const Run& run) {
    const Way& way = *run.way;
    const std::int64_t began = now_ns();
    for (std::size_t i = batch(way); i > 0; --i) {
      ++copies_;
      way.copy(way.warm ? 0 : offset(copies_), offset(copies_));
    }
    return now_ns() - began;
  }

  void size_visits(Run& run) {
    const double budget_ns = context_.small() ? 1e6 : 30e6;
    static_cast<void>(sample(run));
    const auto one = static_cast<double>(std::max<std::int64_t>(sample(run), 1));
    run.visit = static_cast<std::size_t>(std::clamp(budget_ns / one, context_.small() ? 4.0 : 18.0, 2000.0)) / rounds();
  }

  void verify(const Way& way) {
    std::vector<std::byte> back(bytes_);
    const std::size_t from = offset(++copies_);
    const std::size_t to = offset(copies_ + 1);
    if (way.prepare) way.prepare(from);
    way.copy(from, to);
    way.fetch(from, to, back);
    if (std::memcmp(back.data(), ways_.source() + from, bytes_) == 0) return;
    throw std::runtime_error(
        fmt::format("{} with {} threads changed bytes of {} on the way; no figure of this run counts", way.path,
                    way.threads, bytes_));
  }

  const Context& context_;
  Ways& ways_;
  std::size_t bytes_;
  std::vector<Run> runs_;
  std::uint64_t copies_ = 0;
};

double gb_per_s(const Row& row) {
  return row.time.median_us > 0 ? static_cast<double>(row.bytes) / row.time.median_us / 1e3 : 0;
}

void judge(Context& context, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (row.path != "bar") continue;
    const bool warm_alone = row.detail == "warm" && row.threads == 1;
    if (warm_alone && row.bytes >= 64 * kib) {
      double bare = 0;
      double host = 0;
      for (const Row& other : rows) {
        if (other.bytes != row.bytes || other.detail != row.detail) continue;
        if (other.path.rfind("bare loop", 0) == 0) bare = std::max(bare, gb_per_s(other));
        if (other.path == "host-to-host memcpy") host = gb_per_s(other);
      }
      const auto add = [&](const char* against, double rival) {
        if (rival <= 0) return;
        context.targets.push_back({fmt::format("stores of {} bytes, 1 thread, warm, over {}", row.bytes, against),
                                   gb_per_s(row) / rival, Target::Limit::at_least, 0.97});
      };
      add("the best bare loop", bare);
      add("host-to-host memcpy", host);
    }
    if (warm_alone && row.bytes == 4 * kib) {
      context.targets.push_back({"GB/s of 4 KiB stores, 1 thread, warm", gb_per_s(row), Target::Limit::at_least, 12.5});
    }
    if (row.detail == "cold" && row.threads == 4 && row.bytes >= hd_bytes) {
      context.targets.push_back({fmt::format("GB/s of stores of {} bytes, 4 threads, cold", row.bytes), gb_per_s(row),
                                 Target::Limit::at_least, 30});
    }
  }
}

}  // namespace

nlohmann::json run_bw(Context& context) {
  const bool small = context.small();
  const auto sizes = context.sizes(small ? std::vector<std::size_t>{64, 4 * kib, 64 * kib, mib}
                                         : std::vector<std::size_t>{64, 256, kib, 4 * kib, 16 * kib, 64 * kib,
                                                                    256 * kib, mib, hd_bytes, 12'441'600, 64 * mib});
  const auto threads = context.threads(small ? std::vector<unsigned>{1, 2} : std::vector<unsigned>{1, 2, 4, 8});
  const std::size_t largest = *std::max_element(sizes.begin(), sizes.end());

  // More than the caches hold, and no more than half of what the window has left.
  const std::size_t wished = (small ? 8 : 256) * mib;
  constexpr std::size_t line = 64;  // where each copy begins
  const std::size_t region = std::max((largest + line - 1) / line * line,
                                      std::min<std::size_t>(wished, context.device->window_free_bytes() / 2));
  Gpu gpu(context);
  Source source(context, region);
  Copiers copiers(context, threads);
  Ways ways(context, gpu, source, copiers, region);
  ModeReport report{.mode = "bw",
                    .what =
                        "one copy: 'cold' from a source that no cache holds, 'warm' from the same bytes each time; "
                        "stores until the CPU's fence, DMA until the CPU sees it done"};
  report.extra["choices"] = nlohmann::json::array();
  for (const std::size_t bytes : sizes) {
    for (const Copiers::Of& of : copiers.all) {
      const gpumap::Copier::Plan plan = of.copier->plan_for(bytes);
      report.extra["choices"].push_back({{"path", "bar"},
                                         {"threads", of.threads},
                                         {"bytes", bytes},
                                         {"choice", fmt::format("{}, {} threads", plan.kernel, plan.threads)}});
    }
    Measurement measurement(context, ways, bytes);
    measurement.measure();
    for (Row& row : measurement.rows()) report.rows.push_back(std::move(row));
  }
  judge(context, report.rows);
  report.extra["region_bytes"] = region;
  report.not_measured = {"when the last store reaches GPU memory: see frame, whose clock ends with a kernel",
                         "several GPUs, or other traffic on the same PCIe link",
                         "copies shorter than a clock read one by one: those below 64 KiB are timed in batches, and "
                         "their figures, P99.9 and the maximum too, are of a batch's time over its copies"};
  return make_report(report);
}

}  // namespace bench
