// SPDX-License-Identifier: MIT
// PAUSED stops a pipeline, PLAYING goes on with the next frame, and every way into a state comes to an end.
#include "matrix.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

const std::string source =
    "videotestsrc name=source ! video/x-raw,format=I420,width=64,height=48,framerate=500/1 ! identity name=before ! ";

const std::string film =
    "videotestsrc num-buffers=150 ! video/x-raw,format=I420,width=64,height=48,framerate=100/1 ! identity name=before "
    "! ";

/// Twice in PLAYING, and how many frames passed while it was PAUSED for a second: of the first seconds of a busy
/// machine, one. What was under way at the pause may still fill a queue in another.
void expect_stops(Pipeline& pipeline, const Watch& watch) {
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    ASSERT_TRUE(eventually([&, before = watch.count()] { return watch.count() > before + 20; }));
    ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
    g_usleep(300000);
    EXPECT_TRUE(watch.keeps_pace(0, 2));
  }
}

class Paused : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    Ends, Paused,
    testing::Values("queue ! fakesink sync=false", "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! fakesink sync=false",
                    "gpumapsink $CHANNEL leaky=oldest gpumapsrc $CHANNEL ! fakesink sync=false",
                    "gpumapsink $CHANNEL leaky=newest gpumapsrc $CHANNEL ! fakesink sync=false",
                    "gpumapsink $CHANNEL sync=true gpumapsrc $CHANNEL ! fakesink sync=false",
                    "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=identity ! fakesink sync=false",
                    "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! queue ! fakesink sync=true",
                    "gpumapsink $CHANNEL leaky=oldest"),
    [](const auto& test) { return std::to_string(test.index) + "_" + as_name(test.param); });

TEST_P(Paused, NoFramePasses) {
  Watch watch;
  Pipeline pipeline(on_new_channel(source + GetParam()));
  watch.on(pipeline.element("before"));
  expect_stops(pipeline, watch);
}

// The producer is paused, whatever the consumer in another pipeline does.
TEST(PausedProducer, NoFramePasses) {
  const std::string channel = new_channel();
  Watch watch;
  Pipeline in(source + "gpumapsink channel=" + channel);
  Pipeline out("gpumapsrc channel=" + channel + " ! fakesink sync=false");
  watch.on(in.element("before"));
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  expect_stops(in, watch);
}

// The consumer is paused: the ring fills, and that is all.
TEST(PausedConsumer, TheRingFills) {
  const std::string channel = new_channel();
  Watch watch;
  Pipeline in(source + "gpumapsink slots=4 channel=" + channel);
  Pipeline out("gpumapsrc channel=" + channel + " ! fakesink sync=false");
  watch.on(in.element("before"));
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  expect_stops(out, watch);
}

// A pause in the middle loses nothing and sends nothing twice.
TEST(Pauses, LoseNothing) {
  const auto act = [](Pipeline& pipeline) -> std::string {
    for (int round = 0; round < 6; ++round) {
      if (!pipeline.reach(GST_STATE_PLAYING)) return "no PLAYING: " + pipeline.error();
      g_usleep(100000);
      if (!pipeline.reach(GST_STATE_PAUSED)) return "no PAUSED: " + pipeline.error();
      g_usleep(50000);
    }
    return pipeline.run();
  };
  const std::string line = film + "$MAP ! video/x-raw ! fakesink name=out sync=true";
  const Record expected = record_of(with_queue(line), Compared::bytes, act);
  EXPECT_EQ(expected.verdict, "eos");
  for (const char* options : {"", "slots=2", "sync=true", "transport=pinned"}) {
    SCOPED_TRACE(options);
    expect_same(expected, record_of(with_gpumap(line, options), Compared::bytes, act));
  }
}

// Up and down in every order, each state waited for.
TEST(States, AlwaysComeBack) {
  for (const char* behind :
       {"fakesink sync=true", "x264enc speed-preset=ultrafast ! fakesink", "queue ! fakesink sync=false"}) {
    SCOPED_TRACE(behind);
    Pipeline pipeline(
        with_gpumap("videotestsrc ! video/x-raw,format=I420,width=64,height=48,framerate=100/1 ! $MAP ! ") + behind);
    constexpr GstState way[] = {GST_STATE_PAUSED, GST_STATE_PLAYING, GST_STATE_READY,   GST_STATE_PLAYING,
                                GST_STATE_PAUSED, GST_STATE_NULL,    GST_STATE_PLAYING, GST_STATE_PAUSED,
                                GST_STATE_READY,  GST_STATE_PAUSED};
    for (int round = 0; round < 3; ++round) {
      for (const GstState state : way) {
        ASSERT_TRUE(pipeline.reach(state))
            << gst_element_state_get_name(state) << " in round " << round << ' ' << pipeline.error();
      }
    }
    EXPECT_LT(pipeline.stop(), at_once);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
