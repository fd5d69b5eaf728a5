// SPDX-License-Identifier: MIT
#if defined(__x86_64__)
#include <immintrin.h>

#include "copy/store_kernel.hpp"

namespace gpumap::copy {

// The attribute instead of a compiler flag for the file: what this file takes from headers stays runnable everywhere,
// whichever copy of an inline function the linker keeps.
__attribute__((target("avx2"))) void copy_avx2(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const std::size_t head = copy_head(to, from, bytes);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= 2 * store_line_bytes;
       to += 2 * store_line_bytes, from += 2 * store_line_bytes, bytes -= 2 * store_line_bytes) {
    const auto* in = reinterpret_cast<const __m256i*>(from);
    auto* out = reinterpret_cast<__m256i*>(to);
    const __m256i a = _mm256_loadu_si256(in);
    const __m256i b = _mm256_loadu_si256(in + 1);
    const __m256i c = _mm256_loadu_si256(in + 2);
    const __m256i d = _mm256_loadu_si256(in + 3);
    _mm256_stream_si256(out, a);
    _mm256_stream_si256(out + 1, b);
    _mm256_stream_si256(out + 2, c);
    _mm256_stream_si256(out + 3, d);
  }
  if (bytes >= store_line_bytes) {
    const auto* in = reinterpret_cast<const __m256i*>(from);
    auto* out = reinterpret_cast<__m256i*>(to);
    const __m256i a = _mm256_loadu_si256(in);
    const __m256i b = _mm256_loadu_si256(in + 1);
    _mm256_stream_si256(out, a);
    _mm256_stream_si256(out + 1, b);
    to += store_line_bytes;
    from += store_line_bytes;
    bytes -= store_line_bytes;
  }
  copy_tail(to, from, bytes);
}

}  // namespace gpumap::copy
#endif
