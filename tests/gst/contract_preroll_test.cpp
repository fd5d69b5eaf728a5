// SPDX-License-Identifier: MIT
// A pipeline prerolls with as many frames as what is behind gpumapsrc wants, and makes no more of them until it plays.
#include <atomic>
#include <functional>
#include <thread>
#include <tuple>

#include "matrix.hpp"
#include "pipeline.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

const std::string film =
    "videotestsrc num-buffers=150 ! video/x-raw,format=I420,width=64,height=48,framerate=500/1 ! identity name=before "
    "! ";

/// What is played, is paused in the middle, and comes to READY and back.
void expect_prerolls(const std::string& end) {
  Watch watch, before;
  Pipeline pipeline(on_new_channel(film + "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! " + end));
  watch.on(pipeline.element("out"));
  before.on(pipeline.element("before"));
  for (int round = 0; round < 2; ++round) {
    SCOPED_TRACE(round);
    watch.forget();
    before.forget();
    ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
    g_usleep(100000);
    // One; and before it the first two of x264enc, whose decoding times lie before the segment: sinks do not wait
    // with those.
    EXPECT_LE(watch.count(), 3U);
    EXPECT_TRUE(eventually([&] { return before.counted_in(300ms) <= 2; })) << "and no more is made";
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    g_usleep(100000);
    ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    ASSERT_EQ(pipeline.wait(), "eos");
    EXPECT_EQ(before.count(), 150U);
    ASSERT_TRUE(pipeline.reach(GST_STATE_READY));
  }
}

// On the src's side a preroll takes one frame, or as many as an encoder wants.
TEST(Preroll, ComesPlaysAndComesAgain) {
  std::vector<std::string> ends;
  for (const std::string behind :
       {"fakesink name=out", "queue ! fakesink name=out", "x264enc speed-preset=ultrafast ! fakesink name=out",
        "x264enc ! fakesink name=out", "vp8enc deadline=1 lag-in-frames=20 ! fakesink name=out",
        "videorate ! video/x-raw,framerate=50/1 ! fakesink name=out",
        "queue min-threshold-buffers=6 ! fakesink name=out",
        "gpumapkernel kernel=identity ! video/x-raw ! x264enc ! fakesink name=out",
        "tee name=t t. ! queue ! fakesink name=out t. ! queue ! fakesink"}) {
    for (const char* sync : {" sync=false", " sync=true"}) ends.push_back(behind + sync);
  }
  side_by_side(ends, expect_prerolls);
}

/// A silent beginning, and `count` frames behind it.
void expect_prerolls_behind_gap(const std::string& end, int count) {
  Watch watch;
  std::atomic<bool> sent{false};
  Pipeline pipeline(on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! " + end));
  watch.on(pipeline.element("out"));
  GstElement* in = pipeline.element("in");
  const Caps caps = new_caps("video/x-raw,format=I420,width=64,height=48,framerate=30/1");
  g_object_set(in, "caps", caps.get(), nullptr);
  pipeline.set_state(GST_STATE_PAUSED);
  // Ahead of the frames, where appsrc would put it behind its queue.
  const Pad pad(gst_element_get_static_pad(in, "src"));
  gst_pad_add_probe(
      pad.get(), GST_PAD_PROBE_TYPE_BUFFER,
      [](GstPad* self, GstPadProbeInfo*, gpointer told) {
        if (!static_cast<std::atomic<bool>*>(told)->exchange(true)) {
          gst_pad_push_event(self, gst_event_new_gap(0, GST_SECOND / 30));
        }
        return GST_PAD_PROBE_OK;
      },
      &sent, nullptr);
  for (int i = 0; i < count; ++i) {
    Buffer frame = new_buffer(random_data(64 * 48 * 3 / 2, static_cast<std::uint64_t>(i)),
                              gst_util_uint64_scale(static_cast<guint64>(i) + 1, GST_SECOND, 30));
    GST_BUFFER_DURATION(frame.get()) = GST_SECOND / 30;
    ASSERT_TRUE(push(pipeline.appsrc(), std::move(frame)));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  EXPECT_EQ(pipeline.wait(), "eos");
  EXPECT_GE(watch.count(), static_cast<std::size_t>(count));
}

TEST(GapFirst, PrerollsWithWhatFollows) {
  const std::vector<std::string> ends{"fakesink name=out", "jpegenc ! fakesink name=out", "x264enc ! fakesink name=out",
                                      "videorate ! identity ! fakesink name=out"};
  side_by_side(ends, [](const std::string& end) { expect_prerolls_behind_gap(end, 100); });
}

TEST(GapFirst, PrerollsWithOneFrame) {
  expect_prerolls_behind_gap("fakesink name=out", 1);
}

/// Added to a pipeline that plays, not yet in its state; the pipeline has it.
GstElement* added(Pipeline& pipeline, const char* factory) {
  GstElement* element = gst_element_factory_make(factory, nullptr);
  EXPECT_TRUE(gst_bin_add(GST_BIN(pipeline.get()), element));
  return element;
}

// A sink takes what plays to PAUSED until it has a frame. One that gets none says so.
TEST(Added, ASinkWithoutAFrameSaysWhatItWaitsFor) {
  Pipeline pipeline("videotestsrc ! fakesink sync=true");
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  GstElement* sink = added(pipeline, "gpumapsink");
  g_object_set(sink, "channel", new_channel().c_str(), nullptr);
  ASSERT_TRUE(gst_element_sync_state_with_parent(sink));
  EXPECT_TRUE(eventually([&] {
    (void)pipeline.wait(10ms);
    return !pipeline.warnings().empty();
  }));
  ASSERT_FALSE(pipeline.warnings().empty());
  EXPECT_NE(pipeline.warnings().front().find("no frame has reached gpumapsink"), std::string::npos)
      << pipeline.warnings().front();
  GstElement* source = added(pipeline, "videotestsrc");
  ASSERT_TRUE(gst_element_link(source, sink));
  ASSERT_TRUE(gst_element_sync_state_with_parent(source));
  EXPECT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
}

// Both branches in one pipeline reach PLAYING and EOS: live or not, synchronised or not, however many frames the
// downstream wants before it prerolls.

const std::string short_film =
    "videotestsrc num-buffers=20 ! video/x-raw,format=I420,width=64,height=48,framerate=50/1 ! ";

/// Source: live or not. Sinks: synchronised or not. What is between gpumapsrc and its sink.
class Preroll : public testing::TestWithParam<std::tuple<bool, bool, bool, const char*>> {
 protected:
  static std::string description() {
    const auto& [live, sink_sync, downstream_sync, downstream] = GetParam();
    std::string text = short_film + "gpumapsink name=sink $CHANNEL sync=" + (sink_sync ? "true" : "false") +
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
      on_new_channel(short_film + "gpumapsink $CHANNEL gpumapsrc is-live=true name=src $CHANNEL ! fakesink"));
  EXPECT_EQ(pipeline.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_NO_PREROLL);
  g_usleep(100000);
  EXPECT_EQ(stat(pipeline.element("src"), "frames"), 0U);
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(stat(pipeline.element("src"), "frames"), 20U);
}

// More frames wanted for the preroll than the ring has slots: the queue gets them, for it holds slots, or the pipeline
// must still be stoppable at once.
TEST(PrerollTooMuch, StopsAtOnce) {
  Pipeline pipeline(on_new_channel(short_film + "gpumapsink $CHANNEL slots=2 gpumapsrc $CHANNEL ! "
                                                "queue min-threshold-buffers=10 ! fakesink"));
  (void)pipeline.reach(GST_STATE_PLAYING, 500ms);
  EXPECT_LT(pipeline.stop(), 20s);
}

// PAUSED stops a pipeline, PLAYING goes on with the next frame, and every way into a state comes to an end.

const std::string source =
    "videotestsrc name=source ! video/x-raw,format=I420,width=64,height=48,framerate=500/1 ! identity name=before ! ";

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
  const std::string line =
      "videotestsrc num-buffers=150 ! video/x-raw,format=I420,width=64,height=48,framerate=100/1 ! identity "
      "name=before ! $MAP ! video/x-raw ! fakesink name=out sync=true";
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

/// Calls `see` for each message of `pipeline` while it lives, in the thread that posts it.
class SeenAtOnce {
 public:
  SeenAtOnce(const Pipeline& pipeline, std::function<void(GstMessage*)> see)
      : see_(std::move(see)), bus_(gst_element_get_bus(pipeline.get())) {
    gst_bus_set_sync_handler(
        bus_.get(),
        [](GstBus*, GstMessage* message, gpointer self) {
          static_cast<SeenAtOnce*>(self)->see_(message);
          return GST_BUS_PASS;
        },
        this, nullptr);
  }
  ~SeenAtOnce() { gst_bus_set_sync_handler(bus_.get(), nullptr, nullptr, nullptr); }
  SeenAtOnce(const SeenAtOnce&) = delete;
  SeenAtOnce& operator=(const SeenAtOnce&) = delete;

 private:
  const std::function<void(GstMessage*)> see_;
  const Ptr<GstBus> bus_;
};

struct FlushedSink {
  FlushedSink() {
    EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    frame();
    EXPECT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  }
  void frame() const { EXPECT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(101, 1), 0))); }
  void flush() {
    gst_element_send_event(pipeline.element("in"), gst_event_new_flush_start());
    gst_element_send_event(pipeline.element("in"), gst_event_new_flush_stop(TRUE));
    ++flushes;
  }
  Pipeline pipeline{on_new_channel(
      "appsrc name=in format=time caps=application/octet-stream ! gpumapsink name=sink sync=false $CHANNEL")};
  std::atomic<int> flushes{0};
};

// A bin that is on its way to PLAYING does not notice that a flush takes a sink out of there again.
TEST(States, AFlushOnTheWayToPlayingKeepsNobodyInPaused) {
  FlushedSink flushed;
  const Pipeline& pipeline = flushed.pipeline;
  const SeenAtOnce seen(pipeline, [&](GstMessage* message) {
    GstState state = GST_STATE_NULL;
    if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_STATE_CHANGED ||
        GST_MESSAGE_SRC(message) != GST_OBJECT_CAST(pipeline.element("sink"))) {
      return;
    }
    gst_message_parse_state_changed(message, nullptr, &state, nullptr);
    if (state == GST_STATE_PLAYING && flushed.flushes == 1) std::thread([&] { flushed.flush(); }).join();
  });
  flushed.flush();
  flushed.frame();
  ASSERT_TRUE(eventually([&] { return flushed.flushes == 2; }));
  for (int n = 0; n < 3; ++n) flushed.frame();
  EXPECT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "frames") == 5; }));
  EXPECT_TRUE(flushed.pipeline.reach(GST_STATE_PLAYING));
  flushed.pipeline.stop();  // no message is on its way any more
}

// A bin that has its sinks' frames goes on to PLAYING in a thread of its own. Where it was told of them once more, it
// would go there twice, and who waits for the state would hear of a failure.
TEST(States, AFlushIsDoneOnce) {
  FlushedSink flushed;
  std::atomic<int> done{0};
  const SeenAtOnce seen(flushed.pipeline, [&](GstMessage* message) {
    if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_ASYNC_DONE ||
        GST_MESSAGE_SRC(message) != GST_OBJECT_CAST(flushed.pipeline.get())) {
      return;
    }
    ++done;
    g_usleep(200'000);  // time for the states to be looked at
  });
  flushed.flush();
  flushed.frame();
  ASSERT_TRUE(eventually([&] { return done > 0; }));
  EXPECT_TRUE(flushed.pipeline.reach(GST_STATE_PLAYING));
  flushed.pipeline.stop();  // no message is on its way any more
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace gpumap::gst::test
