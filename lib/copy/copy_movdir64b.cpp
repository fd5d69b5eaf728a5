// SPDX-License-Identifier: MIT
#if defined(__x86_64__)
#include <immintrin.h>

#include "copy/store_kernel.hpp"

namespace gpumap::copy {

// One instruction moves a whole line past the write-combining buffers: the fastest way for some KiB (13.1 against
// 11.9 GB/s at 4 KiB into a BAR over PCIe Gen5), and not for more (15.8 against 18.2).
// An attribute and not a flag for the file: see copy_avx2.cpp.
__attribute__((target("movdir64b"))) void copy_movdir64b(std::byte* to, const std::byte* from,
                                                         std::size_t bytes) noexcept {
  const std::size_t head = copy_head(to, from, bytes);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= store_line_bytes; to += store_line_bytes, from += store_line_bytes, bytes -= store_line_bytes) {
    _movdir64b(to, from);
  }
  copy_tail(to, from, bytes);
}

}  // namespace gpumap::copy
#endif
