// SPDX-License-Identifier: MIT
#include <atomic>
#include <cstring>

#include "gpumap/copy.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gpumap {

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

std::string_view stream_copy_name() noexcept { return "memcpy"; }

void store_fence() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace gpumap
