// SPDX-License-Identifier: MIT
// pingpong: the CPU raises a doorbell, a thread that stays on the GPU answers into host memory, the CPU sees it. The
// doorbell lies in the BAR, so that the GPU polls its own memory; the rival's lies in host memory, which the GPU polls
// across the PCIe. What gdrcopy's pplat measures.
//
//   CPU                                     GPU, one block
//                                           looks at the doorbell …
//   raises the doorbell, fence ───────────▶ … until it has changed
//   looks at the answer … ◀──────────────── answers with its word
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <gpumap/copy.hpp>
#include <gpumap/error.hpp>

#include "bench.hpp"
#include "bench_kernels.hpp"
#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"

namespace bench {
namespace {

using gpumap::Backend;
using gpumap::Error;
using gpumap::ErrorCode;
using gpumap::Placement;

constexpr std::size_t page_bytes = 4096;
// Both bounds of a kernel that nobody rings for. CUDA: by the clock. Vulkan: by turns of its loops, of which software
// drivers allow 65,535.
constexpr std::int64_t idle_ns = 5'000'000'000;
constexpr std::int64_t max_turns = 60'000;
constexpr std::uint64_t stop_word = ~std::uint64_t{0};

std::shared_ptr<gpumap::Kernel> load_resident(const Context& context) {
  if (context.backend == Backend::cuda) {
    return gpumap::Kernel::load(context.device, {.language = gpumap::Language::cuda,
                                                 .name = "resident.cu",
                                                 .code = std::string(gpumap::embedded::resident_cu),
                                                 .function = "resident_echo"});
  }
  return gpumap::Kernel::load(context.device, {.language = gpumap::Language::glsl,
                                               .name = "resident.comp",
                                               .code = std::string(gpumap::embedded::resident_comp)});
}

/// Empty where a kernel that is running already is sure to see what the CPU stored before it raised a doorbell; else
/// the reason why not.
std::string refuse_resident(const Context& context) {
  if (context.backend == Backend::vulkan) {
    if (context.software()) return {};
    return "Vulkan orders CPU stores before work that is submitted after them, and promises nothing to a kernel that "
           "is "
           "running already: use --backend cuda";
  }
  const auto* device = dynamic_cast<const gpumap::GpuDevice*>(context.device.get());
  const int order = device->cuda()->attribute(gpumap::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
  if (order < gpumap::CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER) {
    return fmt::format(
        "{} does not show writes from outside in order to a kernel that is running already "
        "(GPU_DIRECT_RDMA_WRITES_ORDERING is {}, {} is needed): launch a kernel behind the stores instead",
        context.device->info().name, order, gpumap::CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
  }
  return {};
}

/// Rounds of one path: how many blocks take turns with the other paths, and what a block holds.
struct Rounds {
  unsigned blocks = 1, warmup = 0, counted = 1;

  /// A round that must be discarded is tried again, but not for ever on a machine that is busy.
  [[nodiscard]] bool go_on(unsigned valid, unsigned discarded) const {
    return valid < counted && valid + discarded < 4 * counted;
  }
};

/// A doorbell and the kernel behind it. Thread safety: one thread.
class Resident {
 public:
  /// Throws gpumap::Error.
  /// The doorbell lies in memory of that `placement` and has 4 or 8 bytes.
  Resident(const Context& context, const gpumap::Kernel& kernel, gpumap::Placement placement, unsigned bell_bytes);
  ~Resident();
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  void start();
  void stop();
  /// Order all stores before it, raise the doorbell and drain it.
  void ring();
  /// Wait for the answer to the last ring. False when the kernel had ended and was launched anew meanwhile: that round
  /// says nothing about time. Throws Error(device_lost) after ten seconds.
  [[nodiscard]] bool answer();

 private:
  void write_bell(std::uint64_t value);
  void launch();

  const gpumap::Kernel& kernel_;
  const unsigned bell_bytes_;
  std::shared_ptr<gpumap::Mapping> memory_, answer_;
  std::unique_ptr<gpumap::Queue> queue_;  // last: ends before the memory goes
  gpumap_frame frame_{};
  gpumap::Grid grid_;
  gpumap::Fence running_;
  std::uint64_t sequence_ = 0;
  bool started_ = false;
};

Resident::Resident(const Context& context, const gpumap::Kernel& kernel, gpumap::Placement placement,
                   unsigned bell_bytes)
    : kernel_(kernel),
      bell_bytes_(bell_bytes),
      memory_(context.device->allocate({.placement = placement, .bytes = page_bytes, .require_coherent = true},
                                       context.backend)),
      answer_(context.allocate(gpumap::Placement::host, page_bytes)),
      queue_(context.create_queue()) {
  frame_.in.plane[1] = memory_->address(context.backend);
  frame_.in.channels = bell_bytes;
  frame_.out.plane[0] = answer_->address(context.backend);
  frame_.duration = context.backend == Backend::cuda ? idle_ns : max_turns;
}

Resident::~Resident() {
  if (started_) write_bell(stop_word);
}

void Resident::write_bell(std::uint64_t value) {
  gpumap::store_fence();
  std::byte* bell = memory_->host();
  if (bell_bytes_ == 4) {
    *reinterpret_cast<volatile std::uint32_t*>(bell) = static_cast<std::uint32_t>(value);
  } else {
    *reinterpret_cast<volatile std::uint64_t*>(bell) = value;
  }
  // Else it waits in the write-combining buffer for as long as the CPU likes.
  gpumap::store_fence();
}

void Resident::launch() {
  queue_->launch(kernel_, grid_, frame_);
  running_ = queue_->submit();
}

void Resident::start() {
  write_bell(sequence_);
  frame_.sequence = sequence_;
  launch();
  started_ = true;
}

void Resident::stop() {
  started_ = false;
  write_bell(stop_word);
  poll(running_);
}

void Resident::ring() {
  write_bell(++sequence_);
}

bool Resident::answer() {
  const auto* word = reinterpret_cast<const volatile std::uint64_t*>(answer_->host());
  unsigned looks = 0;
  bool launched_anew = false;
  const auto answered = [&] {
    const std::uint64_t said = *word;
    if (static_cast<std::uint32_t>(said) == static_cast<std::uint32_t>(sequence_)) return true;
    // Nobody rang for too long, or a software driver gave another program the core.
    if (++looks % 256 == 0 && running_.signalled() && *word == said) {
      frame_.sequence = sequence_ - 1;
      launch();
      launched_anew = true;
    }
    return false;
  };
  if (!spin_until(answered)) {
    running_.timeline()->check();
    throw Error(ErrorCode::device_lost,
                fmt::format("kernel {} did not answer doorbell {} within 10 s: does the GPU see the CPU's stores?",
                            kernel_.name(), sequence_));
  }
  return !launched_anew;
}

struct Path {
  const char* name;
  Placement placement;
  unsigned bell_bytes;

  std::unique_ptr<Resident> resident{};
  std::vector<std::int64_t> times{};
  std::int64_t cpu = 0;
  unsigned rounds = 0, discarded = 0;
};

void run_block(Path& path, const Rounds& rounds) {
  Resident& resident = *path.resident;
  resident.start();
  for (unsigned i = 0; i < rounds.warmup; ++i) {
    resident.ring();
    static_cast<void>(resident.answer());
  }
  const std::int64_t cpu = cpu_ns();
  unsigned valid = 0;
  unsigned discarded = 0;
  while (rounds.go_on(valid, discarded)) {
    const std::int64_t began = now_ns();
    resident.ring();
    const bool answered = resident.answer();
    const std::int64_t ended = now_ns();
    if (answered) {
      path.times.push_back(ended - began);
      ++valid;
    } else {
      ++discarded;
    }
  }
  path.cpu += cpu_ns() - cpu;
  path.rounds += valid + discarded;
  path.discarded += discarded;
  resident.stop();
}

std::vector<std::pair<double, double>> percentiles(const std::vector<std::int64_t>& sorted_ns) {
  std::vector<std::pair<double, double>> points;
  for (std::size_t percent = 1; percent < 100; ++percent) {
    const double share = static_cast<double>(percent) / 100;
    points.emplace_back(percent, static_cast<double>(percentile(sorted_ns, share)) / 1e3);
  }
  return points;
}

}  // namespace

nlohmann::json run_pingpong(Context& context) {
  ModeReport report{.mode = "pingpong",
                    .what = "from before the store of a doorbell until the CPU sees the GPU's answer"};
  report.not_measured = {"a payload: see launch", "sleeping: the CPU and the GPU poll"};
  if (const std::string reason = refuse_resident(context); !reason.empty()) {
    report.extra["refused"] = reason;
    report.not_measured.push_back("anything: " + reason);
    return make_report(report);
  }

  const auto kernel = load_resident(context);
  std::array<Path, 4> paths{{
      {"BAR", Placement::bar, 4},
      {"host memory", Placement::host, 4},
      {"BAR", Placement::bar, 8},
      {"host memory", Placement::host, 8},
  }};
  for (Path& path : paths) {
    path.resident = std::make_unique<Resident>(context, *kernel, path.placement, path.bell_bytes);
  }
  const Rounds rounds = context.small() ? Rounds{.blocks = 2, .warmup = 2, .counted = 25}
                                        : Rounds{.blocks = 10, .warmup = 100, .counted = 2000};
  for (unsigned block = 0; block < rounds.blocks; ++block) {
    for (Path& path : paths) run_block(path, rounds);
  }

  Plot plot{.title = "Doorbell round trips",
            .x_label = "per cent of the round trips that take",
            .y_label = "us or less",
            .log_x = false,
            .log_y = false};
  report.extra["discarded"] = nlohmann::json::array();
  for (Path& path : paths) {
    const std::string detail = fmt::format("{}-byte doorbell", path.bell_bytes);
    report.extra["discarded"].push_back({{"path", path.name}, {"detail", detail}, {"rounds", path.discarded}});
    if (path.times.empty()) {
      report.not_measured.push_back(fmt::format("{}, {}: other programs left the kernel no time", path.name, detail));
      continue;
    }
    const Summary summary = summarise(path.times);
    plot.series.push_back({.name = fmt::format("{}, {}", path.name, detail), .points = percentiles(path.times)});
    report.rows.push_back({.path = path.name,
                           .detail = detail,
                           .bytes = path.bell_bytes,
                           .rival = path.placement == Placement::host,
                           .time = summary,
                           .cpu_us = static_cast<double>(path.cpu) / path.rounds / 1e3,
                           .rate = false});
  }
  report.plots.push_back(plot);
  set_ratios(report.rows);
  if (report.rows.size() == paths.size()) {
    context.targets.push_back({.claim = "pingpong: 4-byte doorbell in the BAR over one in host memory, round trip",
                               .value = report.rows[0].ratio,
                               .bound = 0.9});
  }
  return make_report(report);
}

}  // namespace bench
