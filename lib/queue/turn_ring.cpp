// SPDX-License-Identifier: MIT
#include "queue/turn_ring.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "device/cuda_driver.hpp"
#include "gpumap/copy.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace {

/// Two words behind the turns, of which each begins a cache line: see gpumap_residence.
constexpr std::size_t parts_offset = TurnRing::slots * sizeof(gpumap_turn);
constexpr std::size_t go_offset = parts_offset + sizeof(gpumap_u64);

}  // namespace

gpumap_turn turn_of(gpumap_turn_kind kind) {
  gpumap_turn turn;
  std::memset(&turn, 0, offsetof(gpumap_turn, frame));
  turn.kind = kind;
  return turn;
}

TurnRing::TurnRing(GpuDevice& device) {
  allocate(device);
  for (std::uint64_t i = 0; i < slots; ++i) slot(i).number = 0;
  store_fence();
}

void TurnRing::allocate(GpuDevice& device) {
  const CudaContext& context = *device.cuda();
  MappingOptions options{
      .placement = Placement::bar, .bytes = go_offset + sizeof(gpumap_u64), .require_coherent = true};
  doorbell_ = "its doorbell is in the GPU's memory";
  std::string why = fmt::format("{} does not keep the order of writes over PCIe", context.gpu_name());
  const char* asked = std::getenv("GPUMAP_CUDA_DOORBELL");
  if (asked != nullptr && std::string_view(asked) == "host") {
    why = "GPUMAP_CUDA_DOORBELL=host says so";
  } else if (context.attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
             CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER) {
    try {
      memory_ = device.allocate(options, Backend::cuda);
      return;
    } catch (const Error& error) {
      why = error.what();
    }
  }
  options.placement = Placement::host;
  memory_ = device.allocate(options, Backend::cuda);
  doorbell_ = "its doorbell is in host memory: " + why;
}

gpumap_turn& TurnRing::slot(std::uint64_t number) const noexcept {
  return reinterpret_cast<gpumap_turn*>(memory_->host())[number % slots];
}

void TurnRing::put(std::uint64_t number, const gpumap_turn& turn, std::size_t bytes) noexcept {
  gpumap_turn& at = slot(number);
  constexpr std::size_t begin = offsetof(gpumap_turn, kind);
  stream_copy(reinterpret_cast<std::byte*>(&at) + begin, reinterpret_cast<const std::byte*>(&turn) + begin,
              bytes - begin);
  store_fence();
  std::atomic_ref<gpumap_u64>(at.number).store(number + 1, std::memory_order_release);
  store_fence();
}

gpumap_residence TurnRing::residence(std::uint64_t first, std::uint64_t done) const {
  const std::uint64_t address = memory_->address(Backend::cuda);
  return {.turns = address,
          .slots = slots,
          .stride = sizeof(gpumap_turn),
          .first = first,
          .parts = address + parts_offset,
          .go = address + go_offset,
          .done = done};
}

}  // namespace gpumap
