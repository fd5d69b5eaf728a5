// SPDX-License-Identifier: MIT
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace gpumap::test {

inline constexpr std::size_t frame_bytes = 3'110'400;  // 1080p NV12
inline constexpr std::byte guard{0xa5};
inline constexpr std::size_t guard_bytes = 256;

inline std::vector<std::byte> random_bytes(std::size_t bytes, std::uint64_t seed = 20240607) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> data(bytes + 8);
  for (std::size_t at = 0; at + 8 <= data.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(data.data() + at, &word, 8);
  }
  return data;
}

/// A page-aligned piece of memory.
class Aligned {
 public:
  explicit Aligned(std::size_t bytes) : bytes_((bytes + 4095) / 4096 * 4096) {
    data_ = static_cast<std::byte*>(std::aligned_alloc(4096, bytes_));
  }
  ~Aligned() { std::free(data_); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

/// Pages that can be taken away, between two that are never accessible.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_((bytes + page - 1) / page * page) {
    base_ = static_cast<std::byte*>(
        mmap(nullptr, bytes_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    allow(true);
  }
  ~Pages() { munmap(base_, bytes_ + 2 * page); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  void allow(bool access) const { mprotect(first(), bytes_, access ? PROT_READ | PROT_WRITE : PROT_NONE); }
  [[nodiscard]] std::byte* first() const { return base_ + page; }
  [[nodiscard]] std::byte* end() const { return base_ + page + bytes_; }
  static constexpr std::size_t page = 4096;

 private:
  std::size_t bytes_;
  std::byte* base_;
};

// memcmp and memset: sanitizers check those once a call, loops once a byte.
inline bool same(const std::byte* a, const std::byte* b, std::size_t bytes) {
  return bytes == 0 || std::memcmp(a, b, bytes) == 0;
}
inline bool all_guard(const std::byte* begin, const std::byte* end) {
  return begin == end || (*begin == guard && same(begin, begin + 1, static_cast<std::size_t>(end - begin) - 1));
}
inline void fill_guard(std::byte* begin, std::size_t bytes) {
  std::memset(begin, static_cast<int>(guard), bytes);
}

}  // namespace gpumap::test
