// SPDX-License-Identifier: MIT
#include <array>
#include <cstdio>

#include "copy/cpu.hpp"
#include "copy/store_kernel.hpp"
#include "gpumap/printable.hpp"

namespace gpumap::copy {
namespace {

bool always() noexcept {
  return true;
}

#if defined(__x86_64__)
bool has_avx2() noexcept {
  return cpu_words().has_avx2();
}
bool has_avx512() noexcept {
  return cpu_words().has_avx512();
}
bool has_fast_movsb() noexcept {
  return cpu_words().has_fast_movsb();
}
bool has_movdir64b() noexcept {
  return cpu_words().has_movdir64b();
}

// The best last, where nothing has been measured. AVX2 after AVX-512: into a BAR over PCIe Gen5, AVX2 reached 18.2 GB/s
// and AVX-512 17.9 on a frame (17.6 and 17.4 at 64 KiB), and the wider registers may lower the clock of what runs
// beside.
constexpr std::array kernels{
    StoreKernel{"memcpy", copy_memcpy, always, true},        StoreKernel{"movsb", copy_movsb, has_fast_movsb, true},
    StoreKernel{"movdir64b", copy_movdir64b, has_movdir64b}, StoreKernel{"sse2", copy_sse2, always},
    StoreKernel{"avx512", copy_avx512, has_avx512},          StoreKernel{"avx2", copy_avx2, has_avx2},
};
#elif defined(__aarch64__)
constexpr std::array kernels{
    StoreKernel{"memcpy", copy_memcpy, always, true},
    StoreKernel{"neon", copy_neon, has_neon},
};
#else
constexpr std::array kernels{StoreKernel{"memcpy", copy_memcpy, always, true}};
#endif

}  // namespace

std::span<const StoreKernel> store_kernels() noexcept {
  return kernels;
}

std::span<const StoreKernel> usable_kernels() {
  static const auto& usable = *new std::vector<StoreKernel>(try_kernels(kernels));
  return usable;
}

const StoreKernel& choose(const char* wanted) {
  const auto usable = usable_kernels();
  if (wanted == nullptr || *wanted == '\0') return usable.back();
  for (const StoreKernel& kernel : usable) {
    if (wanted == kernel.name) return kernel;
  }
  std::fprintf(stderr,
               "gpumap: GPUMAP_COPY=%s is unknown or not on this CPU, using %s; there are:", printable(wanted).c_str(),
               usable.back().name.data());
  for (const StoreKernel& kernel : usable) std::fprintf(stderr, " %s", kernel.name.data());
  std::fputc('\n', stderr);
  return usable.back();
}

void copy_memcpy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  // memcpy must not be given null, which an empty range may be.
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace gpumap::copy
