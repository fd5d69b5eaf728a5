// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace gpumap::copy {

/// One way to copy into memory that the CPU does not read, for one instruction set.
struct StoreKernel {
  std::string_view name;
  void (*copy)(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
  bool (*available)() noexcept;  ///< on this CPU, under this operating system
  bool through_cache = false;    ///< what it writes to ordinary memory lies in the cache: it does not stream
};

/// All of this build, the worst first.
[[nodiscard]] std::span<const StoreKernel> store_kernels() noexcept;
/// Those that this CPU has and that pass their self-test, tried once in a process; never empty.
[[nodiscard]] std::span<const StoreKernel> usable_kernels();
/// Those of `kernels` that this CPU has and that pass their self-test; what does not pass is named on stderr.
[[nodiscard]] std::vector<StoreKernel> try_kernels(std::span<const StoreKernel> candidates);
/// The usable kernel of that name, or the best for a null or empty one; an unknown or unusable name says so on stderr
/// and gives the best.
[[nodiscard]] const StoreKernel& choose(const char* wanted);

void copy_memcpy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

#if defined(__x86_64__)
void copy_sse2(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
void copy_avx2(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
void copy_avx512(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
void copy_movsb(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
void copy_movdir64b(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
#elif defined(__aarch64__)
void copy_neon(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
#endif

inline constexpr std::size_t store_line_bytes = 64;  // one write-combining buffer, one PCIe write

// No software prefetch of the source: with a cold source (3.1 MB frames over 256 MiB) 256 to 2,048 bytes ahead cost
// AVX2 5 to 20 % and AVX-512 nothing to 5 % on an Intel Sapphire-Rapids-class machine, and every kernel 5 to 18 % on an
// AMD Zen 5 one; only SSE2 on Intel gained (11.9 to 13.3 GB/s). The hardware sees a rising stream by itself.

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
#if defined(__x86_64__)
  for (; bytes >= 16; to += 16, from += 16, bytes -= 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
#endif
  if (bytes > 0) std::memcpy(to, from, bytes);
}

#if defined(__x86_64__)
/// What the CPU says it has, and which of its registers the operating system saves for a thread: an instruction whose
/// registers nobody saves is illegal, whatever the CPU says.
struct CpuWords {
  std::uint32_t leaf1_ecx = 0, leaf7_ebx = 0, leaf7_ecx = 0;  ///< of CPUID
  std::uint64_t xcr0 = 0;                                     ///< of XGETBV; 0 where the system did not turn that on

  [[nodiscard]] bool has_avx2() const noexcept;
  [[nodiscard]] bool has_avx512() const noexcept;     ///< its foundation, AVX-512F
  [[nodiscard]] bool has_movdir64b() const noexcept;  ///< no registers of its own
  [[nodiscard]] bool has_clflushopt() const noexcept;
  [[nodiscard]] bool has_fast_movsb() const noexcept;  ///< REP MOVSB is enhanced (ERMS); all CPUs have some
};

/// Of this machine, read once. Not what the compiler's builtins know: those of 2022 do not name MOVDIR64B.
[[nodiscard]] const CpuWords& cpu_words() noexcept;
#elif defined(__aarch64__)
/// What Linux says of this CPU.
[[nodiscard]] bool has_neon() noexcept;
#endif

}  // namespace gpumap::copy
