// SPDX-License-Identifier: MIT
#include "gpumap/checksum.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gpumap {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  std::uint64_t sum = mix64(bytes.size());
  std::uint64_t step = 0;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    step += 0x9E3779B97F4A7C15U;
    sum += mix64(word + step);
  }
  return sum;
}

}  // namespace gpumap
