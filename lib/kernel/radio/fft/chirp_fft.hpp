// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>

#include "kernel/radio/fft/fft.hpp"

namespace gpumap {

/// How many points the transform must have on which one of `size` is built.
[[nodiscard]] std::uint32_t chirp_points(std::uint32_t size) noexcept;

/// A transform of any size up to Fft::max_points / 2, by `inner`, which has chirp_points(size) points, and the kernel
/// radio_chirp of `builtin`. Throws as Kernel::load.
[[nodiscard]] std::unique_ptr<Fft> make_chirp_fft(const std::shared_ptr<Device>& device, Backend backend,
                                                  const Builtin& builtin, std::uint32_t size,
                                                  std::unique_ptr<Fft> inner);

}  // namespace gpumap
