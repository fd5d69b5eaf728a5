// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace gpumap::copy {

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
