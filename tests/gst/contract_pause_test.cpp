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

/// Twice in PLAYING, and how many frames pass while it is PAUSED for half a second, in which 25 would where each is
/// asked for: of the first of these times of a busy machine, one. What was under way at the pause may still fill a
/// queue in another.
void expect_stops(Pipeline& pipeline, const Watch& watch) {
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    ASSERT_TRUE(eventually([&, before = watch.count()] { return watch.count() > before + 20; }));
    ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
    EXPECT_TRUE(watch.keeps_pace(0, 2, 500ms));
  }
}

/// Each in its pipeline, beside the others.
TEST(Paused, NoFramePasses) {
  const std::vector<std::string> ends{
      "queue ! fakesink sync=false",
      "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! fakesink sync=false",
      "gpumapsink $CHANNEL leaky=oldest gpumapsrc $CHANNEL ! fakesink sync=false",
      "gpumapsink $CHANNEL leaky=newest gpumapsrc $CHANNEL ! fakesink sync=false",
      "gpumapsink $CHANNEL sync=true gpumapsrc $CHANNEL ! fakesink sync=false",
      "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=identity ! fakesink sync=false",
      "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! queue ! fakesink sync=true",
      "gpumapsink $CHANNEL leaky=oldest"};
  side_by_side(ends, [](const std::string& end) {
    Watch watch;
    Pipeline pipeline(on_new_channel(source + end));
    watch.on(pipeline.element("before"));
    expect_stops(pipeline, watch);
  });
}

// Of two pipelines, either. The producer is paused, whatever the consumer does; a consumer is paused, the ring fills,
// and that is all.
TEST(Paused, OfTwoPipelinesEither) {
  const std::vector<std::string> paused{"producer", "consumer"};
  side_by_side(paused, [](const std::string& who) {
    const std::string channel = new_channel();
    Watch watch;
    Pipeline in(source + "gpumapsink slots=4 channel=" + channel);
    Pipeline out("gpumapsrc channel=" + channel + " ! fakesink sync=false");
    watch.on(in.element("before"));
    const bool producer = who == "producer";
    ASSERT_NE((producer ? out : in).set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    expect_stops(producer ? in : out, watch);
  });
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
  std::vector<std::string> lines{with_queue(line)};
  for (const char* options : {"", "slots=2", "sync=true", "transport=pinned"}) {
    lines.push_back(with_gpumap(line, options));
  }
  const std::vector<Record> records =
      side_by_side(lines, [&](const std::string& one) { return record_of(one, Compared::bytes, act); });
  EXPECT_EQ(records[0].verdict, "eos");
  for (std::size_t i = 1; i < records.size(); ++i) {
    SCOPED_TRACE(lines[i]);
    expect_same(records[0], records[i]);
  }
}

// Up and down in every order, each state waited for.
TEST(States, AlwaysComeBack) {
  const std::vector<std::string> ends{"fakesink sync=true", "x264enc speed-preset=ultrafast ! fakesink",
                                      "queue ! fakesink sync=false"};
  side_by_side(ends, [](const std::string& behind) {
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
  });
}

}  // namespace
}  // namespace gpumap::gst::test
