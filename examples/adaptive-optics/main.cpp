// SPDX-License-Identifier: MIT
//
// A loop of adaptive optics around the kernels commands.cu or commands.comp: options, and the report of a run.
// Started by the command `run` beside it.
#include <fmt/format.h>
#include <gst/gst.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "load.hpp"
#include "loop.hpp"

namespace {

using namespace adaptive_optics;

std::atomic<bool> interrupted{false};

struct Options {
  LoopOptions loop;
  std::filesystem::path out = ".";
  std::string size = "extreme";
  std::optional<unsigned> busy_poll_us;
  unsigned load = 0;
  std::uint32_t seed = 1;
  std::vector<std::string> modes{"launch"};
};

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int /*signal*/) { interrupted = true; };  // a second one ends the program
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

/// 1234567 as 1,234,567.
std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

/// To the terminal and to summary.txt.
class Summary {
 public:
  explicit Summary(const std::filesystem::path& folder) : file_(folder / "summary.txt") {
    if (!file_) throw std::runtime_error("cannot write " + (folder / "summary.txt").string());
  }
  void add(const std::string& line) {
    file_ << line << '\n';
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }

 private:
  std::ofstream file_;
};

/// How many frames there are, in one line that is written over, where standard error is a terminal.
class Progress {
 public:
  ~Progress() { clear(); }
  void say(std::uint64_t frames) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - told_ < std::chrono::milliseconds(200)) return;
    told_ = now;
    fmt::print(stderr, "\r\033[K  {} frames", grouped(frames));
  }
  void clear() const {
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point told_;
};

std::string checked(const LoopFigures& figures) {
  if (figures.checks_all) return fmt::format("each command of all {} frames", grouped(figures.checked_frames));
  return fmt::format("a command of each of all {} frames, and each command of {} of them, as many as one CPU could",
                     grouped(figures.frames), grouped(figures.checked_frames));
}

void tell(Summary& summary, const LoopFigures& figures) {
  const Latencies& times = figures.latencies;
  const auto frames = static_cast<double>(times.count());
  const double median = times.percentile(0.5);
  constexpr double late_us = 50;
  summary.add(fmt::format("device           {}, {}", figures.device, figures.transport));
  summary.add(fmt::format("frames           {} in {:.2f} s, {} before them do not count", grouped(times.count()),
                          figures.seconds, warm_up));
  summary.add(
      fmt::format("rate             {} frames/s", grouped(static_cast<std::uint64_t>(frames / figures.seconds))));
  summary.add(fmt::format("latency          P50 {:.1f} us, P99 {:.1f} us, P99.9 {:.1f} us, max {:.1f} us", median,
                          times.percentile(0.99), times.percentile(0.999), times.max()));
  summary.add(fmt::format("jitter           {:.2f} us RMS", times.jitter()));
  summary.add(fmt::format("late             {} frames came more than {} us after the median",
                          grouped(times.above(median + late_us)), late_us));
  summary.add(fmt::format("checked          {}: the largest error of a command is {:.4f} of its bound",
                          checked(figures), figures.worst_of_bound));
  if (figures.wavefronts.residual() > 0) {
    summary.add(fmt::format("wavefront error  {:.0f} nm RMS with a flat mirror, {:.0f} nm RMS with the loop closed",
                            figures.wavefronts.of_air(), figures.wavefronts.residual()));
  }
}

void run_mode(const Options& options, Telescope& telescope, const std::shared_ptr<const Tables>& tables,
              Summary& summary) {
  LoopFigures figures;
  {
    Progress progress;
    figures =
        run_loop(options.loop, telescope, tables, interrupted, [&](std::uint64_t frames) { progress.say(frames); });
  }
  if (interrupted) summary.add(fmt::format("Ended by the user after {} frames.", grouped(figures.frames)));
  if (figures.latencies.count() == 0) {
    throw std::runtime_error(fmt::format("there are no figures: the first {} frames do not count", warm_up));
  }
  tell(summary, figures);
  figures.latencies.write(options.out / fmt::format("latency-{}.txt", options.loop.mode));
  figures.wavefronts.write(options.out / "wavefront.txt");
}

int run(Options& options) {
  const Load load(options.load);  // before there are threads
  gst_init(nullptr, nullptr);
  catch_interrupts();
  const bool small = options.size == "small";
  LoopOptions& loop = options.loop;
  loop.size = small ? small_size : extreme_size;
  loop.folder = options.out;
  loop.busy_poll_us = options.busy_poll_us.value_or(small ? 0 : 1000);
  if (!loop.frames && !loop.seconds) loop.frames = small ? 2000 : 1'000'000;

  Summary summary(options.out);
  const Size& size = loop.size;
  summary.add(
      fmt::format("system           {0}x{0} pixels, {1} subapertures: {2} measurements, {3} modes, {4} actuators",
                  size.width(), size.subapertures, size.measurements(), size.modes, size.actuators));
  Telescope telescope(size, options.seed);
  const auto began = std::chrono::steady_clock::now();
  const auto tables = std::make_shared<const Tables>(make_tables(telescope, size));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - began;
  summary.add(fmt::format("matrices         {0} x {1} and {1} x {2} of float32, made in {3:.1f} s", size.measurements(),
                          size.modes, size.actuators, taken.count()));
  for (const std::string& mode : options.modes) {
    if (interrupted) break;
    loop.mode = mode;
    summary.add(fmt::format("kernel           {}, {}, busy-poll={}{}", loop.kernel.filename().string(),
                            mode == "resident" ? "which stays on the GPU" : "launched for each frame",
                            loop.busy_poll_us,
                            options.load > 0 ? fmt::format(", beside {} busy processes", options.load) : ""));
    run_mode(options, telescope, tables, summary);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Close a loop of adaptive optics through the GPU: pixels to slopes to modes to commands.");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--out", options.out, "Folder for the results")->check(CLI::ExistingDirectory);
  app.add_option("--kernel", options.loop.kernel, "commands.cu or commands.comp")->check(CLI::ExistingFile)->required();
  app.add_option("--size", options.size, "extreme: 6827 x 1089 and 1089 x 1833; small: 227 x 47 and 47 x 57 [extreme]")
      ->check(CLI::IsMember({"extreme", "small"}));
  CLI::Option* frames = app.add_option("--frames", options.loop.frames, "Frames to run for [1000000; of small 2000]")
                            ->check(CLI::Range(std::uint64_t{200}, std::uint64_t{1} << 40U));
  app.add_option("--seconds", options.loop.seconds, "Seconds to run for, instead of a number of frames")
      ->check(CLI::Range(0.1, 1e7))
      ->check([](const std::string& text) {  // a range takes NaN, which is neither below nor above any bound
        return std::string(std::isnan(std::strtod(text.c_str(), nullptr)) ? "that is no number" : "");
      })
      ->excludes(frames);
  app.add_option("--mode", options.modes,
                 "How frames come to the kernel, one after the other: launch,resident [launch]")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::IsMember({"launch", "resident"}));
  app.add_option("--blocks", options.loop.resident_blocks,
                 "Blocks of the kernel that stay, where it does; 0: gpumapkernel's default [528]")
      ->check(CLI::Range(0U, 65535U));
  app.add_option("--load", options.load, "Processes beside it that keep a CPU busy each [0]")
      ->check(CLI::Range(0U, 4096U));
  app.add_option("--busy-poll", options.busy_poll_us, "us that threads spin before they sleep [1000; of small 0]")
      ->check(CLI::Range(0U, 1'000'000U));
  app.add_option("--seed", options.seed, "Of the air, the noise and the sensor [1]");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpumap-adaptive-optics: {}\n", error.what());
    return 1;
  }
}
