// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "copy/helpers.hpp"
#include "copy/store_kernel.hpp"

namespace gpumap::copy {

/// How copies of one size class are done.
struct alignas(4) SizePlan {
  std::uint8_t kernel = 0;          ///< index of usable_kernels()
  std::uint8_t threads = 1;         ///< while the helpers are up
  std::uint8_t threads_asleep = 1;  ///< when they would have to be woken
  std::uint8_t reserved = 0;        ///< nothing undefined in the word, which is one atomic
};

/// 1 KiB, 4 KiB, … 4 MiB: each stands for what is nearest to it, the ends for everything beyond.
inline constexpr std::size_t size_classes = 7;
using Plans = std::array<SizePlan, size_classes>;

[[nodiscard]] constexpr std::size_t class_bytes(std::size_t size_class) noexcept {
  return std::size_t{1024} << (2 * size_class);
}
[[nodiscard]] constexpr std::size_t class_of(std::size_t bytes) noexcept {
  // Up to 2 KiB the first, up to 8 KiB the second, up to 32 KiB the third, …
  const auto width = static_cast<std::size_t>(std::bit_width((bytes > 0 ? bytes - 1 : 0) >> 9U));
  const std::size_t size_class = (width > 0 ? width - 1 : 0) / 2;
  return size_class < size_classes ? size_class : size_classes - 1;
}

/// Where nothing has been measured, from an H100 host: MOVDIR64B for some KiB and the best kernel above; helpers, if
/// any, above 128 KiB.
[[nodiscard]] Plans default_plans(unsigned threads);

/// How many threads, `most` at most, are worth what they cost the CPUs. `time`: of a copy by so many; asked now and
/// then.
[[nodiscard]] unsigned threads_that_pay(unsigned most, const std::function<std::chrono::nanoseconds(unsigned)>& time);

struct Trial {
  std::span<std::byte> scratch;  ///< like what will be copied to
  int kernel = -1;               ///< index of the only one, else -1
  unsigned threads = 0;          ///< what was asked for; 0: as many as pay
  bool write_combined = false;   ///< the CPU's cache does not hold what is written there
};
/// Some ms. Sizes above the scratch memory's go by the largest that fits.
[[nodiscard]] Plans measure_plans(const Trial& trial, Helpers& helpers);

}  // namespace gpumap::copy
