// SPDX-License-Identifier: MIT
// A machine without any GPU driver: each element says so, in one error, and the process lives.
#include <gmock/gmock.h>

#include <cstdlib>

#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Before anything opens a driver.
const bool hidden = [] {
  setenv("VK_DRIVER_FILES", "/nonexistent", 1);
  setenv("VK_ICD_FILENAMES", "/nonexistent", 1);
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  unsetenv("GPUMAP_VALIDATION");
  return true;
}();

const auto helpful = AllOf(HasSubstr("Vulkan"), HasSubstr("mesa-vulkan-drivers"));

TEST(NoDriver, SinkSaysSo) {
  ASSERT_TRUE(hidden);
  for (int i = 0; i < 3; ++i) {
    Pipeline pipeline(on_new_channel("videotestsrc ! gpumapsink name=faulty $CHANNEL"));
    EXPECT_THAT(pipeline.run(), helpful);
    EXPECT_EQ(pipeline.culprit(), "faulty");
  }
}

TEST(NoDriver, KernelSaysSo) {
  Pipeline pipeline(on_new_channel("gpumapsrc $CHANNEL ! gpumapkernel name=faulty ! fakesink"));
  EXPECT_THAT(pipeline.run(), helpful);
  EXPECT_EQ(pipeline.culprit(), "faulty");
}

TEST(NoDriver, WholePipelineStops) {
  Pipeline pipeline(on_new_channel("videotestsrc ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel ! fakesink"));
  EXPECT_THAT(pipeline.run(), helpful);
  EXPECT_LT(pipeline.stop(), 20s);
}

}  // namespace
}  // namespace gpumap::gst::test
