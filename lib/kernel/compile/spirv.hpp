// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpumap {

/// What a SPIR-V module says of one entry point.
struct ShaderInfo {
  std::string function;
  std::array<std::uint32_t, 3> threads{1, 1, 1};  ///< workgroup size
  bool threads_from_constants = false;  ///< specialisation constants 0, 1, 2 set the size (as gpumap.glsl does)
};

/// What a loader needs to know of a SPIR-V module.
struct SpirvModule {
  std::vector<ShaderInfo> shaders;          ///< its compute entry points
  std::vector<std::uint32_t> capabilities;  ///< SpvCapability values
  bool uses_descriptors = false;            ///< it declares buffers, images, samplers or uniforms
  std::uint64_t push_constant_bytes = 0;    ///< end of the largest push-constant block; max where that is unknown
};

/// Trusts nothing. Throws Error(compile) for what is not a SPIR-V module.
[[nodiscard]] SpirvModule parse_spirv(std::string_view bytes);

/// A driver trusts a module, and may crash on one that breaks the rules of SPIR-V or of Vulkan. Throws Error(compile)
/// with what SPIRV-Tools says of it.
void check_valid_spirv(std::string_view bytes);

}  // namespace gpumap
