// SPDX-License-Identifier: MIT
#include "resident.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <gpumap/copy.hpp>
#include <gpumap/error.hpp>

#include "bench_kernels.hpp"
#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"

namespace bench {
namespace {

using gpumap::Backend;
using gpumap::Error;
using gpumap::ErrorCode;

constexpr std::size_t page_bytes = 4096;
// Both bounds of a kernel that nobody rings for. CUDA: by the clock. Vulkan: by turns of its loops, of which software
// drivers allow 65,535.
constexpr std::int64_t idle_ns = 5'000'000'000;
constexpr std::int64_t max_turns = 60'000;
constexpr std::uint64_t stop_word = ~std::uint64_t{0};

constexpr std::uint32_t shader_threads = 256;
constexpr std::uint32_t max_threads = 1024;
constexpr std::uint32_t warp = 32;

std::shared_ptr<gpumap::Kernel> load(const Context& context, const char* function) {
  if (context.backend == Backend::cuda) {
    return gpumap::Kernel::load(context.device, {.language = gpumap::Language::cuda,
                                                 .name = "resident.cu",
                                                 .code = std::string(gpumap::embedded::resident_cu),
                                                 .function = function});
  }
  return gpumap::Kernel::load(context.device, {.language = gpumap::Language::glsl,
                                               .name = "resident.comp",
                                               .code = std::string(gpumap::embedded::resident_comp)});
}

}  // namespace

ResidentKernels::ResidentKernels(const Context& context)
    : echo(load(context, "resident_echo")),
      read(context.backend == Backend::cuda ? load(context, "resident_read") : echo),
      read_once(context.backend == Backend::cuda ? load(context, "read_once") : echo) {}

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

std::uint32_t weigh(std::span<const std::uint32_t> words) noexcept {
  std::uint32_t sum = 0;
  std::uint32_t weight = 1;
  for (const std::uint32_t word : words) {
    sum += word * weight;
    weight += 2;
  }
  return sum;
}

Resident::Resident(const Context& context, const ResidentKernels& kernels, const ResidentOptions& options)
    : kernel_(options.payload_bytes == 0 ? *kernels.echo : *kernels.read),
      options_(options),
      bell_at_((options.payload_bytes + page_bytes - 1) / page_bytes * page_bytes),
      memory_(context.device->allocate(
          {.placement = options.placement, .bytes = bell_at_ + page_bytes, .require_coherent = true}, context.backend)),
      answer_(context.allocate(gpumap::Placement::host, page_bytes)),
      queue_(context.create_queue()) {
  const std::uint64_t address = memory_->address(context.backend);
  frame_.in.plane[0] = address;
  frame_.in.plane[1] = address + bell_at_;
  frame_.in.bytes = options.payload_bytes;
  frame_.in.channels = options.bell_bytes;
  frame_.out.plane[0] = answer_->address(context.backend);
  frame_.duration = context.backend == Backend::cuda ? idle_ns : max_turns;
  if (context.backend == Backend::vulkan) {
    grid_.threads[0] = shader_threads;
  } else if (options.payload_bytes > 0) {
    const auto quads = static_cast<std::uint32_t>(std::min<std::size_t>(options.payload_bytes / 16, max_threads));
    grid_.threads[0] = std::max((quads + warp - 1) / warp * warp, warp);
  }
}

Resident::~Resident() {
  if (started_) write_bell(stop_word);
}

void Resident::write_bell(std::uint64_t value) {
  gpumap::store_fence();
  std::byte* bell = memory_->host() + bell_at_;
  if (options_.bell_bytes == 4) {
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

std::optional<std::uint32_t> Resident::answer() {
  const auto* word = reinterpret_cast<const volatile std::uint64_t*>(answer_->host());
  const auto wanted = static_cast<std::uint32_t>(sequence_);
  std::uint32_t checksum = 0;
  unsigned looks = 0;
  bool launched_anew = false;
  const auto answered = [&] {
    const std::uint64_t said = *word;
    if (static_cast<std::uint32_t>(said >> 32) == wanted) {
      checksum = static_cast<std::uint32_t>(said);
      return true;
    }
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
  if (launched_anew) return {};
  return checksum;
}

}  // namespace bench
