// SPDX-License-Identifier: MIT
// Where the time of a launch goes, and what it is worth beside a GPU that is full. 4 KiB that the CPU writes into
// device memory, a KernelLauncher and a kernel that does nothing, one frame in flight, the CPU spinning: no GStreamer,
// no ring. First what the call takes and when the end is seen, by graphs and without them, with GPU times and without,
// and where the kernel stays on the GPU; then, in rounds of their own as this costs some 50 ns a call, each call of the
// CUDA driver. Last a launch beside kernels that fill all multiprocessors, with and without priority and sm-share.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <thread>

#include "../unit/driver_calls.hpp"
#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"
#include "figures.hpp"
#include "gpumap/copy.hpp"
#include "gpumap/cuda.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel_launcher.hpp"

namespace {

using namespace gpumap;  // NOLINT

constexpr std::size_t frame_bytes = 4096;

struct Options {
  std::string device = "auto", json_file, commit;
  unsigned frames = 0, warmup = 100, rounds = 5;  // frames 0: by device
  unsigned hog_blocks = 264, hog_us = 2000;
};

/// A kernel that does nothing, in a file, as a user's.
class NothingFile {
 public:
  explicit NothingFile(Backend backend) {
    std::string pattern = std::filesystem::temp_directory_path() / "launch-bench-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder: set TMPDIR");
    folder_ = pattern;
    path_ = folder_ / (backend == Backend::cuda ? "nothing.cu" : "nothing.comp");
    std::ofstream(path_) << bench::nothing_kernel(backend).code;
  }
  ~NothingFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  NothingFile(const NothingFile&) = delete;
  NothingFile& operator=(const NothingFile&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path folder_, path_;
};

struct Times {
  std::vector<std::int64_t> called, seen;  // ns from the frame's last store
};

/// A producer and a launcher in one thread.
class Frames {
 public:
  Frames(const std::shared_ptr<Device>& device, const KernelSettings& settings) : launcher_(settings, device) {
    slot_ = device->allocate({.placement = Placement::bar, .bytes = frame_bytes}, launcher_.backend());
    launcher_.set_stream({}, {});
    in_.mapping = slot_.get();
    in_.address = in_.view.plane[0] = slot_->address(launcher_.backend());
    in_.bytes = in_.view.bytes = frame_bytes;
  }
  [[nodiscard]] std::uint32_t multiprocessors() const { return launcher_.multiprocessors(); }

  void run(unsigned count, bool with_gpu_times, Times* times) {
    for (unsigned i = 0; i < count; ++i) {
      std::memset(slot_->host(), static_cast<int>(i), frame_bytes);
      store_fence();
      slot_->flush(0, frame_bytes);
      if (with_gpu_times) in_.trace = std::make_shared<FrameTrace>(log_, FrameRecord{});
      in_.sequence = i;
      const std::int64_t began = bench::now_ns();
      const FrameOutput out = launcher_.launch(in_, {});
      const std::int64_t called = bench::now_ns();
      if (!bench::spin_until([&] { return out.done.signalled(); })) throw std::runtime_error("a kernel did not end");
      if (times == nullptr) continue;
      times->seen.push_back(bench::now_ns() - began);
      times->called.push_back(called - began);
    }
  }

 private:
  KernelLauncher launcher_;
  std::shared_ptr<Mapping> slot_;
  std::shared_ptr<LatencyLog> log_ = std::make_shared<LatencyLog>("launch-bench");
  FrameInput in_;
};

/// Kernels that fill what they may run on, back to back, until it goes.
class Hog {
 public:
  Hog(const std::shared_ptr<Device>& device, const CudaQueueOptions& how, const Options& options)
      : kernel_(Kernel::load(device, source())), queue_(create_cuda_queue(*device, how)) {
    gpumap_frame frame{};
    frame.sequence = std::uint64_t{options.hog_us} * 1000;
    const Grid grid{.blocks = {options.hog_blocks, 1, 1}, .threads = {1024, 1, 1}};
    thread_ = std::thread([this, frame, grid] {
      std::deque<Fence> under_way;
      while (!ended_) {
        queue_->launch(*kernel_, grid, frame);
        under_way.push_back(queue_->submit());
        if (under_way.size() <= 3) continue;
        static_cast<void>(under_way.front().wait_for(std::chrono::minutes(1)));
        under_way.pop_front();
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ~Hog() {
    ended_ = true;
    thread_.join();
  }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;

 private:
  static KernelSource source() {
    KernelSource made;
    made.name = "hog.cu";
    made.code =
        "#include <gpumap/kernel.h>\n"
        "static __device__ unsigned long long now() {\n"
        "  unsigned long long ns;\n"
        "  asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(ns));\n"
        "  return ns;\n"
        "}\n"
        "extern \"C\" __global__ void hog(gpumap_frame frame) {\n"
        "  const unsigned long long began = now();\n"
        "  while (now() - began < frame.sequence) {\n  }\n"
        "}\n";
    return made;
  }
  std::shared_ptr<Kernel> kernel_;
  std::unique_ptr<Queue> queue_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

class Bench {
 public:
  explicit Bench(Options options)
      : options_(std::move(options)),
        device_(Device::open(options_.device)),
        cuda_(device_->default_backend() == Backend::cuda),
        nothing_(device_->default_backend()) {
    if (options_.frames == 0) options_.frames = device_->info().software ? 20 : 1000;
    if (cuda_) driver_ = &const_cast<cuda::Driver&>(cuda::Driver::get());  // this program alone uses it
  }

  nlohmann::json run() {
    const DeviceInfo& info = device_->info();
    fmt::print("{}{}, {}\n{}\n", info.name, info.software ? " (software: these are no figures of a GPU)" : "",
               cuda_ ? "CUDA " + info.cuda_driver : info.vulkan_driver, bench::cpu_name());
    nlohmann::json report{{"benchmark", "launch"},
                          {"device", info.name},
                          {"software", info.software},
                          {"vulkan_driver", info.vulkan_driver},
                          {"cuda_driver", info.cuda_driver},
                          {"cpu", bench::cpu_name()},
                          {"commit", options_.commit},
                          {"frame_bytes", frame_bytes},
                          {"frames", options_.frames * options_.rounds}};
    report["ways"] = ways();
    if (cuda_) {
      report["calls"] = calls();
      report["beside"] = beside();
    }
    return report;
  }

 private:
  struct Way {
    const char* name;
    bool graphs, gpu_times;
    std::unique_ptr<Frames> frames;
    Times times;
  };

  [[nodiscard]] KernelSettings settings() const {
    KernelSettings made;
    made.location = nothing_.path();
    return made;
  }
  std::unique_ptr<Frames> frames(bool graphs, KernelSettings how) {
    const bool had = driver_ != nullptr && std::exchange(driver_->has_graphs, graphs && driver_->has_graphs);
    auto made = std::make_unique<Frames>(device_, how);
    if (driver_ != nullptr) driver_->has_graphs = had;
    return made;
  }

  nlohmann::json ways() {
    std::vector<Way> ways;
    ways.push_back({cuda_ ? "by a graph" : "in Vulkan", true, false, frames(true, settings()), {}});
    if (cuda_) ways.push_back({"by cuLaunchKernel", false, false, frames(false, settings()), {}});
    ways.push_back(
        {cuda_ ? "by a graph, GPU times" : "in Vulkan, GPU times", true, true, frames(true, settings()), {}});
    if (cuda_) ways.push_back({"by cuLaunchKernel, GPU times", false, true, frames(false, settings()), {}});
    if (cuda_) {
      KernelSettings stays = settings();
      stays.mode = KernelMode::resident;
      ways.push_back({"it stays on the GPU", true, false, frames(true, stays), {}});
    }
    for (unsigned round = 0; round < options_.rounds; ++round) {
      for (Way& way : ways) {
        way.frames->run(options_.warmup, way.gpu_times, nullptr);
        way.frames->run(options_.frames, way.gpu_times, &way.times);
      }
    }
    fmt::print("\nus from the last store of 4 KiB{:<10} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "", "launched", "P99", "seen",
               "P99", "P99.9");
    nlohmann::json rows = nlohmann::json::array();
    for (Way& way : ways) {
      const auto called = bench::summarise(way.times.called), seen = bench::summarise(way.times.seen);
      fmt::print("{:<40} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}\n", way.name, called.median_us, called.p99_us,
                 seen.median_us, seen.p99_us, seen.p999_us);
      rows.push_back({{"way", way.name}, {"launched", bench::to_json(called)}, {"seen", bench::to_json(seen)}});
    }
    return rows;
  }

  nlohmann::json calls() {
    nlohmann::json rows = nlohmann::json::array();
    fmt::print("\ncalls of the CUDA driver a frame, and us each (mean)\n");
    for (const bool gpu_times : {false, true}) {
      for (const bool graphs : {true, false}) {
        const auto one = frames(graphs, settings());
        one->run(options_.warmup, gpu_times, nullptr);
        driver_calls::count_all(*driver_, true);
        driver_calls::forget();
        Times times;
        one->run(options_.frames, gpu_times, &times);
        driver_calls::count_all(*driver_, false);
        const std::string name =
            fmt::format("{}{}", graphs ? "by a graph" : "by cuLaunchKernel", gpu_times ? ", GPU times" : "");
        fmt::print("{}: launched after {:.2f}\n", name, bench::summarise(times.called).median_us);
        nlohmann::json functions = nlohmann::json::array();
        for (const auto* count : driver_calls::counts()) {
          if (count->calls == 0) continue;
          const double a_frame = static_cast<double>(count->calls) / options_.frames;
          const double us = static_cast<double>(count->ns) / 1e3 / static_cast<double>(count->calls);
          fmt::print("  {:<38} {:>9.2f} {:>9.2f}\n", count->name, a_frame, us);
          functions.push_back({{"function", count->name}, {"a_frame", a_frame}, {"us", us}});
        }
        rows.push_back({{"way", name}, {"functions", functions}});
      }
    }
    return rows;
  }

  nlohmann::json beside() {
    struct Case {
      const char* name;
      bool hog;
      CudaQueueOptions ours, hogs;
      bool stays = false;
    };
    std::vector<Case> cases{{"alone", false, {}, {}},
                            {"beside a full GPU", true, {}, {}},
                            {"beside it, priority=5", true, {.priority = 5}, {}},
                            {"it stays, alone", false, {}, {}, true},
                            {"it stays, beside a full GPU", true, {}, {}, true}};
    if (driver_->has_partitions) {
      cases.push_back({"sm-share=0.125, alone", false, {.sm_share = 0.125}, {}});
      cases.push_back({"sm-share=0.125, beside one that has none", true, {.sm_share = 0.125}, {}});
      cases.push_back({"sm-share=0.125, beside sm-share=0.875", true, {.sm_share = 0.125}, {.sm_share = 0.875}});
      cases.push_back({"it stays, sm-share=0.125, alone", false, {.sm_share = 0.125}, {}, true});
      cases.push_back(
          {"it stays, sm-share=0.125, beside sm-share=0.875", true, {.sm_share = 0.125}, {.sm_share = 0.875}, true});
    }
    fmt::print("\nus until seen, beside kernels of {} us on {} blocks{:<8} {:>9} {:>9} {:>9} {:>9}\n", options_.hog_us,
               options_.hog_blocks, "", "median", "P99", "P99.9", "max");
    nlohmann::json rows = nlohmann::json::array();
    for (const Case& one : cases) {
      KernelSettings how = settings();
      how.priority = one.ours.priority;
      how.sm_share = one.ours.sm_share;
      if (one.stays) how.mode = KernelMode::resident;
      // What cannot be here takes no other case with it.
      try {
        rows.push_back(beside(one.name, how, one.hog ? &one.hogs : nullptr));
      } catch (const std::exception& error) {
        fmt::print("{:<48} {}\n", one.name, error.what());
        rows.push_back({{"case", one.name}, {"error", error.what()}});
      }
    }
    return rows;
  }
  nlohmann::json beside(const char* name, const KernelSettings& how, const CudaQueueOptions* hogs) {
    const auto ours = frames(true, how);
    ours->run(options_.warmup, false, nullptr);
    std::unique_ptr<Hog> hog;
    if (hogs != nullptr) hog = std::make_unique<Hog>(device_, *hogs, options_);
    Times times;
    ours->run(options_.frames * 2, false, &times);
    hog.reset();
    const auto seen = bench::summarise(times.seen);
    fmt::print("{:<48} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}\n", name, seen.median_us, seen.p99_us, seen.p999_us,
               seen.max_us);
    return {{"case", name}, {"seen", bench::to_json(seen)}, {"multiprocessors", ours->multiprocessors()}};
  }

  Options options_;
  std::shared_ptr<Device> device_;
  bool cuda_;
  NothingFile nothing_;
  cuda::Driver* driver_ = nullptr;  // null without CUDA
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Where the time of a launch goes, and what it takes beside a GPU that is full"};
  Options options;
  app.add_option("--device", options.device, "GPU: auto, an index, a UUID or a PCI address");
  app.add_option("--frames", options.frames, "Frames that count, each round (0: 1000, in software 20)");
  app.add_option("--warmup", options.warmup, "Frames before them");
  app.add_option("--rounds", options.rounds, "Rounds, in which the ways take turns")->check(CLI::Range(1, 1000));
  app.add_option("--hog-blocks", options.hog_blocks, "Blocks of 1024 threads that fill the GPU (two a multiprocessor)");
  app.add_option("--hog-us", options.hog_us, "How long they take");
  app.add_option("--json", options.json_file, "Write the figures there");
  app.add_option("--commit", options.commit, "Commit to note in the JSON");
  CLI11_PARSE(app, argc, argv);
  try {
    const nlohmann::json report = Bench(options).run();
    if (options.json_file.empty()) return 0;
    std::ofstream out(options.json_file);
    out << report.dump(2) << '\n';
    if (!out.flush()) throw std::runtime_error("cannot write " + options.json_file);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "launch-bench: {}\n", error.what());
    return 1;
  }
}
