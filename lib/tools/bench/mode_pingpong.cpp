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
// drivers allow 65,535: what such a shader computes then is wrong.
constexpr std::int64_t idle_ns = 5'000'000'000;
constexpr std::int64_t max_turns = 60'000;
constexpr std::uint32_t stop_word = ~std::uint32_t{0};

/// One thread that answers every bell with its word and reads nothing else. It ends when the bell says all ones, and
/// when nobody rings. in.plane[1] is the bell, out.plane[0] the answer, `sequence` what the bell said when the last
/// answer was given, `duration` the bound.
constexpr const char* cuda_echo = R"(#include <gpumap/kernel.h>
__device__ gpumap_u64 now_ns() {
  gpumap_u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
extern "C" __global__ void echo(gpumap_frame frame) {
  const volatile gpumap_u32* bell = reinterpret_cast<const volatile gpumap_u32*>(frame.in.plane[1]);
  volatile gpumap_u32* answer = reinterpret_cast<volatile gpumap_u32*>(frame.out.plane[0]);
  gpumap_u32 last = static_cast<gpumap_u32>(frame.sequence);
  gpumap_u64 until = 0;
  for (gpumap_u32 looks = 1;; ++looks) {
    const gpumap_u32 said = *bell;
    if (said == 0xFFFFFFFFu) return;
    if (said != last) {
      *answer = last = said;
      looks = until = 0;
    } else if (looks % 1024 == 0) {  // not at every look: reading the clock would be in the round trip
      const gpumap_u64 now = now_ns();
      if (until == 0) until = now + frame.duration;
      if (now > until) return;
    }
  }
}
)";
constexpr const char* vulkan_echo = R"(#version 460
#define GPUMAP_OWN_WORKGROUP_SIZE
#include <gpumap.glsl>
layout(local_size_x = 1) in;
// What the CPU writes while this runs.
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent volatile buffer live_u32_at { uint value; };
#define LOOK if (said == last) said = live_u32_at(frame.in_view.plane[1]).value;
void main() {
  uint last = uint(frame.sequence);
  for (uint turns = uint(frame.duration); turns > 0u; --turns) {
    uint said = last;
    // Many looks a turn: the CPU's side may wait longer for a core than as many looks as turns take.
    LOOK LOOK LOOK LOOK LOOK LOOK LOOK LOOK
    if (said == 0xFFFFFFFFu) return;
    if (said != last) live_u32_at(frame.out_view.plane[0]).value = said;
    last = said;
  }
}
)";

std::shared_ptr<gpumap::Kernel> load_echo(const Context& context) {
  const bool cuda = context.backend == Backend::cuda;
  return gpumap::Kernel::load(context.device, {.language = cuda ? gpumap::Language::cuda : gpumap::Language::glsl,
                                               .name = cuda ? "echo.cu" : "echo.comp",
                                               .code = cuda ? cuda_echo : vulkan_echo});
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
  /// The doorbell lies in memory of that `placement`. Throws gpumap::Error.
  Resident(const Context& context, const gpumap::Kernel& kernel, Placement placement)
      : kernel_(kernel),
        memory_(context.device->allocate({.placement = placement, .bytes = page_bytes, .require_coherent = true},
                                         context.backend)),
        answer_(context.allocate(Placement::host, page_bytes)),
        queue_(context.create_queue()) {
    frame_.in.plane[1] = memory_->address(context.backend);
    frame_.out.plane[0] = answer_->address(context.backend);
    frame_.duration = context.backend == Backend::cuda ? idle_ns : max_turns;
  }
  ~Resident() {
    if (started_) write_bell(stop_word);
  }
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  void start() {
    write_bell(sequence_);
    frame_.sequence = sequence_;
    launch();
    started_ = true;
  }
  void stop() {
    started_ = false;
    write_bell(stop_word);
    poll(running_);
  }
  /// Order all stores before it, raise the doorbell and drain it.
  void ring() { write_bell(++sequence_); }
  /// Wait for the answer to the last ring. False when the kernel had ended and was launched anew meanwhile: that round
  /// says nothing about time. Throws Error(device_lost) after ten seconds.
  [[nodiscard]] bool answer() {
    const auto* word = reinterpret_cast<const volatile std::uint32_t*>(answer_->host());
    unsigned looks = 0;
    bool launched_anew = false;
    const auto answered = [&] {
      const std::uint32_t said = *word;
      if (said == sequence_) return true;
      // Nobody rang for too long, or a software driver gave another program the core.
      if (++looks % 256 == 0 && running_.signalled() && *word == said) {
        frame_.sequence = sequence_ - 1;
        launch();
        launched_anew = true;
      }
      return false;
    };
    if (spin_until(answered)) return !launched_anew;
    running_.timeline()->check();
    throw Error(ErrorCode::device_lost,
                fmt::format("kernel {} did not answer doorbell {} within 10 s: does the GPU see the CPU's stores?",
                            kernel_.name(), sequence_));
  }

 private:
  void write_bell(std::uint32_t value) {
    gpumap::store_fence();
    *reinterpret_cast<volatile std::uint32_t*>(memory_->host()) = value;
    // Else it waits in the write-combining buffer for as long as the CPU likes.
    gpumap::store_fence();
  }
  void launch() {
    queue_->launch(kernel_, grid_, frame_);
    running_ = queue_->submit();
  }

  const gpumap::Kernel& kernel_;
  std::shared_ptr<gpumap::Mapping> memory_, answer_;
  std::unique_ptr<gpumap::Queue> queue_;  // last: ends before the memory goes
  gpumap_frame frame_{};
  gpumap::Grid grid_;
  gpumap::Fence running_;
  std::uint32_t sequence_ = 0;
  bool started_ = false;
};

struct Path {
  const char* name;
  Placement placement;

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

}  // namespace

void run_pingpong(Context& context, ModeReport& report) {
  report.what = "from before the store of a doorbell until the CPU sees the GPU's answer";
  report.not_measured = {"a payload: see launch", "sleeping: the CPU and the GPU poll"};
  if (const std::string reason = refuse_resident(context); !reason.empty()) {
    report.extra["refused"] = reason;
    report.not_measured.push_back("anything: " + reason);
    return;
  }

  const auto kernel = load_echo(context);
  std::array<Path, 2> paths{{{"BAR", Placement::bar}, {"host memory", Placement::host}}};
  for (Path& path : paths) path.resident = std::make_unique<Resident>(context, *kernel, path.placement);
  const Rounds rounds = context.small() ? Rounds{.blocks = 2, .warmup = 2, .counted = 25}
                                        : Rounds{.blocks = 10, .warmup = 100, .counted = 2000};
  for (unsigned block = 0; block < rounds.blocks; ++block) {
    for (Path& path : paths) run_block(path, rounds);
  }

  constexpr const char* detail = "4-byte doorbell";
  report.extra["discarded"] = nlohmann::json::array();
  for (Path& path : paths) {
    report.extra["discarded"].push_back({{"path", path.name}, {"detail", detail}, {"rounds", path.discarded}});
    if (path.times.empty()) {
      report.not_measured.push_back(fmt::format("{}: other programs left the kernel no time", path.name));
      continue;
    }
    report.add({.path = path.name,
                .detail = detail,
                .bytes = sizeof stop_word,
                .rival = path.placement == Placement::host,
                .cpu_us = static_cast<double>(path.cpu) / path.rounds / 1e3},
               path.times);
  }
  if (report.rows.size() == paths.size()) {
    context.targets.push_back({.claim = "pingpong: 4-byte doorbell in the BAR over one in host memory, round trip",
                               .value = report.rows[0].time.median_us / report.rows[1].time.median_us,
                               .bound = 0.9});
  }
}

}  // namespace bench
