// SPDX-License-Identifier: MIT
// The radio built-ins in both languages on a real GPU: the same cases as on a software driver, and CUDA beside Vulkan.
#include "../unit/radio_cases.hpp"

namespace gpumap {
namespace {

// A machine whose only "GPU" is its CPU has nothing to say here.
const bool needs_gpu = (BackendTest::accept_software = false, true);

std::string backend_name(const ::testing::TestParamInfo<Backend>& info) {
  return info.param == Backend::cuda ? "Cuda" : "Vulkan";
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Gpu, RadioTest, ::testing::Values(Backend::cuda, Backend::vulkan), backend_name);

}  // namespace gpumap
