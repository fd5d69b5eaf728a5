// SPDX-License-Identifier: MIT
#include "memory/bar_read.hpp"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gpumap {

#if defined(__x86_64__)

bool can_read_bar() noexcept {
  static const bool can = __builtin_cpu_supports("sse4.1") != 0;
  return can;
}

__attribute__((target("sse4.1"))) void read_bar(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  constexpr std::size_t block = sizeof(__m128i);
  _mm_mfence();  // a line that was fetched before may be older than what the GPU wrote
  std::size_t skip = reinterpret_cast<std::uintptr_t>(from) % block;
  const std::byte* at = from - skip;
  for (; skip + bytes >= block; at += block, skip = 0) {
    // GCC 12 takes the pointer without const.
    const __m128i loaded = _mm_stream_load_si128(reinterpret_cast<__m128i*>(const_cast<std::byte*>(at)));
    std::byte part[block];
    std::memcpy(part, &loaded, block);
    const std::size_t count = block - skip;
    std::memcpy(to, part + skip, count);
    to += count;
    bytes -= count;
  }
  std::memcpy(to, at + skip, bytes);
}

#else

bool can_read_bar() noexcept {
  return false;
}

void read_bar(std::byte* /*to*/, const std::byte* /*from*/, std::size_t /*bytes*/) noexcept {}

#endif

}  // namespace gpumap
