// SPDX-License-Identifier: MIT
// What the tests of the examples' kernels share: each runs as the compute shader, and in CUDA where the GPU has
// that. Without a GPU they skip, but for GPUMAP_TEST_SOFTWARE=1, as the tests of tests/gpu do.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "../gst/pipeline.hpp"
#include "gpumap/device.hpp"
#include "gpumap/error.hpp"

namespace gpumap::gst::test {

class Example : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    try {
      const auto device = Device::open();
      if (device->info().software && std::getenv("GPUMAP_TEST_SOFTWARE") == nullptr) {
        GTEST_SKIP() << "the only GPU here is the CPU";
      }
      if (GetParam() == std::string("cu") && !device->has(Backend::cuda)) GTEST_SKIP() << "no CUDA here";
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    // Tens of pipelines, each of which compiles its kernel, take longer than a test of the elements may.
    alarm(500);
  }

  /// `examples/<name>` in the language under test. GPUMAP_EXAMPLES in the environment: where examples/ lies, if not
  /// where it was built from.
  static std::string kernel(const std::string& name) {
    const char* folder = std::getenv("GPUMAP_EXAMPLES");
    return std::string(folder != nullptr ? folder : GPUMAP_EXAMPLES) + "/" + name + "." + GetParam();
  }
};

#define GPUMAP_BOTH_LANGUAGES(suite)                                        \
  INSTANTIATE_TEST_SUITE_P(Languages, suite, testing::Values("comp", "cu"), \
                           [](const auto& language) { return std::string(language.param); })

}  // namespace gpumap::gst::test
