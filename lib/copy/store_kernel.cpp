// SPDX-License-Identifier: MIT
#include "copy/store_kernel.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "gpumap/copy.hpp"
#include "gpumap/printable.hpp"

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

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace gpumap::copy {

void copy_memcpy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  // memcpy must not be given null, which an empty range may be.
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// An instruction set is an attribute of its function instead of a compiler flag for a file: what a file takes from
// headers stays runnable everywhere, whichever copy of an inline function the linker keeps.

#if defined(__x86_64__)
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

// The CPU's own string copy, which writes whole lines where it may. Into a BAR over PCIe Gen5 some KiB come fastest
// this way (20.3 against 12.9 GB/s at 4 KiB on one H100's host): its start is cheap, and no loop and no tail follow.
// Ordinary memory it writes through the cache, as memcpy does.
void copy_movsb(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const std::size_t head = copy_head(to, from, bytes);
  to += head;
  from += head;
  bytes -= head;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

// One instruction moves a whole line past the write-combining buffers: the fastest way for some KiB (13.1 against
// 11.9 GB/s at 4 KiB into a BAR over PCIe Gen5), and not for more (15.8 against 18.2).
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
#elif defined(__aarch64__)
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
#endif

namespace {

bool always() noexcept {
  return true;
}

#if defined(__x86_64__)
bool has_avx2() noexcept {
  return cpu_words().has_avx2();
}
bool has_avx512() noexcept {
  return cpu_words().has_avx512();
}
bool has_fast_movsb() noexcept {
  return cpu_words().has_fast_movsb();
}
bool has_movdir64b() noexcept {
  return cpu_words().has_movdir64b();
}

// The best last, where nothing has been measured. AVX2 after AVX-512: into a BAR over PCIe Gen5, AVX2 reached 18.2 GB/s
// and AVX-512 17.9 on a frame (17.6 and 17.4 at 64 KiB), and the wider registers may lower the clock of what runs
// beside.
constexpr std::array kernels{
    StoreKernel{"memcpy", copy_memcpy, always, true},        StoreKernel{"movsb", copy_movsb, has_fast_movsb, true},
    StoreKernel{"movdir64b", copy_movdir64b, has_movdir64b}, StoreKernel{"sse2", copy_sse2, always},
    StoreKernel{"avx512", copy_avx512, has_avx512},          StoreKernel{"avx2", copy_avx2, has_avx2},
};
#elif defined(__aarch64__)
constexpr std::array kernels{
    StoreKernel{"memcpy", copy_memcpy, always, true},
    StoreKernel{"neon", copy_neon, has_neon},
};
#else
constexpr std::array kernels{StoreKernel{"memcpy", copy_memcpy, always, true}};
#endif

// What a CPU and its operating system say they have is run as it is: an instruction that a hypervisor names and does
// not let through ends the process.
bool copies_well(const StoreKernel& kernel) {
  constexpr std::size_t guard_bytes = 64;
  constexpr std::size_t max_bytes = 193;  // past two lines at once, the lines that remain, and a tail
  constexpr std::byte guard{0x5a};
  std::array<std::byte, 64 + max_bytes> from{};
  alignas(64) std::array<std::byte, guard_bytes + 64 + max_bytes + guard_bytes> to{};
  unsigned value = 1;
  for (std::byte& byte : from) byte = static_cast<std::byte>((value = value * 1103515245U + 12345U) >> 16U);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65},
                                  std::size_t{130}, max_bytes}) {
    for (const std::size_t shift : {0U, 1U, 16U, 63U}) {
      std::byte* out = to.data() + guard_bytes + shift;
      const std::byte* in = from.data() + (shift * 5 + 3) % 64;
      to.fill(guard);
      kernel.copy(out, in, bytes);
      store_fence();
      const auto is_guard = [](std::byte byte) { return byte == guard; };
      if (!std::equal(out, out + bytes, in) || !std::all_of(to.data(), out, is_guard) ||
          !std::all_of(out + bytes, to.data() + to.size(), is_guard)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

std::vector<StoreKernel> try_kernels(std::span<const StoreKernel> candidates) {
  std::vector<StoreKernel> usable;
  for (const StoreKernel& kernel : candidates) {
    if (!kernel.available()) continue;
    if (copies_well(kernel)) {
      usable.push_back(kernel);
    } else {
      std::fprintf(stderr, "gpumap: the store kernel %s copied wrongly, doing without\n", kernel.name.data());
    }
  }
  return usable;
}

std::span<const StoreKernel> store_kernels() noexcept {
  return kernels;
}

std::span<const StoreKernel> usable_kernels() {
  static const auto& usable = *new std::vector<StoreKernel>(try_kernels(kernels));
  return usable;
}

const StoreKernel& choose(const char* wanted) {
  const auto usable = usable_kernels();
  if (wanted == nullptr || *wanted == '\0') return usable.back();
  for (const StoreKernel& kernel : usable) {
    if (wanted == kernel.name) return kernel;
  }
  std::fprintf(stderr,
               "gpumap: GPUMAP_COPY=%s is unknown or not on this CPU, using %s; there are:", printable(wanted).c_str(),
               usable.back().name.data());
  for (const StoreKernel& kernel : usable) std::fprintf(stderr, " %s", kernel.name.data());
  std::fputc('\n', stderr);
  return usable.back();
}

}  // namespace gpumap::copy

namespace gpumap {
namespace {

const copy::StoreKernel& chosen() {
  static const copy::StoreKernel& kernel = copy::choose(std::getenv("GPUMAP_COPY"));
  return kernel;
}

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  chosen().copy(to, from, bytes);
}

std::string_view stream_copy_name() noexcept {
  return chosen().name;
}

std::vector<std::string_view> store_kernel_names() {
  std::vector<std::string_view> names;
  for (const copy::StoreKernel& kernel : copy::usable_kernels()) names.push_back(kernel.name);
  return names;
}

void store_fence() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#elif defined(__aarch64__)
  // To the end of what the system shares, a PCIe device included: dmb ishst would order them for other CPUs only.
  asm volatile("dsb st" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace gpumap
