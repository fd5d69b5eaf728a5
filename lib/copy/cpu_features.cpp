// SPDX-License-Identifier: MIT
#include "copy/cpu_features.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace gpumap::copy {

#if defined(__x86_64__)
namespace {

constexpr bool bit(std::uint32_t word, unsigned at) {
  return (word >> at & 1U) != 0;
}

// Bits of XCR0.
constexpr std::uint64_t avx_state = 0x06;     // XMM, and the upper halves of YMM
constexpr std::uint64_t avx512_state = 0xe6;  // and opmasks, the upper halves of ZMM0-15, ZMM16-31

constexpr bool saves(std::uint64_t xcr0, std::uint64_t state) {
  return (xcr0 & state) == state;
}

constexpr unsigned osxsave = 27;  // of leaf 1, ECX: the operating system has turned XGETBV on

CpuWords read_words() noexcept {
  CpuWords words;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &words.leaf1_ecx, &edx) == 0) return {};
  // Older CPUs have no leaf 7: all zero.
  __get_cpuid_count(7, 0, &eax, &words.leaf7_ebx, &words.leaf7_ecx, &edx);
  if (bit(words.leaf1_ecx, osxsave)) {
    // The intrinsic wants a flag for the whole file.
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    words.xcr0 = std::uint64_t{high} << 32U | low;
  }
  return words;
}

}  // namespace

bool CpuWords::has_avx2() const noexcept {
  return bit(leaf1_ecx, 28) && bit(leaf7_ebx, 5) && saves(xcr0, avx_state);
}

bool CpuWords::has_avx512() const noexcept {
  return bit(leaf1_ecx, 28) && bit(leaf7_ebx, 16) && saves(xcr0, avx512_state);
}

bool CpuWords::has_movdir64b() const noexcept {
  return bit(leaf7_ecx, 28);
}

bool CpuWords::has_clflushopt() const noexcept {
  return bit(leaf7_ebx, 23);
}

bool CpuWords::has_fast_movsb() const noexcept {
  return bit(leaf7_ebx, 9);
}

const CpuWords& cpu_words() noexcept {
  static const CpuWords words = read_words();
  return words;
}
#elif defined(__aarch64__)
bool has_neon() noexcept {
  return (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0;
}
#endif

}  // namespace gpumap::copy
