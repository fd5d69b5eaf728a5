// SPDX-License-Identifier: MIT
#if defined(__x86_64__)
#include <emmintrin.h>

#include "copy/store_kernel.hpp"

namespace gpumap::copy {

void copy_sse2(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const std::size_t head = copy_head(to, from, bytes);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= store_line_bytes; to += store_line_bytes, from += store_line_bytes, bytes -= store_line_bytes) {
    const auto* in = reinterpret_cast<const __m128i*>(from);
    auto* out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in);
    const __m128i b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2);
    const __m128i d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  copy_tail(to, from, bytes);
}

}  // namespace gpumap::copy
#endif
