// SPDX-License-Identifier: MIT
// Both branches in one pipeline reach PLAYING and EOS: live or not, synchronised or not, however many frames the
// downstream wants before it prerolls.
#include <tuple>

#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

constexpr const char* source =
    "videotestsrc num-buffers=20 ! video/x-raw,format=I420,width=64,height=48,framerate=50/1 ! ";

/// Source: live or not. Sinks: synchronised or not. What is between gpumapsrc and its sink.
class Preroll : public testing::TestWithParam<std::tuple<bool, bool, bool, const char*>> {
 protected:
  static std::string description() {
    const auto& [live, sink_sync, downstream_sync, downstream] = GetParam();
    std::string text = std::string(source) + "gpumapsink name=sink $CHANNEL sync=" + (sink_sync ? "true" : "false") +
                       " gpumapsrc $CHANNEL ! " + downstream + " sync=" + (downstream_sync ? "true" : "false");
    if (live) text.replace(text.find("num-buffers"), 0, "is-live=true ");
    return on_new_channel(text);
  }
};

TEST_P(Preroll, PlaysToTheEnd) {
  Pipeline pipeline(description());
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(stat(pipeline.element("sink"), "frames"), 20U);
}

// A live source of GStreamer's that is paused while it waits, for the clock or for a frame of the application, can miss
// being played again, with any element behind it: `videotestsrc is-live=true ! fakesink async=false` stands still after
// one such change in 400 (1.22), `appsrc is-live=true ! queue ! fakesink` after one in four (1.26). This one never
// waits: what follows it takes its time.
TEST_P(Preroll, PausesPlaysAndPausesAgain) {
  std::string text = description();
  if (std::get<0>(GetParam())) {
    text.replace(0, text.find('!'),
                 "fakesrc is-live=true num-buffers=20 format=time sizetype=fixed sizemax=4608 filltype=random ! "
                 "identity sleep-time=20000 ");
  }
  Pipeline pipeline(text);
  ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  ASSERT_EQ(pipeline.wait(), "eos");
}

std::string name_of(const testing::TestParamInfo<Preroll::ParamType>& test) {
  const auto& [live, sink_sync, downstream_sync, downstream] = test.param;
  const std::string_view text(downstream);
  std::string name = live ? "Live" : "NotLive";
  name += sink_sync ? "Paced" : "AtOnce";
  name += downstream_sync ? "Synced" : "Unsynced";
  if (text.starts_with("queue")) return name + "Queue";
  if (text.starts_with("gpumap")) return name + "Kernel";
  return name + (text.starts_with("fakesink") ? "Sink" : "Encoder");
}

INSTANTIATE_TEST_SUITE_P(Pipelines, Preroll,
                         testing::Combine(testing::Bool(), testing::Bool(), testing::Bool(),
                                          testing::Values("fakesink", "gpumapkernel kernel=checksum ! fakesink",
                                                          "queue min-threshold-buffers=6 ! fakesink",
                                                          "video/x-raw,format=I420 ! x264enc speed-preset=ultrafast ! "
                                                          "fakesink")),
                         name_of);

// A bin forgets on its way to PAUSED which of its sinks have ended: they say it each time they come to play.
TEST(PrerollEos, IsSaidInEachPlaying) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=3 ! gpumapsink name=sink $CHANNEL gpumapsrc $CHANNEL ! fakesink"));
  for (int time = 0; time < 3; ++time) {
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    EXPECT_EQ(pipeline.wait(), "eos") << time;
    ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
  }
}

// A live gpumapsrc gives no frame before PLAYING, and says so.
TEST(PrerollLiveSrc, NoPreroll) {
  Pipeline pipeline(
      on_new_channel(std::string(source) + "gpumapsink $CHANNEL gpumapsrc is-live=true name=src $CHANNEL ! fakesink"));
  EXPECT_EQ(pipeline.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_NO_PREROLL);
  g_usleep(100000);
  EXPECT_EQ(stat(pipeline.element("src"), "frames"), 0U);
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(stat(pipeline.element("src"), "frames"), 20U);
}

// More frames wanted for the preroll than the ring has slots: the queue gets them, for it holds slots, or the pipeline
// must still be stoppable at once.
TEST(PrerollTooMuch, StopsAtOnce) {
  Pipeline pipeline(on_new_channel(std::string(source) + "gpumapsink $CHANNEL slots=2 gpumapsrc $CHANNEL ! "
                                                         "queue min-threshold-buffers=10 ! fakesink"));
  (void)pipeline.reach(GST_STATE_PLAYING, 500ms);
  EXPECT_LT(pipeline.stop(), 20s);
}

}  // namespace
}  // namespace gpumap::gst::test
