// SPDX-License-Identifier: MIT
// The floor of every tail: how often the machine stops threads that do nothing but read the clock, and how long what
// takes some us takes then. No gpumap, no GStreamer, no GPU in it. As the elements' threads these are not bound to
// cores, and spin. Not measured: what the GPU or PCIe delays.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "figures.hpp"

namespace {

constexpr std::array<std::int64_t, 6> limits_us{5, 10, 20, 50, 100, 1000};
/// Between two looks at the clock: what is above was not the thread's own time.
constexpr std::int64_t own_ns = 1000;

struct Options {
  unsigned threads = 2;
  double seconds = 20;
  double frame_us = 7;
  std::string json;
};

struct Stalls {
  std::array<std::uint64_t, limits_us.size()> at_least{};
  std::int64_t longest_ns = 0;
  std::int64_t preemptions = 0;
  std::vector<std::int64_t> frames_ns;
};

void spin(const Options& options, Stalls& out) {
  const auto frame_ns = static_cast<std::int64_t>(options.frame_us * 1e3);
  // Every page written before the clock runs: a first touch is a stop of the thread's own making.
  out.frames_ns.resize(static_cast<std::size_t>(options.seconds * 1e6 / options.frame_us) + 1);
  out.frames_ns.clear();
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_THREAD, &before);
  std::int64_t last = bench::now_ns();
  const std::int64_t end = last + static_cast<std::int64_t>(options.seconds * 1e9);
  std::int64_t began = last;
  std::int64_t own = 0;
  while (last < end) {
    const std::int64_t now = bench::now_ns();
    const std::int64_t gap = now - last;
    last = now;
    if (gap >= limits_us[0] * 1000) {
      for (std::size_t i = 0; i < limits_us.size(); ++i) out.at_least[i] += gap >= limits_us[i] * 1000 ? 1 : 0;
      out.longest_ns = std::max(out.longest_ns, gap);
    }
    own += std::min(gap, own_ns);
    if (own < frame_ns) continue;
    out.frames_ns.push_back(now - began);
    began = now;
    own = 0;
  }
  getrusage(RUSAGE_THREAD, &after);
  out.preemptions = after.ru_nivcsw - before.ru_nivcsw;
}

nlohmann::json measure(const Options& options) {
  std::vector<Stalls> all(options.threads);
  {
    std::vector<std::jthread> threads;
    for (Stalls& one : all) threads.emplace_back([&options, &one] { spin(options, one); });
  }
  const double thread_seconds = options.seconds * options.threads;
  std::cout << fmt::format(
      "{}, {} CPUs: {} threads that read the clock for {} s\n\n"
      "stopped for   times a second, each thread\n",
      bench::cpu_name(), std::thread::hardware_concurrency(), options.threads, options.seconds);
  nlohmann::json stops = nlohmann::json::array();
  for (std::size_t i = 0; i < limits_us.size(); ++i) {
    std::uint64_t times = 0;
    for (const Stalls& one : all) times += one.at_least[i];
    const double rate = static_cast<double>(times) / thread_seconds;
    std::cout << fmt::format(">= {:4} us    {:14.2f}\n", limits_us[i], rate);
    stops.push_back({{"at_least_us", limits_us[i]}, {"times_a_second", rate}});
  }
  std::int64_t longest = 0;
  std::int64_t preemptions = 0;
  std::vector<std::int64_t> frames;
  for (const Stalls& one : all) {
    longest = std::max(longest, one.longest_ns);
    preemptions += one.preemptions;
    frames.insert(frames.end(), one.frames_ns.begin(), one.frames_ns.end());
  }
  const double preempted = static_cast<double>(preemptions) / thread_seconds;
  const std::size_t count = frames.size();
  const bench::Summary frame = bench::summarise(frames);
  std::cout << fmt::format(
      "longest {:.0f} us; {:.2f} times a second, each, this system's scheduler gave the CPU to another thread\n\n"
      "{} pieces of work of {} us took: P50 {:.1f} us, P99 {:.1f}, P99.9 {:.1f}, max {:.1f}\n",
      static_cast<double>(longest) / 1e3, preempted, count, options.frame_us, frame.median_us, frame.p99_us,
      frame.p999_us, frame.max_us);
  return {{"cpu", bench::cpu_name()},
          {"threads", options.threads},
          {"seconds", options.seconds},
          {"stops", std::move(stops)},
          {"longest_us", static_cast<double>(longest) / 1e3},
          {"preempted_a_second", preempted},
          {"frame_us", options.frame_us},
          {"frames", count},
          {"frame", to_json(frame)}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("How often the machine stops threads that spin, and how long some us of work take then");
  app.add_option("--threads", options.threads, "That spin at a time")->check(CLI::Range(1U, 1024U));
  app.add_option("--seconds", options.seconds, "How long")->check(CLI::Range(0.01, 3600.0));
  app.add_option("--frame-us", options.frame_us, "Of a piece of work, of the thread's own time")
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--json", options.json, "Write the figures there");
  CLI11_PARSE(app, argc, argv);
  try {
    const nlohmann::json report = measure(options);
    if (!options.json.empty() && !(std::ofstream(options.json) << report.dump(2) << '\n')) {
      throw std::runtime_error(options.json + ": cannot write");
    }
  } catch (const std::exception& error) {
    std::cerr << "stall-bench: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
