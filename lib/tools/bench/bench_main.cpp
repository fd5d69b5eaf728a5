// SPDX-License-Identifier: MIT
// Measures what gpumap promises, against what people use today, on this machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <gpumap/copy.hpp>
#include <gpumap/error.hpp>
#include <gpumap/printable.hpp>
#include <string_view>

#include "bench.hpp"

namespace bench {

std::vector<unsigned> Context::threads(const std::vector<unsigned>& otherwise) const {
  return options.threads.empty() ? otherwise : options.threads;
}

std::vector<std::size_t> Context::sizes(const std::vector<std::size_t>& otherwise) const {
  return options.sizes.empty() ? otherwise : options.sizes;
}

std::int64_t cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void poll(const gpumap::Fence& fence) {
  if (spin_until([&] { return fence.signalled(); })) return;
  fence.timeline()->check();
  throw gpumap::Error(gpumap::ErrorCode::device_lost, "GPU work did not end within 10 s");
}

namespace {

nlohmann::json to_json(const Row& row) {
  nlohmann::json made = bench::to_json(row.time);
  made["path"] = row.path;
  made["detail"] = row.detail;
  made["bytes"] = row.bytes;
  made["threads"] = row.threads;
  made["rival"] = row.rival;
  made["times"] = row.time.count;
  if (row.cpu_us) made["cpu_us"] = *row.cpu_us;
  if (row.rate && row.time.median_us > 0) {
    made["gb_per_s"] = static_cast<double>(row.bytes) / row.time.median_us / 1e3;
  }
  if (row.ratio > 0) {
    made["ratio"] = row.ratio;
    made["against"] = row.against;
  }
  return made;
}

std::string cell(const nlohmann::json& row, const char* key, int digits) {
  return row.contains(key) ? fmt::format("{:.{}f}", row[key].get<double>(), digits) : "";
}

/// Fill in ratio and against: the rivals of a row have its bytes and detail, and no more threads than it.
void set_ratios(std::vector<Row>& rows) {
  for (Row& row : rows) {
    double best = 0;
    for (const Row& other : rows) {
      if (&other == &row || !other.rival || other.bytes != row.bytes || other.detail != row.detail) continue;
      if (other.threads > row.threads || other.time.median_us <= 0) continue;
      if (best != 0 && other.time.median_us >= best) continue;
      best = other.time.median_us;
      row.ratio = row.time.median_us / best;
      row.against = other.threads > 1 ? fmt::format("{}, {} threads", other.path, other.threads) : other.path;
    }
  }
}

nlohmann::json to_json(std::string_view mode, ModeReport& report) {
  set_ratios(report.rows);
  nlohmann::json made = report.extra;
  made["mode"] = mode;
  made["what"] = report.what;
  made["rows"] = nlohmann::json::array();
  for (const Row& row : report.rows) made["rows"].push_back(to_json(row));
  made["not_measured"] = report.not_measured;
  return made;
}

void print_table(const nlohmann::json& mode, bool software) {
  const char* mark = software ? "  *software*" : "";
  fmt::print("\n{}: {}{}\n", mode["mode"].get<std::string>(), mode["what"].get<std::string>(), mark);
  fmt::print("{:<28} {:<22} {:>10} {:>3} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7} {:>6}  {}\n", "path", "", "bytes",
             "thr", "min us", "P50 us", "P90 us", "P99 us", "CPU us", "GB/s", "ratio", "against");
  for (const auto& row : mode["rows"]) {
    fmt::print("{:<28} {:<22} {:>10} {:>3} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10} {:>7} {:>6}  {}{}\n",
               row["path"].get<std::string>(), row["detail"].get<std::string>(), row["bytes"].get<std::size_t>(),
               row["threads"].get<unsigned>(), row["min_us"].get<double>(), row["median_us"].get<double>(),
               row["p90_us"].get<double>(), row["p99_us"].get<double>(), cell(row, "cpu_us", 2),
               cell(row, "gb_per_s", 3), cell(row, "ratio", 2), row.value("against", ""), mark);
  }
  for (const auto& what : mode["not_measured"]) fmt::print("not measured: {}\n", what.get<std::string>());
}

struct Mode {
  std::string_view name;
  void (*run)(Context&, ModeReport&);
};
constexpr std::array modes{
    Mode{"stalls", run_stalls},     Mode{"ring", run_ring},
    Mode{"link", run_link},         Mode{"bw", run_bw},
    Mode{"frame", run_frame},       Mode{"launch", run_launch},
    Mode{"pingpong", run_pingpong}, Mode{"kernels", run_kernels},
    Mode{"spans", run_spans},
};

std::vector<std::string> mode_names() {
  std::vector<std::string> names;
  for (const Mode& mode : modes) names.emplace_back(mode.name);
  return names;
}

/// Prints and stores the verdicts; false when one is missed on hardware.
bool judge(const Context& context, nlohmann::json& report) {
  bool all = true;
  report["targets"] = nlohmann::json::array();
  for (const Target& target : context.targets) {
    const bool least = target.limit == Target::Limit::at_least;
    nlohmann::json made{{"claim", target.claim},
                        {"value", target.value},
                        {"limit", least ? "at least" : "at most"},
                        {"bound", target.bound}};
    if (context.software()) {
      report["targets"].push_back(made);
      continue;
    }
    made["met"] = target.met();
    all = all && target.met();
    report["targets"].push_back(made);
    fmt::print("{:<6} {:<78} {:>8.3f}, target {} {}\n", target.met() ? "met" : "MISSED", target.claim, target.value,
               made["limit"].get<std::string>(), target.bound);
  }
  return all;
}

/// Draw what was measured where there may be no gnuplot.
int draw(const Options& options) {
  std::ifstream in(options.from_file);
  if (!in) throw std::runtime_error("cannot read " + options.from_file);
  try {
    write_svg(nlohmann::json::parse(in), options.svg_file);
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(fmt::format("{} is not what this gpumap-bench writes ({}): measure again with --json",
                                         options.from_file, error.what()));
  }
  return 0;
}

int run(const Options& options) {
  check_writable({options.json_file, options.svg_file});
  Context context{.options = options, .device = gpumap::Device::open(options.device)};
  const gpumap::DeviceInfo& info = context.device->info();
  context.backend = context.device->default_backend();
  if (options.backend != "auto") {
    context.backend = options.backend == "cuda" ? gpumap::Backend::cuda : gpumap::Backend::vulkan;
  }
  const std::string backend = gpumap::value_name(context.backend);
  const std::string driver =
      context.backend == gpumap::Backend::cuda ? info.vulkan_driver + ", CUDA " + info.cuda_driver : info.vulkan_driver;
  nlohmann::json report{{"benchmark", "gpumap-bench"},
                        {"version", GPUMAP_VERSION},
                        {"device", info.name},
                        {"software", info.software},
                        {"driver", driver},
                        {"backend", backend},
                        {"transport", gpumap::to_string(info.access)},
                        {"window_bytes", info.window_bytes},
                        {"cpu", cpu_name()},
                        {"cores", std::thread::hardware_concurrency()},
                        {"store_kernel", gpumap::stream_copy_name()},
                        {"commit", options.commit},
                        {"quick", options.quick},
                        {"modes", nlohmann::json::array()}};
  fmt::print("{}{}, {}, kernels through {}\n{}, {} cores, store kernel {}{}\n", info.name,
             info.software ? " *software: these are no figures of a GPU*" : "", driver, backend, cpu_name(),
             std::thread::hardware_concurrency(), gpumap::stream_copy_name(),
             options.commit.empty() ? "" : ", commit " + options.commit);

  // What was measured is written, whatever becomes of the rest.
  std::exception_ptr trouble;
  bool all = true;
  try {
    for (const Mode& mode : modes) {
      const auto& wanted = options.modes;
      if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), mode.name) == wanted.end()) continue;
      const std::int64_t began = now_ns();
      ModeReport rows;
      mode.run(context, rows);
      nlohmann::json measured = to_json(mode.name, rows);
      measured["seconds"] = static_cast<double>(now_ns() - began) / 1e9;
      measured["software"] = info.software;
      print_table(report["modes"].emplace_back(std::move(measured)), info.software);
      std::fflush(stdout);
    }

    fmt::print("\n");
    all = judge(context, report);
    std::fflush(stdout);
    if (std::ferror(stdout) != 0) throw std::runtime_error("cannot write to standard output");
  } catch (const std::exception& error) {
    report["error"] = error.what();
    trouble = std::current_exception();
  }
  if (!options.json_file.empty()) write_file(options.json_file, report.dump(1) + "\n");
  if (!options.svg_file.empty()) write_svg(report, options.svg_file);
  if (trouble) std::rethrow_exception(trouble);
  return options.check && !all ? 1 : 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  CLI::App app{
      "Bytes and frames into GPU memory: bandwidth, set-up, time to the end of a kernel, against what people "
      "use today"};
  app.set_version_flag("--version", "gpumap-bench " GPUMAP_VERSION);
  bench::Options options;
  app.add_option("mode", options.modes, "What to measure; all without")->check(CLI::IsMember(bench::mode_names()));
  app.add_option("--device", options.device, "GPU: auto, an index, a UUID or a PCI address");
  app.add_option("--backend", options.backend, "What runs the kernels")
      ->check(CLI::IsMember({"auto", "cuda", "vulkan"}));
  app.add_flag("--quick", options.quick, "Small counts: does it run?");
  app.add_option("--threads", options.threads, "Threads that store, such as 1,2,4,8")
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  app.add_option("--sizes", options.sizes, "Bytes, such as 65536,3110400")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 34));
  app.add_option("--json", options.json_file, "Write the figures there");
  CLI::Option* svg = app.add_option("--svg", options.svg_file, "Draw those of frame and bw there, with gnuplot");
  app.add_option("--from", options.from_file, "Measure nothing: draw the JSON of an earlier run")->needs(svg);
  app.add_option("--commit", options.commit, "Commit to note in the JSON");
  std::vector<std::string> consumer;
  app.add_option("--consume", consumer)->expected(5)->group("");  // what mode link starts; in no --help
  app.add_flag("--check", options.check, "On a GPU, exit 1 when a target is missed");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    if (!consumer.empty()) return bench::consume(consumer);
    return options.from_file.empty() ? bench::run(options) : bench::draw(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpumap-bench: {}\n", gpumap::printable(error.what(), "\n\t"));
    return 1;
  }
}
