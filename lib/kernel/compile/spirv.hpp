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
  bool uses_descriptors = false;            ///< it declares buffers, images, samplers or uniforms
  std::uint64_t push_constant_bytes = 0;    ///< end of the largest push-constant block; max where that is unknown
};

/// Throws Error(compile) for what is not a SPIR-V module.
[[nodiscard]] SpirvModule parse_spirv(std::string_view bytes);

}  // namespace gpumap
