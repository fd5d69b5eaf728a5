// SPDX-License-Identifier: MIT
// gpumap-bench: one program, one mode for each question. A mode measures, and fills in rows and confessions; main()
// prints, judges, stores and plots them, the same way for all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <gpumap/device.hpp>
#include <gpumap/kernel.hpp>
#include <gpumap/memory.hpp>
#include <gpumap/queue.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "figures.hpp"

namespace bench {

/// For waits of queues: nobody cancels a benchmark.
inline constinit const std::atomic<bool> never{false};

struct Options {
  std::vector<std::string> modes;  ///< empty: all
  std::string device = "auto";
  std::string backend = "auto";
  bool quick = false;
  std::vector<unsigned> threads;   ///< empty: the mode's own choice
  std::vector<std::size_t> sizes;  ///< empty: the mode's own choice
  std::string json_file, svg_file, from_file, commit;
  bool check = false;
};

/// What the project promises of a GPU. Software is measured and never judged.
struct Target {
  std::string claim;
  double value = 0;
  enum class Limit { at_least, at_most } limit = Limit::at_most;
  double bound = 0;
  [[nodiscard]] bool met() const { return limit == Limit::at_most ? value <= bound : value >= bound; }
};

/// What every mode works on.
struct Context {
  Options options;
  std::shared_ptr<gpumap::Device> device;
  gpumap::Backend backend = gpumap::Backend::vulkan;
  std::vector<Target> targets{};  ///< a mode adds its own

  [[nodiscard]] bool software() const { return device->info().software; }
  /// Few and small: for CI, and for a CPU that plays GPU.
  [[nodiscard]] bool small() const { return options.quick || software(); }
  /// options.threads and options.sizes where given.
  [[nodiscard]] std::vector<unsigned> threads(const std::vector<unsigned>& otherwise) const;
  [[nodiscard]] std::vector<std::size_t> sizes(const std::vector<std::size_t>& otherwise) const;
  [[nodiscard]] std::unique_ptr<gpumap::Queue> create_queue() const { return device->create_queue(backend); }
  [[nodiscard]] std::shared_ptr<gpumap::Mapping> allocate(gpumap::Placement placement, std::size_t bytes) const {
    return device->allocate({.placement = placement, .bytes = bytes}, backend);
  }
};

/// One line of the table.
struct Row {
  std::string path;      ///< "bar", "pinned, DMA", …
  std::string detail{};  ///< what tells this group of rows from others: "cold", "in place, nothing", …
  std::size_t bytes = 0;
  unsigned threads = 1;            ///< that store
  bool rival = false;              ///< what others do, or what a bound is: `ratio` is to the best of these
  Summary time{};                  ///< of one frame, copy, round trip or call
  std::optional<double> cpu_us{};  ///< process CPU time of one, all threads; empty: not measured
  bool rate = false;               ///< bytes / median is a figure that means something
  double ratio = 0;                ///< median over that of the best other rival; 0: there is none
  std::string against{};           ///< that rival
};

struct ModeReport {
  std::string what{};  ///< in a sentence: what its times are
  std::vector<Row> rows{};
  std::vector<std::string> not_measured{};
  nlohmann::json extra = nlohmann::json::object();  ///< merged into the mode's JSON

  /// A row of these times, each of which is of `parts` of what the row is about.
  Row& add(Row row, std::vector<std::int64_t>& ns, double parts = 1) {
    row.time = summarise(ns);
    row.time /= parts;
    return rows.emplace_back(std::move(row));
  }
};

// The modes. They throw gpumap::Error, or std::runtime_error for bytes that arrived changed.
void run_bw(Context& context, ModeReport& report);
void run_frame(Context& context, ModeReport& report);
void run_pingpong(Context& context, ModeReport& report);
void run_launch(Context& context, ModeReport& report);
void run_kernels(Context& context, ModeReport& report);
void run_spans(Context& context, ModeReport& report);
void run_ring(Context& context, ModeReport& report);
void run_link(Context& context, ModeReport& report);
void run_stalls(Context& context, ModeReport& report);
/// A consumer of run_link(), in a process of its own, until the server ends. What it returns is the exit status.
[[nodiscard]] int consume(const std::vector<std::string>& words);

/// What `frame` and `bw` measured, through gnuplot. Throws std::runtime_error that tells how to get it.
void write_svg(const nlohmann::json& report, const std::string& file);

/// Process CPU time, all threads.
[[nodiscard]] std::int64_t cpu_ns();

/// Wait by polling, which is the clock of all modes. Throws Error(device_lost).
void poll(const gpumap::Fence& fence);

}  // namespace bench
