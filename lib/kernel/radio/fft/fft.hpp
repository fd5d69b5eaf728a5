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

  /// `transforms` of them, one behind the other, from one piece of memory, which stays as it is, to another. Either or
  /// both may be place(), as it was given for at least so many. Aligned to 8 bytes.
  virtual void forward(Queue& queue, std::uint64_t from, std::uint64_t to, std::uint64_t transforms) = 0;

  /// Memory of its own in which it transforms, and to and from which forward() copies what lies elsewhere; 0 where it
  /// has none for so many. What lies there does not outlast a forward().
  virtual std::uint64_t place(Queue& /*queue*/, std::uint64_t /*transforms*/) { return 0; }

  static constexpr std::uint32_t max_points = 1U << 20U;
};

/// cuFFT where the backend is CUDA and it can be opened, VkFFT where it is Vulkan and gpumap was built with it, else
/// the kernel radio_fft of `builtin`. Sizes that these do not know are made of larger ones that they know; then
/// `builtin` has the kernel radio_chirp, too, and `size` is max_points / 2 at most. Throws as Kernel::load.
[[nodiscard]] std::unique_ptr<Fft> make_fft(const std::shared_ptr<Device>& device, Backend backend,
                                            const Builtin& builtin, std::uint32_t size);

}  // namespace gpumap
