// SPDX-License-Identifier: MIT
#include "bare_stores.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bench {

#if defined(__x86_64__)
namespace {

constexpr std::size_t line = 64;

void copy_sse2(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at + line <= bytes; at += line) {
    const auto* in = reinterpret_cast<const __m128i*>(from + at);
    auto* out = reinterpret_cast<__m128i*>(to + at);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(out + i, _mm_load_si128(in + i));
  }
}

__attribute__((target("avx2"))) void copy_avx2(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at + line <= bytes; at += line) {
    const auto* in = reinterpret_cast<const __m256i*>(from + at);
    auto* out = reinterpret_cast<__m256i*>(to + at);
    _mm256_stream_si256(out, _mm256_load_si256(in));
    _mm256_stream_si256(out + 1, _mm256_load_si256(in + 1));
  }
}

__attribute__((target("avx512f"))) void copy_avx512(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at + line <= bytes; at += line) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_load_si512(from + at));
  }
}

// As libc's memcpy on many CPUs.
void copy_movsb(std::byte* to, const std::byte* from, std::size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

}  // namespace

std::vector<BareStore> bare_stores() {
  std::vector<BareStore> stores{{"movsb", copy_movsb}, {"sse2", copy_sse2}};
  if (__builtin_cpu_supports("avx2") != 0) stores.push_back({"avx2", copy_avx2});
  if (__builtin_cpu_supports("avx512f") != 0) stores.push_back({"avx512", copy_avx512});
  return stores;
}
#else
std::vector<BareStore> bare_stores() {
  return {};
}
#endif

}  // namespace bench
