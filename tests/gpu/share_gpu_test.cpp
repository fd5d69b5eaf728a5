// SPDX-License-Identifier: MIT
// gpumapkernel on a part of the GPU's multiprocessors: frames and results as elsewhere, the part given back at the end.
#include <gmock/gmock.h>

#include "cuda_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using testing::AllOf;
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

class ShareBesideCudaElements : public CudaPipeline {};

// Frames go out in the primary context's memory, and what runs there is not gpumap's: it is told, once.
TEST_F(ShareBesideCudaElements, IsTold) {
  for (const char* share : {"", "sm-share=0.25"}) {
    Pipeline pipeline(on_new_channel(
        "videotestsrc num-buffers=5 ! video/x-raw,format=NV12,width=320,height=240 ! gpumapsink $CHANNEL "
        "gpumapsrc $CHANNEL ! gpumapkernel kernel=convert backend=cuda " +
        std::string(share) + " ! video/x-raw(memory:CUDAMemory),format=RGBA ! fakesink"));
    std::vector<std::string> told;
    GstBus* bus = gst_element_get_bus(pipeline.get());
    gst_bus_set_sync_handler(
        bus,
        [](GstBus* /*bus*/, GstMessage* message, gpointer to) {
          if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_INFO) return GST_BUS_PASS;
          GError* info = nullptr;
          gst_message_parse_info(message, &info, nullptr);
          // What a sink sums up at the end of its stream is information too.
          const std::string text = info->message;
          if (text.find("sm-share") != std::string::npos) static_cast<std::vector<std::string>*>(to)->push_back(text);
          g_error_free(info);
          return GST_BUS_PASS;
        },
        &told, nullptr);
    const std::string verdict = pipeline.run(20s);
    gst_bus_set_sync_handler(bus, nullptr, nullptr, nullptr);
    gst_object_unref(bus);
    if (verdict.find("12.4") != std::string::npos) GTEST_SKIP() << verdict;
    EXPECT_EQ(verdict, "eos");
    ASSERT_EQ(told.size(), *share != '\0' ? 1U : 0U) << testing::PrintToString(told);
    if (!told.empty()) {
      EXPECT_THAT(told[0], AllOf(HasSubstr("sm-share"), HasSubstr("multiprocessors"), HasSubstr("primary context")));
    }
  }
}

}  // namespace
}  // namespace gpumap::gst::test
