// SPDX-License-Identifier: MIT
// What the three elements cost: the time from a producer's last store into a frame until the CPU sees a trivial kernel
// on that frame done, with and without GStreamer around the same stores, launch and wait, in the same run.
//
// It does not measure the fill (both paths do the same memcpy of lines that videotestsrc does for pattern=black), nor a
// queue (one frame is in flight), nor threads that slept (both sides poll).
#include <fmt/format.h>
#include <gst/gst.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gpumap/device.hpp>
#include <nlohmann/json.hpp>

#include "first_light.hpp"
#include "gst/elements.hpp"

namespace first_light {

gpumap::KernelSource NamedKernel::source(gpumap::Backend backend) const {
  if (!file.empty()) return gpumap::load_kernel_file(file);
  return gpumap::source_of(*gpumap::find_builtin(name), backend);
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
  nlohmann::json made = bench::to_json(result.total);
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
  fmt::print("{:<10} {:<42} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}\n", kernel, name, s.median_us, s.p90_us, s.p99_us,
             s.min_us);
}

void print_result(const Result& result) {
  print_row(result.kernel, result.path, result.total);
  for (const auto& [name, summary] : result.stages) print_row("", "  " + name, summary);
}

struct Program {
  Options options;
  std::string backend = "auto";
  std::string commit;
  std::string json_file;
  bool check = false;
};

/// The paths of one kernel; true when the pipeline keeps to the target.
bool compare(const Program& program, const NamedKernel& kernel, nlohmann::json& report) {
  const Options& options = program.options;
  const Result one = run_bare(options, kernel, Threads::one);
  const Result two = run_bare(options, kernel, Threads::two);
  const Result pipeline = run_pipeline(options, kernel, {});
  const Result followed = run_pipeline(options, kernel, {.stamps = true});
  std::vector<const Result*> all{&one, &two, &pipeline, &followed};
  Result resident;
  if (options.backend == gpumap::Backend::cuda) {
    resident = run_pipeline(options, kernel, {.resident = true});
    all.push_back(&resident);
  }
  bool within = true;
  for (const Result* result : all) {
    print_result(*result);
    report["results"].push_back(to_json(*result));
  }
  for (const Result* bare : {&one, &two}) {
    const double difference = pipeline.total.median_us - bare->total.median_us;
    within = within && difference <= target_us;
    fmt::print("{:<10} {:<42} {:>9.2f}\n", kernel.name, "pipeline minus " + bare->path, difference);
    report["differences"].push_back({{"kernel", kernel.name},
                                     {"against", bare->path},
                                     {"median_us", difference},
                                     {"target_us", target_us},
                                     {"within", difference <= target_us}});
  }
  fmt::print("{:<10} {:<42} {:>9.2f}\n", kernel.name, "stamps: pipeline with minus without",
             followed.total.median_us - pipeline.total.median_us);
  if (pipeline.zero_copy_frames != options.warmup + options.frames) {
    fmt::print("{:<10} only {} of {} frames were written in place\n", kernel.name, pipeline.zero_copy_frames,
               options.warmup + options.frames);
    within = false;
  }
  return within;
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
  fmt::print("\nus from the producer's last store to the kernel seen done\n{:<10} {:<42} {:>9} {:>9} {:>9} {:>9}\n",
             "kernel", "path", "median", "P90", "P99", "min");

  const TemporaryKernel nothing(options.backend);
  bool within = true;
  for (const NamedKernel& kernel : {NamedKernel{"nothing", nothing.path()}, NamedKernel{"identity", {}}}) {
    within = compare(program, kernel, report) && within;
  }
  if (!program.json_file.empty()) {
    std::ofstream out(program.json_file);
    out << report.dump(2) << '\n';
    if (!out.flush()) throw std::runtime_error("cannot write " + program.json_file);
  }
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
