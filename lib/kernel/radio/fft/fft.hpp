// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>

#include "gpumap/kernel.hpp"
#include "gpumap/queue.hpp"

namespace gpumap {

/// Forward complex transforms in float32, of one size, from 2 on; not scaled.
class Fft {
 public:
  Fft() = default;
  Fft(const Fft&) = delete;
  Fft& operator=(const Fft&) = delete;
  virtual ~Fft() = default;

  /// `transforms` of them, one behind the other, from one piece of memory, which stays as it is, to another. Both are
  /// aligned to 8 bytes.
  virtual void forward(Queue& queue, std::uint64_t from, std::uint64_t to, std::uint64_t transforms) = 0;

  static constexpr std::uint32_t max_points = 1U << 20U;
};

/// By the kernel radio_fft of `builtin`, for powers of two. Other sizes are made of larger ones that are; then
/// `builtin` has the kernel radio_chirp, too, and `size` is max_points / 2 at most. Throws as Kernel::load.
[[nodiscard]] std::unique_ptr<Fft> make_fft(const std::shared_ptr<Device>& device, Backend backend,
                                            const Builtin& builtin, std::uint32_t size);

}  // namespace gpumap
