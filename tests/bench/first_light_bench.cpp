// SPDX-License-Identifier: MIT
// What the three elements cost: the time from a producer's last store into a frame until the CPU sees a trivial kernel
// on that frame done, with and without GStreamer around the same stores, launch and wait, and with cudaupload in their
// place, in the same run. Times are counted in a histogram, so ten million frames take no more memory than ten. With
// --rates also how many small frames a second pass.
//
// It does not measure the fill (both paths do the same memcpy of lines that videotestsrc does for pattern=black), nor a
// queue (one frame is in flight), nor threads that slept (both sides poll).
#include <fmt/format.h>
#include <gst/gst.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gpumap/device.hpp>
#include <nlohmann/json.hpp>

#include "first_light.hpp"
#include "gst/elements.hpp"

namespace first_light {

gpumap::KernelSource NamedKernel::source(gpumap::Backend backend) const {
  if (!file.empty()) return gpumap::load_kernel_file(file);
  return gpumap::source_of(*gpumap::find_builtin(name), backend);
}

std::string NamedKernel::property() const {
  return file.empty() ? "kernel=" + name : fmt::format("location=\"{}\"", file);
}

namespace {

constexpr double target_us = 12;

/// A kernel file of the user's, in a folder that goes with this.
class TemporaryKernel {
 public:
  explicit TemporaryKernel(gpumap::Backend backend) {
    std::string pattern = std::filesystem::temp_directory_path() / "first-light-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder: set TMPDIR");
    folder_ = pattern;
    const bool cuda = backend == gpumap::Backend::cuda;
    path_ = folder_ / (cuda ? "nothing.cu" : "nothing.comp");
    std::ofstream(path_) << bench::nothing_kernel(backend).code;
  }
  ~TemporaryKernel() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TemporaryKernel(const TemporaryKernel&) = delete;
  TemporaryKernel& operator=(const TemporaryKernel&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path folder_, path_;
};

nlohmann::json to_json(const Result& result) {
  nlohmann::json made = bench::to_json(summarise(result.total));
  made["histogram"] = nlohmann::json::array();  // us, frames
  for (const Histogram::Count& count : result.total.counts()) {
    made["histogram"].push_back({static_cast<double>(count.time_ns) / 1000.0, count.times});
  }
  made["kernel"] = result.kernel;
  made["path"] = result.path;
  made["period_us"] = result.period_us;
  if (result.path.starts_with("pipeline")) made["zero_copy_frames"] = result.zero_copy_frames;
  for (const auto& [name, summary] : result.stages) {
    nlohmann::json stage = bench::to_json(summary);
    stage["stage"] = name;
    made["stages"].push_back(stage);
  }
  return made;
}

void print_row(const std::string& kernel, const std::string& name, const Summary& s) {
  fmt::print("{:<10} {:<42} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}\n", kernel, name, s.median_us,
             s.p90_us, s.p99_us, s.p999_us, s.max_us, s.min_us);
}

void print_result(const Result& result) {
  print_row(result.kernel, result.path, summarise(result.total));
  for (const auto& [name, summary] : result.stages) print_row("", "  " + name, summary);
}

struct Program {
  Options options;
  std::string backend = "auto";
  std::string commit;
  std::string json_file;
  bool check = false, rates = false;
};

/// Why there is no rival; empty where there is one.
std::string no_rival(const Options& options) {
  if (options.rival != "cudaupload") return {};
  if (options.backend != gpumap::Backend::cuda) return "cudaupload is CUDA's";
  GstElement* upload = gst_element_factory_make("cudaupload", nullptr);
  if (upload == nullptr) return "this GStreamer has no cudaupload, which comes with gst-plugins-bad";
  const bool opens = gst_element_set_state(upload, GST_STATE_READY) != GST_STATE_CHANGE_FAILURE;
  gst_element_set_state(upload, GST_STATE_NULL);
  gst_object_unref(upload);
  return opens ? "" : "cudaupload opens no CUDA device";
}

bool is_asked_for(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

/// One that fails takes no other with it; its reason is in "failures".
void attempt(nlohmann::json& report, const std::string& what, const std::function<void()>& measure) {
  try {
    measure();
  } catch (const std::exception& error) {
    fmt::print("{}: FAILED: {}\n", what, error.what());
    report["failures"].push_back({{"what", what}, {"error", error.what()}});
  }
}

/// The paths of one kernel that are asked for, and can be.
std::vector<Result> measure(const Options& options, const NamedKernel& kernel, const std::string& lack,
                            nlohmann::json& report) {
  std::vector<Result> results;
  const auto add = [&](Result result) {
    print_result(result);
    results.push_back(std::move(result));
  };
  const auto pipeline = [&](const Elements& how) {
    if (!is_asked_for(options.paths, how.path)) return;
    attempt(report, kernel.name + ", " + how.path, [&] { add(run_pipeline(options, kernel, how)); });
  };
  if (is_asked_for(options.paths, "bare, one thread")) add(run_bare(options, kernel, Threads::one));
  if (is_asked_for(options.paths, "bare, two threads")) add(run_bare(options, kernel, Threads::two));
  pipeline({.path = "pipeline"});
  pipeline({.path = "pipeline, stamps", .stamps = true});
  if (options.backend == gpumap::Backend::cuda) {
    pipeline({.path = "pipeline, resident", .resident = true});
    pipeline({.path = "pipeline, two resident", .resident = true, .kernels = 2});
  }
  if (lack.empty()) pipeline({.path = "rival", .rival = true});
  return results;
}

const Result* find(const std::vector<Result>& results, std::string_view path) {
  const auto found = std::find_if(results.begin(), results.end(), [&](const Result& one) { return one.path == path; });
  return found == results.end() ? nullptr : &*found;
}

/// The paths of one kernel; true when the pipeline keeps to the target.
bool compare(const Program& program, const NamedKernel& kernel, const std::string& lack, nlohmann::json& report) {
  const Options& options = program.options;
  const std::vector<Result> results = measure(options, kernel, lack, report);
  for (const Result& result : results) report["results"].push_back(to_json(result));
  const auto median = [](const Result& result) { return summarise(result.total).median_us; };
  bool within = true;
  const Result* pipeline = find(results, "pipeline");
  for (const char* path : {"bare, one thread", "bare, two threads"}) {
    const Result* bare = find(results, path);
    if (pipeline == nullptr || bare == nullptr) continue;
    const double difference = median(*pipeline) - median(*bare);
    within = within && difference <= target_us;
    fmt::print("{:<10} {:<42} {:>9.2f}\n", kernel.name, "pipeline minus " + bare->path, difference);
    report["differences"].push_back({{"kernel", kernel.name},
                                     {"against", bare->path},
                                     {"median_us", difference},
                                     {"target_us", target_us},
                                     {"within", difference <= target_us}});
  }
  const auto minus = [&](const char* what, const char* more, const char* less) {
    const Result *one = find(results, more), *other = find(results, less);
    if (one == nullptr || other == nullptr) return;
    fmt::print("{:<10} {:<42} {:>9.2f}\n", kernel.name, what, median(*one) - median(*other));
  };
  minus("stamps: pipeline with minus without", "pipeline, stamps", "pipeline");
  minus("a second kernel that stays", "pipeline, two resident", "pipeline, resident");
  const Result* rival = find(results, "rival");
  for (const auto& [path, target] : {std::pair{"pipeline", 0.35}, {"pipeline, resident", 0.15}}) {
    const Result* ours = find(results, path);
    if (rival == nullptr || ours == nullptr) continue;
    const double ratio = median(*ours) / median(*rival);
    fmt::print("{:<10} {:<42} {:>9.3f}\n", kernel.name, fmt::format("{} over {}", path, options.rival), ratio);
    report["ratios"].push_back(
        {{"kernel", kernel.name}, {"path", path}, {"over", options.rival}, {"median", ratio}, {"target", target}});
  }
  if (pipeline != nullptr && pipeline->zero_copy_frames != options.warmup + options.frames) {
    fmt::print("{:<10} only {} of {} frames were written in place\n", kernel.name, pipeline->zero_copy_frames,
               options.warmup + options.frames);
    within = false;
  }
  return within;
}

/// Frames a second of small frames.
void measure_rates(const Options& options, nlohmann::json& report) {
  fmt::print("\nframes a second, fakesrc to fakesink, kernel=identity\n");
  for (const bool resident : {false, true}) {
    if (resident && options.backend != gpumap::Backend::cuda) continue;
    for (const unsigned bytes : {64U, 4096U}) {
      for (const bool overlaps : {false, true}) {
        Rate rate{.bytes = bytes, .resident = resident, .overlaps = overlaps, .frames = options.rate_frames};
        const std::string what =
            fmt::format("{} B, {}, {}", bytes, resident ? "resident" : "launched",
                        overlaps ? "in GPU memory, overlapping" : "each one waited for and copied");
        attempt(report, what, [&] {
          run_rate(options, rate);
          fmt::print("{:<53} {:>9.0f}\n", what, rate.a_second);
          report["rates"].push_back({{"bytes", bytes},
                                     {"mode", resident ? "resident" : "launch"},
                                     {"overlapping", overlaps},
                                     {"frames", rate.frames},
                                     {"frames_per_s", rate.a_second}});
        });
      }
    }
  }
}

int run(Program& program) {
  Options& options = program.options;
  const auto device = gpumap::Device::open(options.device);
  const gpumap::DeviceInfo& info = device->info();
  options.backend = device->default_backend();
  if (program.backend != "auto") {
    options.backend = program.backend == "cuda" ? gpumap::Backend::cuda : gpumap::Backend::vulkan;
  }
  const std::string backend = options.backend == gpumap::Backend::cuda ? "cuda" : "vulkan";
  nlohmann::json report{{"benchmark", "first-light"},
                        {"device", info.name},
                        {"software", info.software},
                        {"transport", gpumap::to_string(info.access)},
                        {"vulkan_driver", info.vulkan_driver},
                        {"cuda_driver", info.cuda_driver},
                        {"backend", backend},
                        {"cpu", bench::cpu_name()},
                        {"commit", program.commit},
                        {"gstreamer", fmt::format("{}.{}.{}", GST_VERSION_MAJOR, GST_VERSION_MINOR, GST_VERSION_MICRO)},
                        {"width", options.width},
                        {"height", options.height},
                        {"format", "NV12"},
                        {"frames", options.frames},
                        {"warmup", options.warmup},
                        {"busy_poll_us", options.busy_poll_us},
                        {"in_flight", 1}};

  fmt::print("{}{}, {}, {} through {}\n{}\n{}x{} NV12, {} frames after {}, one in flight, busy-poll {} us\n", info.name,
             info.software ? " (software: these are no figures of a GPU)" : "", info.vulkan_driver,
             gpumap::to_string(info.access), backend, bench::cpu_name(), options.width, options.height, options.frames,
             options.warmup, options.busy_poll_us);
  fmt::print(
      "\nus from the producer's last store to the kernel seen done\n{:<10} {:<42} {:>9} {:>9} {:>9} {:>9} {:>9} "
      "{:>9}\n",
      "kernel", "path", "median", "P90", "P99", "P99.9", "max", "min");

  const TemporaryKernel nothing(options.backend);
  const std::string lack = no_rival(options);
  if (!lack.empty() && is_asked_for(options.paths, "rival")) fmt::print("no rival: {}\n", lack);
  report["rival"] = lack.empty() ? options.rival : "none: " + lack;
  bool within = true;
  for (const NamedKernel& kernel : {NamedKernel{"nothing", nothing.path()}, NamedKernel{"identity", {}}}) {
    if (is_asked_for(options.kernels, kernel.name)) within = compare(program, kernel, lack, report) && within;
  }
  if (options.rate_frames == 0) options.rate_frames = info.software ? 200 : 300'000;
  if (program.rates) measure_rates(options, report);
  if (!program.json_file.empty()) {
    std::ofstream out(program.json_file);
    out << report.dump(2) << '\n';
    if (!out.flush()) throw std::runtime_error("cannot write " + program.json_file);
  }
  if (report.contains("failures")) return 1;
  if (info.software) return 0;
  fmt::print("\n{}: pipeline minus bare, target {} us\n", within ? "within" : "MISSED", target_us);
  return program.check && !within ? 1 : 0;
}

gboolean register_statically() {
  return gst_plugin_register_static(GST_VERSION_MAJOR, GST_VERSION_MINOR, "gpumap-static", "gpumap's elements",
                                    gpumap_register_elements, GPUMAP_VERSION, "MIT/X11", "gpumap", "gpumap",
                                    "Unknown package origin");
}

}  // namespace
}  // namespace first_light

int main(int argc, char** argv) {
  CLI::App app{"Time from a producer's last store to the end of a kernel, with and without GStreamer"};
  first_light::Program program;
  app.add_option("--device", program.options.device, "GPU: auto, an index, a UUID or a PCI address");
  app.add_option("--backend", program.backend, "What runs the kernels")
      ->check(CLI::IsMember({"auto", "cuda", "vulkan"}));
  app.add_option("--frames", program.options.frames, "Frames that count")->check(CLI::Range(1, 10'000'000));
  app.add_option("--warmup", program.options.warmup, "Frames before them");
  app.add_option("--busy-poll", program.options.busy_poll_us, "us that gpumapsink and gpumapsrc spin")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--width", program.options.width, "Of a frame, in pixels")->check(CLI::Range(2, 7680));
  app.add_option("--height", program.options.height, "Of a frame, in pixels")->check(CLI::Range(2, 4320));
  app.add_option("--paths", program.options.paths, "What is measured, all without; apart by ;")
      ->delimiter(';')
      ->check(CLI::IsMember({"bare, one thread", "bare, two threads", "pipeline", "pipeline, stamps",
                             "pipeline, resident", "pipeline, two resident", "rival", "none"}));
  app.add_option("--kernels", program.options.kernels, "nothing, identity; both without")
      ->delimiter(',')
      ->check(CLI::IsMember({"nothing", "identity"}));
  app.add_option("--rival", program.options.rival, "What the elements are compared with, in their place");
  app.add_flag("--rates", program.rates, "Frames a second of 64 B and 4 KiB, too");
  app.add_option("--rate-frames", program.options.rate_frames, "Frames of each of these (0: by device)");
  app.add_option("--json", program.json_file, "Write the figures there");
  app.add_option("--commit", program.commit, "Commit to note in the JSON");
  app.add_flag("--check", program.check, "On a GPU, exit 1 when the target is missed");
  CLI11_PARSE(app, argc, argv);
  gst_init(nullptr, nullptr);
  first_light::register_statically();
  try {
    return first_light::run(program);
  } catch (const std::exception& error) {
    fmt::print(stderr, "first-light-bench: {}\n", error.what());
    return 1;
  }
}
