// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace gpumap::test {

/// What vkgdr's own example does, on vkgdr-compat.h, with the kernel that `launch` runs: C = A + B, of so many floats.
/// The device is that of the current CUDA context. What went wrong; empty: nothing.
[[nodiscard]] std::string run_vkgdr_example(
    const std::function<void(std::uint64_t a, std::uint64_t b, std::uint64_t c, unsigned count)>& launch);

}  // namespace gpumap::test
