// SPDX-License-Identifier: MIT
// What GST_DEBUG=gpumapkernel:6 tells: how caps were agreed on, the way of a frame, and why one was left out.
#include <gmock/gmock.h>

#include "debug_log.hpp"
#include "gpu_buffer.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(KernelLog, FollowsANegotiationAFrameAndADrop) {
  const DebugLog log("gpumapkernel", GST_LEVEL_LOG);
  Pipeline pipeline(
      "appsrc name=in format=time caps=video/x-raw(memory:GPUMap),format=NV12,width=34,height=8,framerate=30/1 ! "
      "gpumapkernel kernel=convert ! fakesink sync=false");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), on_gpu(random_data(std::size_t{36} * 12, 1)));
  push(pipeline.appsrc(), on_gpu(random_data(7, 1)));
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(), "eos");
  pipeline.stop();
  const auto lines = log.lines();
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("for video/x-raw(memory:GPUMap)"), HasSubstr("downstream takes"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("chose video/x-raw"), HasSubstr("format=(string)RGBA"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("convert runs on video/x-raw(memory:GPUMap)"), HasSubstr("gives"))));
  EXPECT_THAT(lines, Contains(HasSubstr("downstream gets frames without padding")));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr(" gave buffer: "), HasSubstr("size 1088"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("dropped buffer: "), HasSubstr("a frame of 7 bytes"))));
}

}  // namespace
}  // namespace gpumap::gst::test
