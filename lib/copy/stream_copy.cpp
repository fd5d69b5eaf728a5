// SPDX-License-Identifier: MIT
#include <atomic>
#include <cstdlib>

#include "copy/store_kernel.hpp"
#include "gpumap/copy.hpp"

namespace gpumap {
namespace {

const copy::StoreKernel& chosen() {
  static const copy::StoreKernel& kernel = copy::choose(std::getenv("GPUMAP_COPY"));
  return kernel;
}

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  chosen().copy(to, from, bytes);
}

std::string_view stream_copy_name() noexcept {
  return chosen().name;
}

std::vector<std::string_view> store_kernel_names() {
  std::vector<std::string_view> names;
  for (const copy::StoreKernel& kernel : copy::usable_kernels()) names.push_back(kernel.name);
  return names;
}

void store_fence() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#elif defined(__aarch64__)
  // To the end of what the system shares, a PCIe device included: dmb ishst would order them for other CPUs only.
  asm volatile("dsb st" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace gpumap
