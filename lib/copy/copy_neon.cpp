// SPDX-License-Identifier: MIT
#if defined(__aarch64__)
#include <arm_neon.h>

#include "copy/store_kernel.hpp"

namespace gpumap::copy {

// STNP says that the line will not be used again. The compiler has no intrinsic for it, hence the assembly.
void copy_neon(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const std::size_t head = copy_head(to, from, bytes);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= store_line_bytes; to += store_line_bytes, from += store_line_bytes, bytes -= store_line_bytes) {
    const auto* in = reinterpret_cast<const std::uint8_t*>(from);
    const uint8x16_t a = vld1q_u8(in);
    const uint8x16_t b = vld1q_u8(in + 16);
    const uint8x16_t c = vld1q_u8(in + 32);
    const uint8x16_t d = vld1q_u8(in + 48);
    asm volatile(
        "stnp %q[a], %q[b], [%[to]]\n\t"
        "stnp %q[c], %q[d], [%[to], #32]"
        :
        : [to] "r"(to), [a] "w"(a), [b] "w"(b), [c] "w"(c), [d] "w"(d)
        : "memory");
  }
  copy_tail(to, from, bytes);
}

}  // namespace gpumap::copy
#endif
