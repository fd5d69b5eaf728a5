// SPDX-License-Identifier: MIT
// The built-in kernels: compute shaders on whatever Vulkan driver there is, a software one too; on a GPU in CUDA as
// well.
#include "backend_bench.hpp"

namespace gpumap {

GPUMAP_ON_BACKENDS(BuiltinTest);

}  // namespace gpumap
