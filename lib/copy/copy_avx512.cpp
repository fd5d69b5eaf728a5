// SPDX-License-Identifier: MIT
#if defined(__x86_64__)
#include <immintrin.h>

#include "copy/store_kernel.hpp"

namespace gpumap::copy {

// An attribute and not a flag for the file: see copy_avx2.cpp.
__attribute__((target("avx512f"))) void copy_avx512(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const std::size_t head = copy_head(to, from, bytes);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= 2 * store_line_bytes;
       to += 2 * store_line_bytes, from += 2 * store_line_bytes, bytes -= 2 * store_line_bytes) {
    const __m512i a = _mm512_loadu_si512(from);
    const __m512i b = _mm512_loadu_si512(from + store_line_bytes);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), a);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + store_line_bytes), b);
  }
  if (bytes >= store_line_bytes) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
    to += store_line_bytes;
    from += store_line_bytes;
    bytes -= store_line_bytes;
  }
  copy_tail(to, from, bytes);
}

}  // namespace gpumap::copy
#endif
