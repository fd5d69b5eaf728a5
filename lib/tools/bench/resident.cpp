// SPDX-License-Identifier: MIT
#include "resident.hpp"

#include <fmt/format.h>

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

}  // namespace

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

}  // namespace bench
