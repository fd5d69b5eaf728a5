// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "gpumap/device.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap {

/// lavapipe's, in all loops of a thread together: Mesa from 22.3 to 25.0, and others for all that is known.
inline constexpr std::uint64_t max_loop_turns = 65535;

/// The shape of every launch of a kernel.
struct GridShape {
  Work work = Work::item;
  std::array<std::uint32_t, 3> threads_1d{256, 1, 1};
  std::array<std::uint32_t, 3> threads_2d{32, 8, 1};
  std::array<std::uint32_t, 3> blocks{};                              ///< 0: as many as the frame takes
  std::array<std::uint32_t, 3> max_blocks{0x7FFFFFFF, 65535, 65535};  ///< CUDA's
};

/// Pixels, samples or bytes: what each has a thread where no other grid is asked for.
[[nodiscard]] std::uint64_t items_of(const gpumap_frame& frame);
/// Throws Error(invalid) where `source` asks for more blocks than launches of this shape take.
void check_grid(const KernelSource& source, const GridShape& shape);
/// See Kernel::grid_for.
[[nodiscard]] Grid make_grid(const GridShape& shape, const gpumap_frame& frame);
/// That `device` may end the loops of a kernel of the user's, which has some; empty: it has none, or they run to their
/// end.
[[nodiscard]] std::string loop_risk_of(const KernelSource& source, const DeviceInfo& device);

}  // namespace gpumap
