// SPDX-License-Identifier: MIT
// The radio built-ins in compute shaders, on whatever Vulkan driver there is, a software one too.
#include "radio_cases.hpp"

namespace gpumap {

INSTANTIATE_TEST_SUITE_P(Vulkan, RadioTest, ::testing::Values(Backend::vulkan));

}  // namespace gpumap
