// SPDX-License-Identifier: MIT
// The end of a pipeline: EOS sent to all of it drains what is queued, as behind a queue; and a stop in the middle is no
// error, whichever element holds gpumapsink's buffers at that moment.
#include "matrix.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

const std::string caps = "video/x-raw,format=I420,width=64,height=48,framerate=100/1";

// What `gst-launch-1.0 -e` does at Ctrl-C. Downstream is slow, so that most frames are in the ring by then.
class Eos : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    To, Eos,
    testing::Values("queue", "gpumapsink slots=64 $CHANNEL gpumapsrc $CHANNEL",
                    "gpumapsink slots=64 transport=pinned $CHANNEL gpumapsrc $CHANNEL",
                    "gpumapsink slots=64 $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=identity",
                    "gpumapsink slots=64 $CHANNEL gpumapsrc is-live=true $CHANNEL"),
    [](const auto& test) { return std::to_string(test.index) + "_" + as_name(test.param); });

TEST_P(Eos, DrainsTheWholePipeline) {
  Watch watch;
  Pipeline pipeline(on_new_channel("appsrc name=in format=time caps=" + caps + " ! " + GetParam() +
                                   " ! identity sleep-time=20000 ! fakesink name=out sync=false"));
  watch.on(pipeline.element("out"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(push(pipeline.appsrc(),
                     new_buffer(random_data(64 * 48 * 3 / 2, 1), static_cast<GstClockTime>(i) * 10 * GST_MSECOND)));
  }
  ASSERT_TRUE(eventually([&] { return gst_app_src_get_current_level_bytes(pipeline.appsrc()) == 0; }));
  g_usleep(50000);
  ASSERT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
  ASSERT_EQ(pipeline.wait(), "eos");
  EXPECT_EQ(watch.count(), 40U);
}

// Alone, with no sink on its channel, a gpumapsrc ends at once.
TEST(EosAlone, EndsTheSrc) {
  Pipeline pipeline("gpumapsrc channel=" + new_channel() + " ! fakesink async=false");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_eos()));
  EXPECT_EQ(pipeline.wait(), "eos");
}

// The consumer's EOS alone ends the consumer, while a producer in another pipeline goes on.
TEST(EosOfTheConsumer, EndsIt) {
  Watch watch;
  const std::string channel = new_channel();
  Pipeline in("videotestsrc is-live=true ! " + caps + " ! gpumapsink leaky=oldest channel=" + channel);
  Pipeline out("gpumapsrc channel=" + channel + " ! fakesink name=out");
  watch.on(out.element("out"));
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return watch.count() > 5; }));
  ASSERT_TRUE(gst_element_send_event(out.get(), gst_event_new_eos()));
  // Its EOS comes through the ring or at once: a person decides with EOS that it ends.
  EXPECT_EQ(out.wait(), "eos");
}

/// Upstreams that ask for buffers while the pipeline stops.
class Stop : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    Of, Stop,
    testing::Values("x264enc speed-preset=ultrafast ! h264parse ! avdec_h264", "vp8enc deadline=1 ! vp8dec",
                    "theoraenc ! theoradec", "jpegenc ! jpegdec", "videoconvert ! pngenc snapshot=false ! pngdec",
                    "x264enc speed-preset=ultrafast ! h264parse ! avdec_h264 ! videoconvert ! video/x-raw,format=RGB",
                    "videoscale ! video/x-raw,width=100", "textoverlay text=hello", "identity"),
    [](const auto& test) { return as_name(test.param); });

TEST_P(Stop, IsNoError) {
  for (const GstState to : {GST_STATE_READY, GST_STATE_NULL}) {
    Pipeline pipeline(on_new_channel("videotestsrc ! video/x-raw,format=I420,width=96,height=64,framerate=100/1 ! " +
                                     std::string(GetParam()) +
                                     " ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! fakesink sync=true"));
    for (int round = 0; round < 8; ++round) {
      ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
      g_usleep(20000UL + 7000UL * static_cast<gulong>(round));
      // A bin throws away what its bus has on the way to NULL: READY is where an error would be seen.
      ASSERT_TRUE(pipeline.reach(GST_STATE_READY)) << pipeline.error();
      EXPECT_EQ(pipeline.wait(1ms), "timeout") << "stop " << round;
      if (to == GST_STATE_NULL) pipeline.stop();
    }
  }
}

}  // namespace
}  // namespace gpumap::gst::test
