// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace gpumap {

/// A SPIR-V module from shaderc, with the capabilities that its constants of 8 and 16 bits need. glslang declares them
/// for arithmetic alone; the optimizer behind it folds conversions into constants and declares nothing, which drivers
/// take, but the specification and newer validation layers do not.
[[nodiscard]] std::string with_capabilities_of_constants(std::string spirv);

}  // namespace gpumap
