// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>

#include "gpumap/kernel.hpp"

namespace gpumap {

/// A compute shader, named test.comp in messages.
inline KernelSource glsl(std::string code) {
  return {.language = Language::glsl, .name = "test.comp", .code = std::move(code), .function = {}};
}

}  // namespace gpumap
