// SPDX-License-Identifier: MIT
// gpumapkernel on a part of the GPU's multiprocessors: frames and results as elsewhere, the part given back at the end.
#include <gmock/gmock.h>

#include "gpu_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using testing::HasSubstr;

class ShareGpuTest : public GpuPipeline {
 protected:
  static std::string pipeline(const std::string& options) {
    return on_new_channel(
        "videotestsrc num-buffers=20 pattern=ball ! video/x-raw,format=NV12,width=322,height=242 ! gpumapsink $CHANNEL "
        "gpumapsrc $CHANNEL ! gpumapkernel name=kernel kernel=checksum backend=cuda " +
        options + " ! fakesink");
  }
  static guint multiprocessors_of(const Pipeline& pipeline) {
    GstStructure* stats = nullptr;
    g_object_get(pipeline.element("kernel"), "stats", &stats, nullptr);
    guint made = G_MAXUINT;
    gst_structure_get_uint(stats, "multiprocessors", &made);
    gst_structure_free(stats);
    return made;
  }
};

TEST_F(ShareGpuTest, RunsOnItsPart) {
  if (!device_->has(Backend::cuda)) GTEST_SKIP() << device_->info().name << " has no CUDA";
  Pipeline whole(pipeline(""));
  ASSERT_EQ(whole.run(), "eos");
  EXPECT_EQ(multiprocessors_of(whole), 0U);
  // More than half, again and again: a part that was not given back would be missed.
  for (int turn = 0; turn < 3; ++turn) {
    Pipeline part(pipeline("sm-share=0.6 priority=1"));
    const std::string verdict = part.run(20s);
    if (verdict.find("12.4") != std::string::npos) GTEST_SKIP() << verdict;
    ASSERT_EQ(verdict, "eos");
    EXPECT_GT(multiprocessors_of(part), 0U);
    EXPECT_NE(multiprocessors_of(part), G_MAXUINT);
    ASSERT_EQ(part.results().size(), whole.results().size());
    for (std::size_t i = 0; i < whole.results().size(); ++i) {
      EXPECT_EQ(part.results()[i].checksum, whole.results()[i].checksum) << i;
    }
  }
}

TEST_F(ShareGpuTest, WhatCannotBeIsAnError) {
  if (!device_->has(Backend::cuda)) GTEST_SKIP() << device_->info().name << " has no CUDA";
  Pipeline little(pipeline("sm-share=0.0001"));
  EXPECT_THAT(little.run(20s), HasSubstr("sm-share"));
  Pipeline urgent(pipeline("priority=1000"));
  EXPECT_THAT(urgent.run(20s), HasSubstr("priority=1000"));
  Pipeline vulkan(pipeline("backend=vulkan sm-share=0.5"));
  EXPECT_THAT(vulkan.run(20s), HasSubstr("CUDA's"));
}

}  // namespace
}  // namespace gpumap::gst::test
