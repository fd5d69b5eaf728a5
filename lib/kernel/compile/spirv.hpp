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
  std::uint64_t shared_bytes = 0;       ///< at least: without padding, and arrays whose length is not a plain constant
};

/// What a loader needs to know of a SPIR-V module.
struct SpirvModule {
  std::vector<ShaderInfo> shaders;          ///< its compute entry points
  std::vector<std::uint32_t> capabilities;  ///< SpvCapability values
  bool uses_descriptors = false;            ///< it declares buffers, images, samplers or uniforms
  std::uint64_t push_constant_bytes = 0;    ///< end of the largest push-constant block; 2^40 where that is unknown
};

/// Validates a module by SPIRV-Tools: a driver may crash on a module that breaks the rules of SPIR-V or of Vulkan.
/// Throws Error(compile) with the cause and the version of SPIRV-Tools.
void check_valid_spirv(std::string_view bytes);

/// Reads a module by SPIRV-Tools. The module is one that check_valid_spirv() takes or that shaderc made. Throws
/// Error(compile).
[[nodiscard]] SpirvModule read_spirv(std::string_view bytes);

/// A module from shaderc, with the capabilities that its constants of 8 and 16 bits need. glslang declares them for
/// arithmetic alone. The optimizer behind it folds conversions into constants and declares nothing: drivers take that,
/// the specification and newer validation layers do not.
[[nodiscard]] std::string with_capabilities_of_constants(std::string spirv);

}  // namespace gpumap
