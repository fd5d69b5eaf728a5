// SPDX-License-Identifier: MIT
// The built-in compute shaders on whatever Vulkan driver there is, a software one too.
#include "builtin_cases.hpp"

namespace gpumap {

INSTANTIATE_TEST_SUITE_P(Vulkan, BuiltinTest, ::testing::Values(Backend::vulkan));

}  // namespace gpumap
