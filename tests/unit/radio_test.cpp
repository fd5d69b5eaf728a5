// SPDX-License-Identifier: MIT
// The radio built-ins: compute shaders on whatever Vulkan driver there is, a software one too; on a GPU in CUDA as
// well.
#include "radio_cases.hpp"

namespace gpumap {

GPUMAP_ON_BACKENDS(RadioTest);

}  // namespace gpumap
