// SPDX-License-Identifier: MIT
// A window too small for the ring: an error with the figures, and a ring that follows another fits where both would
// not.
#include <gmock/gmock.h>

#include <cstdlib>

#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// 30 MB, before anything looks at the device.
const bool limited = setenv("GPUMAP_WINDOW_LIMIT", "30000000", 1) == 0;

TEST(Window, TooSmallForTheRing) {
  ASSERT_TRUE(limited);
  Pipeline pipeline(
      on_new_channel("videotestsrc ! video/x-raw,format=RGBA,width=1280,height=720 ! "
                     "gpumapsink name=faulty slots=16 $CHANNEL gpumapsrc $CHANNEL ! fakesink"));
  // 16 slots of 3.7 MB.
  EXPECT_THAT(pipeline.run(30s),
              AllOf(HasSubstr("56"), HasSubstr("window"), HasSubstr("28"), HasSubstr("lower slots")));
  EXPECT_EQ(pipeline.culprit(), "faulty");
  EXPECT_LT(pipeline.stop(), 5s);
}

TEST(Window, LargeEnoughAgainAndAgain) {
  for (int i = 0; i < 5; ++i) {
    Pipeline pipeline(
        on_new_channel("videotestsrc num-buffers=10 ! video/x-raw,format=RGBA,width=1280,height=720 ! "
                       "gpumapsink slots=6 $CHANNEL gpumapsrc $CHANNEL ! "
                       "gpumapkernel kernel=checksum ! fakesink"));
    ASSERT_EQ(pipeline.run(), "eos") << i;
    EXPECT_EQ(pipeline.results().size(), 10U);
  }
}

// Old and new ring together do not fit: the new one waits until the old one's frames have been read.
TEST(Window, CapsChangeWaitsForTheOldRing) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink slots=4 $CHANNEL gpumapsrc $CHANNEL ! "
                     "gpumapkernel kernel=checksum ! fakesink enable-last-sample=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<std::uint64_t> sums;
  for (const int width : {1600, 1601, 1602}) {  // 4 slots of 5 MB each
    const Caps caps = video_caps("RGBA", width, 800);
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    for (std::uint64_t i = 0; i < 4; ++i) {
      const Data data = random_data(frame_bytes(caps.get()), i);
      sums.push_back(checksum_of(data));
      push(pipeline.appsrc(), new_buffer(data));
    }
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.results().size(), sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(pipeline.results()[i].checksum, sums[i]) << i;
}

}  // namespace
}  // namespace gpumap::gst::test
