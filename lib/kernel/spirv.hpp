// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gpumap/kernel.hpp"

namespace gpumap {

/// What a loader needs to know of a SPIR-V module.
struct SpirvModule {
  std::vector<ShaderInfo> shaders;          ///< its compute entry points
  std::vector<std::uint32_t> capabilities;  ///< SpvCapability values
};

/// Throws Error(compile) for what is not a SPIR-V module.
[[nodiscard]] SpirvModule parse_spirv(std::string_view bytes);

}  // namespace gpumap
