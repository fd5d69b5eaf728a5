// SPDX-License-Identifier: MIT
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "copy/store_kernel.hpp"
#include "gpumap/copy.hpp"

namespace gpumap {
namespace copy {
namespace {

bool always() noexcept {
  return true;
}

#if defined(__x86_64__)
bool has_avx2() noexcept {
  return __builtin_cpu_supports("avx2") != 0;
}
bool has_avx512() noexcept {
  return __builtin_cpu_supports("avx512f") != 0;
}

// The best last. AVX2 after AVX-512: into a BAR over PCIe Gen5, AVX2 reached 18.2 GB/s and AVX-512 17.9 on a frame
// (17.6 and 17.4 at 64 KiB), and the wider registers may lower the clock of what runs beside.
constexpr std::array kernels{
    StoreKernel{"memcpy", copy_memcpy, always},
    StoreKernel{"sse2", copy_sse2, always},
    StoreKernel{"avx512", copy_avx512, has_avx512},
    StoreKernel{"avx2", copy_avx2, has_avx2},
};
#else
constexpr std::array kernels{StoreKernel{"memcpy", copy_memcpy, always}};
#endif

const StoreKernel& chosen() noexcept {
  static const StoreKernel& kernel = choose(std::getenv("GPUMAP_COPY"));
  return kernel;
}

}  // namespace

std::span<const StoreKernel> store_kernels() noexcept {
  return kernels;
}

const StoreKernel& choose(const char* wanted) noexcept {
  const StoreKernel* best = kernels.data();
  for (const StoreKernel& kernel : kernels) {
    if (!kernel.available()) continue;
    best = &kernel;
    if (wanted != nullptr && wanted == kernel.name) return kernel;
  }
  if (wanted != nullptr && *wanted != '\0') {
    std::fprintf(stderr, "gpumap: GPUMAP_COPY=%s is unknown or not on this CPU, using %s; there are:", wanted,
                 best->name.data());
    for (const StoreKernel& kernel : kernels) {
      if (kernel.available()) std::fprintf(stderr, " %s", kernel.name.data());
    }
    std::fputc('\n', stderr);
  }
  return *best;
}

void copy_memcpy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  // memcpy must not be given null, which an empty range may be.
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace copy

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  copy::chosen().copy(to, from, bytes);
}

std::string_view stream_copy_name() noexcept {
  return copy::chosen().name;
}

void store_fence() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace gpumap
