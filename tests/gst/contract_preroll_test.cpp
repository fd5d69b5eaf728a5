// SPDX-License-Identifier: MIT
// A pipeline prerolls with as many frames as what is behind gpumapsrc wants, and makes no more of them until it plays.
#include "matrix.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

const std::string film =
    "videotestsrc num-buffers=150 ! video/x-raw,format=I420,width=64,height=48,framerate=500/1 ! identity name=before "
    "! ";

/// What a preroll takes on the src's side: one frame, or as many as an encoder wants.
class Preroll : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Behind, Preroll,
                         testing::Values("fakesink name=out", "queue ! fakesink name=out",
                                         "x264enc speed-preset=ultrafast ! fakesink name=out",
                                         "x264enc ! fakesink name=out",
                                         "vp8enc deadline=1 lag-in-frames=20 ! fakesink name=out",
                                         "videorate ! video/x-raw,framerate=50/1 ! fakesink name=out",
                                         "queue min-threshold-buffers=6 ! fakesink name=out",
                                         "gpumapkernel kernel=identity ! video/x-raw ! x264enc ! fakesink name=out",
                                         "tee name=t t. ! queue ! fakesink name=out t. ! queue ! fakesink"),
                         [](const auto& test) { return as_name(test.param); });

TEST_P(Preroll, ComesPlaysAndComesAgain) {
  for (const bool sync : {false, true}) {
    SCOPED_TRACE(sync);
    Watch watch, before;
    Pipeline pipeline(on_new_channel(film + "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! " + GetParam() +
                                     (sync ? " sync=true" : " sync=false")));
    watch.on(pipeline.element("out"));
    before.on(pipeline.element("before"));
    for (int round = 0; round < 2; ++round) {
      SCOPED_TRACE(round);
      watch.forget();
      before.forget();
      ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED, 15s)) << pipeline.error();
      g_usleep(100000);
      // One; and before it the first two of x264enc, whose decoding times lie before the segment: sinks do not wait
      // with those.
      EXPECT_LE(watch.count(), 3U);
      EXPECT_LE(before.counted_in(300ms), 2U) << "and no more is made";
      ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING, 15s)) << pipeline.error();
      g_usleep(100000);
      ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED, 15s)) << pipeline.error();
      ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING, 15s)) << pipeline.error();
      ASSERT_EQ(pipeline.wait(20s), "eos");
      EXPECT_EQ(before.count(), 150U);
      ASSERT_TRUE(pipeline.reach(GST_STATE_READY));
    }
  }
}

}  // namespace
}  // namespace gpumap::gst::test
