// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace gpumap::copy {

/// One way to copy with streaming stores, for one instruction set.
struct StoreKernel {
  std::string_view name;
  void (*copy)(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
  bool (*available)() noexcept;  ///< on this CPU
};

/// All of this build, the best first.
[[nodiscard]] std::span<const StoreKernel> store_kernels() noexcept;
/// The kernel of that name, or the best that this CPU has for a null or empty one; an unknown or unavailable name says
/// so on stderr and gives the best.
[[nodiscard]] const StoreKernel& choose(const char* wanted) noexcept;

void copy_memcpy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

#if defined(__x86_64__)
void copy_sse2(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
void copy_avx2(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
void copy_avx512(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

inline constexpr std::size_t store_line_bytes = 64;  // one write-combining buffer, one PCIe write

/// How far ahead of the loads the source is fetched. The hardware's own prefetch stops at each page end and starts
/// anew behind it; this bridges the gap. Prefetching past the end of the source is harmless: a prefetch never faults.
inline constexpr std::size_t prefetch_bytes = 1024;

inline void prefetch(const std::byte* from) noexcept {
  _mm_prefetch(reinterpret_cast<const char*>(from) + prefetch_bytes, _MM_HINT_T0);
}

/// Ordinary stores up to the first 64-byte boundary of `to`; returns how many bytes that was. From there on every line
/// is filled by one burst of stores, which is what makes a write-combining buffer leave as one full-line write.
inline std::size_t copy_head(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::size_t head = (store_line_bytes - reinterpret_cast<std::uintptr_t>(to) % store_line_bytes) % store_line_bytes;
  if (head > bytes) head = bytes;
  if (head > 0) std::memcpy(to, from, head);
  return head;
}

/// The last bytes < 64, from a 64-byte boundary of `to`.
inline void copy_tail(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  for (; bytes >= 16; to += 16, from += 16, bytes -= 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  if (bytes > 0) std::memcpy(to, from, bytes);
}
#endif

}  // namespace gpumap::copy
