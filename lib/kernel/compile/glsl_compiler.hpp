// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "gpumap/kernel.hpp"
#include "kernel/cache/code_cache.hpp"

namespace gpumap {

/// See compile_glsl.
[[nodiscard]] std::string build_glsl(const KernelSource& source, CodeCache& cache);

}  // namespace gpumap
