// SPDX-License-Identifier: MIT
//
// gpumap-latency: where the time of a frame goes on its way into a GPU kernel, over each transport, on this machine.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gst/gst.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gpumap/device.hpp>
#include <gpumap/latency.hpp>
#include <gpumap/printable.hpp>
#include <gpumap/ring.hpp>
#include <set>
#include <string>
#include <system_error>

#include "gst/tools/latency/far_producer.hpp"
#include "gst/tools/latency/latency_watch.hpp"
#include "gst/tools/latency/report_page.hpp"

namespace latency {
namespace {

constexpr const char* description =
    "Measures where the time of a frame goes on its way from a GStreamer element into a GPU kernel: once for\n"
    "each size, transport, fence and kernel mode, in turns, so that a drift of the machine hits all alike. Writes a\n"
    "table, and a page that needs nothing but a browser.\n\n"
    "The default kernel is checksum: it reads each byte of the frame where it lies and gives 8 bytes that the\n"
    "CPU waits for, so that \"until the result is visible\" has no copy of a result in it. --kernel identity (or\n"
    "any other) gives frames in ordinary memory, with a copy back; --kernel none stops at gpumapsrc.";

constexpr const char* examples =
    "Examples:\n"
    "  gpumap-latency                                           a short look; writes gpumap-latency.html\n"
    "  gpumap-latency --frames 64B,4KiB,64KiB,1080p,4K --fence sleep,spin --count 10000\n"
    "  gpumap-latency --frames 1080p --rate 60 --load 8         paced, with eight busy processes beside\n"
    "  gpumap-latency --upstream copy --frames 1080p,4K         a producer with memory of its own\n"
    "  gpumap-latency --processes 1,2 --fence spin,sleep        what it costs to have the producer in another process\n"
    "  gpumap-latency --pipeline \"v4l2src num-buffers=600 ! {sink}  {src} ! gpumapkernel kernel=convert ! fakesink\"\n"
    "  gpumap-latency --from result.json --html page.html       the page of a run on another machine";

/// Beside CLI::Range, which takes NaN: that is neither below nor above any bound.
std::string is_number(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? "that is no number" : "";
}

/// 0, or what makes times of 64 bits of however many frames.
std::string is_rate(const std::string& text) {
  if (std::string wrong = is_number(text); !wrong.empty()) return wrong;
  const double rate = std::strtod(text.c_str(), nullptr);
  return rate == 0 || (rate >= 1e-4 && rate <= 1e6) ? "" : "it is 0, or 0.0001 to 1000000 frames a second";
}

void on_interrupt(int signal) {
  interrupted = signal;  // a second one ends the program: the handler is gone by then
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // Its terminal is closed. With nohup it ignores that.
  struct sigaction before {};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  // The reader of the table may have gone: the files are written all the same.
  std::signal(SIGPIPE, SIG_IGN);
}

void add_options(CLI::App& app, Options& options) {
  app.footer(examples);
  const auto list = [&](const char* name, std::vector<std::string>& into, const char* what) {
    return app.add_option(name, into, what)->delimiter(',');
  };
  CLI::Option* frames = list("--frames", options.frames,
                             "Sizes: 64B, 4KiB, 1MiB (16-bit I and Q), 1080p, 4K, 640x480 (NV12) [4KiB,1080p]");
  std::vector<std::string> transports = transport_names();
  transports.emplace_back("auto");
  const std::string of_transports =
      fmt::format("Of {}; {}: gpumapupload in their place, in one thread; {}: a rival [all but auto]",
                  fmt::join(transports, ", "), upload_name, rival_name);
  transports.emplace_back(upload_name);
  transports.emplace_back(rival_name);
  list("--transports", options.transports, of_transports.c_str())->check(CLI::IsMember(transports));
  list("--fence", options.fences, "sleep: both sides of the ring sleep for each other; spin: they poll [sleep]")
      ->check(CLI::IsMember({"sleep", "spin"}));
  CLI::Option* mode = list("--mode", options.modes,
                           "Of the kernels: launch: for each frame; resident: they stay on the GPU, in CUDA [launch]")
                          ->check(CLI::IsMember({"launch", "resident"}));
  list("--processes", options.processes,
       "1: all in one process; 2: gpumapsink in one, gpumapsrc in another; 1,2: in turns, and what the second costs "
       "[1]");
  CLI::Option* upstream =
      app.add_option(
             "--upstream", options.upstream,
             "in-place: a producer that writes into the memory gpumapsink offers; copy: one with memory of its own, "
             "larger than the caches; videotestsrc: GStreamer's, for video, live where it is paced")
          ->check(CLI::IsMember({"in-place", "copy", "videotestsrc"}))
          ->capture_default_str();
  CLI::Option* kernel =
      list("--kernel", options.kernels,
           "At the end: a built-in, a file with one, gst:ELEMENT, several in a row as in NAME+FILE, or "
           "none [checksum]");
  CLI::Option* output = app.add_option(
      "--output", options.output,
      "Where frames end: gpu; host, which is waited for; or caps [gpu for checksum and files, else host]");
  output->check([](const std::string& text) {
    return text == "gpu" || text == "host" || text.find('/') != std::string::npos ? "" : "it is gpu, host or caps";
  });
  CLI::Option* pipeline =
      app.add_option("--pipeline", options.pipeline, "A gst-launch line of yours, with {sink} and {src} in it")
          ->excludes(frames, upstream, mode, kernel, output);
  app.add_option("--device", options.device, "GPU: auto, an index, a UUID or a PCI address")->capture_default_str();
  app.add_option("--count", options.count, "Frames of each case, all rounds together [1000; 200 on a software device]")
      ->check(CLI::Range(1.0, 1e12));
  app.add_option("--rounds", options.rounds, "Times that each case gets its turn")
      ->check(CLI::Range(1U, 10000U))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "First frames of each round, which do not count")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app.add_option("--rate", options.rate, "Frames a second of --upstream; 0: as fast as they go")
      ->check(is_rate)
      ->capture_default_str();
  app.add_option("--in-flight", options.in_flight,
                 "Frames under way at once; 0: as many as there are slots [1 where --rate is 0, else 0]")
      ->check(CLI::Range(0, 1000));
  app.add_option("--load", options.load, "Processes beside that keep a CPU busy each")->check(CLI::Range(0U, 4096U));
  app.add_option("--slots", options.slots, "Slots of the ring")
      ->check(CLI::Range(gpumap::min_slots, gpumap::max_slots))
      ->capture_default_str();
  app.add_option("--spin-us", options.spin_us, "Microseconds that spin spins before it sleeps")
      ->check(CLI::Range(1U, 1'000'000U))
      ->capture_default_str();
  app.add_option("--late-src", options.src_late_ms, "Start gpumapsrc that many ms after the rest")
      ->check(CLI::Range(0U, 3'600'000U));
  app.add_option("--timeout", options.timeout_s, "Seconds without a frame that end a round")
      ->check(CLI::Range(0.1, 1e6))
      ->check(is_number)
      ->capture_default_str();
  CLI::Option* html =
      app.add_option("--html", options.html_file, "The page [gpumap-latency.html where no file is asked for]");
  CLI::Option* json = app.add_option("--json", options.json_file, "All figures, and what the page is made of");
  CLI::Option* csv = app.add_option("--csv", options.csv_file,
                                    "Frames, one a line: all of them, or 8,192 of each case taken at random");
  app.add_option("--hgrm", options.hgrm_folder,
                 "A folder, made where there is none: the histogram of each case in HdrHistogram's format, in us");
  app.add_option("--from", options.from_file, "Measure nothing: make the page of the JSON of an earlier run")
      ->needs(html)
      ->excludes(json, csv);
  app.add_option("--commit", options.commit, "Commit to note in the JSON");
  CLI::Option* unstamped =
      app.add_flag("!--without-stamps", options.stamps,
                   "Time no frame, only count: frames a second and CPU time without the stamps' cost");
  unstamped->excludes(pipeline);
  app.add_flag("--brief", options.brief, "No table of stages on the terminal");
  app.add_flag("--as-producer", options.as_producer)->group("");  // what --processes 2 starts; in no --help
}

/// Before anything is measured: throws UsageError where no file can be made in the folder of --hgrm.
void check_hgrm_folder(const Options& options) {
  if (options.hgrm_folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(options.hgrm_folder, error);
  if (!error && ::access(options.hgrm_folder.c_str(), W_OK | X_OK) != 0) error = {errno, std::generic_category()};
  if (!error) return;
  throw UsageError(fmt::format("cannot write into the folder {} of --hgrm: {}; nothing was measured",
                               options.hgrm_folder, error.message()));
}

/// A file for each case that has figures.
void write_hgrm(const Options& options, const Json& report) {
  const std::string headline = headline_of(report);
  std::set<std::string> names;
  for (const Json& one : report.at("cases")) {
    const std::string text = to_hgrm(one, headline);
    if (text.empty()) continue;
    std::string name = hgrm_name(one);
    while (!names.insert(name).second) name += "-again";  // kernels of the same name in two folders
    bench::write_file((std::filesystem::path(options.hgrm_folder) / (name + ".hgrm")).string(), text);
  }
  if (names.empty()) throw std::runtime_error("no file for --hgrm: no case has a histogram");
}

/// Each output is tried, whatever becomes of the others. False, and told: one could not be written.
bool write_results(const Options& options, const Json& report, const std::vector<std::unique_ptr<Outcome>>& outcomes) {
  bool all = true;
  const auto attempt = [&](const auto& write) {
    try {
      write();
    } catch (const std::exception& error) {
      all = false;
      std::fputs(fmt::format("gpumap-latency: {}\n", error.what()).c_str(), stderr);
    }
  };
  const auto print = [](const std::string& text) {
    errno = 0;
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
      throw std::runtime_error(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
    }
  };
  const auto give = [&](const char* what, const std::string& file, const auto& make) {
    if (file.empty()) return;
    bool written = false;
    attempt([&] {
      bench::write_file(file, make());
      written = true;
    });
    if (written) attempt([&] { print(fmt::format("{}: {}\n", what, file)); });
  };
  attempt([&] { print(to_table(report, options.brief) + "\n"); });
  // Names of devices and errors of drivers come as they are: what is no UTF-8 must not cost the whole report.
  give("figures", options.json_file, [&] { return report.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; });
  give("frames", options.csv_file, [&] { return to_csv(outcomes); });
  give("page", options.html_file, [&] { return to_page(report); });
  if (!options.hgrm_folder.empty()) {
    attempt([&] { write_hgrm(options, report); });
    attempt([&] { print(fmt::format("histograms: {}\n", options.hgrm_folder)); });
  }
  return all;
}

void show_progress(unsigned round, const Options& options, const Case& which) {
  // Whose terminal may be gone: that is no error.
  const std::string line =
      fmt::format("\r\x1b[Kround {}/{}: {}, {}", round + 1, options.rounds, which.frame.name, which.title());
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

void measure(const Options& options, std::vector<std::unique_ptr<Outcome>>& outcomes) {
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  for (unsigned round = 0; round < options.rounds && interrupted == 0; ++round) {
    // The remainder goes to the first rounds.
    const std::size_t frames = options.count / options.rounds + (round < options.count % options.rounds ? 1 : 0);
    for (std::size_t i = 0; i < outcomes.size() && interrupted == 0; ++i) {
      // Another one begins each round: none always comes after the same neighbour's heat.
      Outcome& outcome = *outcomes[(i + round) % outcomes.size()];
      if (!outcome.not_here.empty() || !outcome.error.empty()) continue;
      if (terminal) show_progress(round, options, outcome.which);
      run_round(outcome, options, round, frames);
    }
  }
  if (terminal) std::fputs("\r\x1b[K", stderr);
}

int run(Options& options, const std::vector<std::string>& command_line) {
  if (!options.pipeline.empty()) check_placeholders(options.pipeline);
  fill_in_defaults(options);
  const auto cases = cases_of(options);
  bench::check_writable({options.html_file, options.json_file, options.csv_file});
  check_hgrm_folder(options);

  const Load load(options.load);  // before there are threads
  gst_init(nullptr, nullptr);
  if (const std::string missing = missing_elements(); !missing.empty()) throw UsageError(missing);
  Json report{{"program", "gpumap-latency"}, {"format", 1}, {"version", GPUMAP_VERSION}, {"commit", options.commit}};
  report["machine"] = describe_machine(options.device);
  if (options.count == 0) options.count = report["machine"]["software"].get<bool>() ? 200 : 1000;
  options.rounds = static_cast<unsigned>(std::min<std::size_t>(options.rounds, options.count));  // a frame each
  report["options"] = describe_options(options, command_line);

  std::vector<std::unique_ptr<Outcome>> outcomes;
  for (const Case& which : cases) {
    outcomes.push_back(std::make_unique<Outcome>(which, options.paced()));
    outcomes.back()->not_here = why_not_here(which, options);
    if (which.resident && report["machine"]["backend"] != "cuda") {
      outcomes.back()->not_here = "a kernel stays on the GPU in CUDA only";
    }
    outcomes.back()->rounds_asked = options.rounds;
    outcomes.back()->warmup = warmup_of(which, options);
    if (options.paced()) outcomes.back()->collector.pace(std::llround(1e9 / options.rate));
  }
  catch_interrupts();
  const std::int64_t began_ns = gpumap::monotonic_ns();
  measure(options, outcomes);

  report["seconds"] = static_cast<double>(gpumap::monotonic_ns() - began_ns) / 1e9;
  report["cases"] = Json::array();
  report["paced"] = false;
  bool failed = false;
  bool cut_short = false;
  for (const auto& outcome : outcomes) {
    const Json& one = report["cases"].emplace_back(to_json(*outcome, began_ns));
    if (outcome->collector.paced()) report["paced"] = true;
    failed = failed || has_failed(one);
    cut_short = cut_short || (interrupted != 0 && outcome->not_here.empty() && outcome->rounds < options.rounds);
  }
  report["stopped"] = cut_short ? "ended by the user before all rounds were done" : "";
  report["across"] = compare_processes(report["cases"]);
  if (!write_results(options, report, outcomes)) failed = true;
  return cut_short ? 128 + interrupted : failed ? 1 : 0;
}

int draw(const Options& options) {
  std::ifstream in(options.from_file);
  if (!in) throw UsageError("cannot read " + options.from_file);
  bench::check_writable({options.html_file});
  check_hgrm_folder(options);
  for (const std::string& made : {options.html_file, options.html_file + ".part"}) {
    if (std::error_code none; std::filesystem::equivalent(options.from_file, made, none)) {
      throw UsageError(made + " is what --from reads and --html writes: give the page another name");
    }
  }
  Json report;
  std::string table;
  std::string page;
  try {
    report = Json::parse(in);
    table = to_table(report, options.brief);
    page = to_page(report);
  } catch (const Json::exception& error) {
    throw UsageError(fmt::format("{} is not what --json of this program writes: {}", options.from_file, error.what()));
  }
  bench::write_file(options.html_file, page);
  if (!options.hgrm_folder.empty()) write_hgrm(options, report);
  const std::string text = fmt::format("{}\npage: {}\n", table, options.html_file);
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  throw std::runtime_error(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

}  // namespace
}  // namespace latency

int main(int argc, char** argv) {
  CLI::App app{latency::description};
  app.set_version_flag("--version", "gpumap-latency " GPUMAP_VERSION);
  latency::Options options;
  latency::add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    if (options.as_producer) return latency::run_as_producer();
    if (!options.from_file.empty()) return latency::draw(options);
    return latency::run(options, std::vector<std::string>(argv + 1, argv + argc));
  } catch (const latency::UsageError& error) {
    std::fputs(fmt::format("gpumap-latency: {}\n", gpumap::printable(error.what(), "\n\t")).c_str(), stderr);
    return 2;
  } catch (const std::exception& error) {
    std::fputs(fmt::format("gpumap-latency: {}\n", gpumap::printable(error.what(), "\n\t")).c_str(), stderr);
    return 1;
  }
}
