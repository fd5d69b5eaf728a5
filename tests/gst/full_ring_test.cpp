// SPDX-License-Identifier: MIT
// A ring that is full, small or large: blocks until stopped, or drops and counts; elements that hold frames do not lock
// it up.
#include <gst/check/gstharness.h>

#include "gst/channel/channel.hpp"
#include "pipeline.hpp"
#include "test_helpers.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

/// Pushes frames of random bytes into a gpumapsink with no src.
class Lonely {
 public:
  explicit Lonely(const std::string& options)
      : channel(new_channel()),
        pipeline("appsrc name=in format=time ! gpumapsink name=sink channel=" + channel + " " + options) {
    gst_app_src_set_caps(pipeline.appsrc(), new_caps("application/octet-stream").get());
    EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  void push_frames(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i, ++pushed) push(pipeline.appsrc(), new_buffer(random_data(500, pushed)));
  }
  /// What a src gets now, by checksum, as indices into what was pushed.
  [[nodiscard]] std::vector<std::size_t> take_all() const {
    gst_app_src_end_of_stream(pipeline.appsrc());
    Pipeline out("gpumapsrc channel=" + channel + " ! gpumapkernel kernel=checksum ! fakesink sync=false");
    EXPECT_EQ(out.run(), "eos");
    std::vector<std::size_t> indices;
    for (const Result& result : out.results()) {
      std::size_t index = 0;
      while (index < pushed && checksum_of(random_data(500, index)) != result.checksum) ++index;
      indices.push_back(index);
    }
    return indices;
  }
  [[nodiscard]] std::uint64_t count(const char* field) const { return stat(pipeline.element("sink"), field); }

  std::string channel;
  Pipeline pipeline;
  std::size_t pushed = 0;
};

TEST(FullRing, BlocksAndStopsAtOnce) {
  Lonely lonely("slots=5");
  lonely.push_frames(20);
  ASSERT_TRUE(eventually([&] { return lonely.count("frames") == 5; }));
  g_usleep(300000);
  EXPECT_EQ(lonely.count("frames"), 5U);
  EXPECT_EQ(lonely.count("drops"), 0U);
  EXPECT_TRUE(eventually([&] { return lonely.count("waits") >= 1; }));
  EXPECT_LT(lonely.pipeline.stop(), at_once);
}

TEST(FullRing, BlocksThePoolAndStopsAtOnce) {
  Pipeline pipeline(on_new_channel(
      "videotestsrc ! video/x-raw,format=NV12,width=64,height=48 ! gpumapsink name=sink slots=4 $CHANNEL"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "frames") == 4; }));
  g_usleep(300000);
  EXPECT_EQ(stat(pipeline.element("sink"), "frames"), 4U);
  EXPECT_LT(pipeline.stop(), at_once);
}

TEST(FullRing, BlockedFramesAllArriveOnceASrcComes) {
  Lonely lonely("slots=5");
  lonely.push_frames(37);
  const auto got = lonely.take_all();
  ASSERT_EQ(got.size(), 37U);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i);
}

TEST(FullRing, LeakyNewestKeepsTheFirst) {
  Lonely lonely("slots=5 leaky=newest");
  lonely.push_frames(20);
  ASSERT_TRUE(eventually([&] { return lonely.count("frames") + lonely.count("drops") == 20; }));
  EXPECT_EQ(lonely.count("frames"), 5U);
  EXPECT_EQ(lonely.count("drops"), 15U);
  EXPECT_EQ(lonely.take_all(), (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

TEST(FullRing, LeakyOldestKeepsTheLast) {
  Lonely lonely("slots=5 leaky=oldest");
  lonely.push_frames(20);
  ASSERT_TRUE(eventually([&] { return lonely.count("frames") == 20; }));
  EXPECT_EQ(lonely.count("drops"), 15U);
  EXPECT_EQ(lonely.take_all(), (std::vector<std::size_t>{15, 16, 17, 18, 19}));
}

// From the pool too: neither blocks, and every frame is either in the ring or counted.
// Each ring has free slots, so none is full.
TEST(FullRing, FramesThatGrowGetFewRings) {
  constexpr std::uint64_t frames = 60;
  constexpr std::size_t step = 1001;
  Lonely lonely("slots=64");
  for (std::uint64_t n = 0; n < frames; ++n) {
    push(lonely.pipeline.appsrc(), new_buffer(random_data((n + 1) * step, n)));
  }
  ASSERT_TRUE(eventually([&] { return lonely.count("frames") == frames; }));
  EXPECT_LE(Channel::open(lonely.channel)->rings_waiting(), 8U);
  gst_app_src_end_of_stream(lonely.pipeline.appsrc());
  Pipeline out("gpumapsrc channel=" + lonely.channel + " ! appsink name=out sync=false");
  ASSERT_TRUE(out.reach(GST_STATE_PLAYING));
  for (std::uint64_t n = 0; n < frames; ++n) {
    const Sample sample = pull(out.appsink());
    ASSERT_TRUE(sample) << "frame " << n;
    EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), random_data((n + 1) * step, n)) << "frame " << n;
  }
}

TEST(FullRing, LeakyPoolNeverBlocks) {
  for (const char* leaky : {"newest", "oldest"}) {
    SCOPED_TRACE(leaky);
    Pipeline pipeline(
        on_new_channel("videotestsrc num-buffers=50 ! video/x-raw,format=NV12,width=64,height=48 ! "
                       "gpumapsink name=sink slots=4 leaky=" +
                       std::string(leaky) + " $CHANNEL"));
    ASSERT_EQ(pipeline.run(), "eos");
    GstElement* sink = pipeline.element("sink");
    if (std::string_view(leaky) == "newest") {
      EXPECT_EQ(stat(sink, "frames"), 4U);
      EXPECT_EQ(stat(sink, "drops"), 46U);
    } else {
      EXPECT_EQ(stat(sink, "frames"), 50U);
      EXPECT_EQ(stat(sink, "drops"), 46U);
    }
  }
}

// Who asks the pool not to wait is told that there is no slot.
TEST(FullRing, PoolThatMustNotWait) {
  GstHarness* in = gst_harness_new_parse(("gpumapsink slots=2 channel=" + new_channel()).c_str());
  const Caps caps = video_caps("NV12", 64, 48);
  gst_harness_set_src_caps(in, gst_caps_ref(caps.get()));
  GstQuery* query = gst_query_new_allocation(caps.get(), TRUE);
  ASSERT_TRUE(gst_pad_peer_query(in->srcpad, query));
  GstBufferPool* pool = nullptr;
  gst_query_parse_nth_allocation_pool(query, 0, &pool, nullptr, nullptr, nullptr);
  gst_query_unref(query);
  ASSERT_NE(pool, nullptr);
  ASSERT_TRUE(gst_buffer_pool_set_active(pool, TRUE));
  GstBufferPoolAcquireParams params{};
  params.flags = GST_BUFFER_POOL_ACQUIRE_FLAG_DONTWAIT;
  Buffer held[2];
  for (Buffer& buffer : held) {
    GstBuffer* got = nullptr;
    ASSERT_EQ(gst_buffer_pool_acquire_buffer(pool, &got, &params), GST_FLOW_OK);
    buffer.reset(got);
  }
  GstBuffer* none = nullptr;
  EXPECT_EQ(gst_buffer_pool_acquire_buffer(pool, &none, &params), GST_FLOW_EOS);
  held[0].reset();
  EXPECT_EQ(gst_buffer_pool_acquire_buffer(pool, &none, &params), GST_FLOW_OK);
  held[0].reset(none);
  for (Buffer& buffer : held) buffer.reset();
  gst_buffer_pool_set_active(pool, FALSE);
  gst_object_unref(pool);
  gst_harness_teardown(in);
}

class Slots : public testing::TestWithParam<int> {};

TEST_P(Slots, EveryFrameInOrder) {
  const std::string slots = "slots=" + std::to_string(GetParam());
  Pipeline pipeline(on_new_channel("appsrc name=in format=time ! gpumapsink name=sink $CHANNEL " + slots +
                                   " gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! fakesink"));
  gst_app_src_set_caps(pipeline.appsrc(), new_caps("application/octet-stream").get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (std::uint64_t i = 0; i < 600; ++i) push(pipeline.appsrc(), new_buffer(random_data(777, i)));
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.results().size(), 600U);
  for (std::uint64_t i = 0; i < 600; ++i) {
    ASSERT_EQ(pipeline.results()[i].checksum, checksum_of(random_data(777, i))) << i;
    ASSERT_EQ(pipeline.results()[i].sequence, i);
  }
}
INSTANTIATE_TEST_SUITE_P(Ring, Slots, testing::Values(2, 3, 7, 64, 256), testing::PrintToStringParamName());

struct Held {
  const char *name, *before, *around, *after;
  unsigned frames;
  const char* counted;
  unsigned times;
};
class HoldingElements : public testing::TestWithParam<Held> {};

TEST_P(HoldingElements, DoNotLockTheRing) {
  const Held& held = GetParam();
  Pipeline pipeline(on_new_channel("videotestsrc pattern=snow num-buffers=" + std::to_string(held.frames) +
                                   " ! video/x-raw,format=NV12,width=64,height=48," + held.before +
                                   "gpumapsink name=sink slots=2 $CHANNEL " + held.around + " gpumapsrc $CHANNEL ! " +
                                   held.after + "fakesink sync=false"));
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(pipeline.results().size(), held.frames);
  EXPECT_EQ(stat(pipeline.element("sink"), held.counted), held.times);
}
INSTANTIATE_TEST_SUITE_P(
    Queues, HoldingElements,
    testing::Values(
        // An upstream queue that could hold every slot.
        Held{"Upstream", "framerate=30/1 ! queue max-size-buffers=200 max-size-bytes=0 max-size-time=0 ! ", "",
             "gpumapkernel kernel=checksum ! ", 300, "drops", 0},
        // It fills with all slots while each frame waits for its time: no reason to give host memory.
        Held{"UpstreamThatWaitsForTheClock",
             "framerate=5/7 ! queue max-size-buffers=200 max-size-bytes=0 max-size-time=0 ! ", "sync=true",
             "gpumapkernel kernel=checksum ! ", 5, "zero-copy-frames", 5},
        // It gives nothing away until it has 20 frames, of a ring of 2: the rest comes from host memory.
        Held{"UpstreamThatWaitsForMoreThanTheRing",
             "framerate=30/1 ! queue min-threshold-buffers=20 max-size-buffers=200 ! ", "",
             "gpumapkernel kernel=checksum ! ", 40, "drops", 0},
        Held{"Downstream", "framerate=30/1 ! ", "",
             "queue max-size-buffers=200 ! gpumapkernel kernel=checksum ! queue max-size-buffers=200 ! ", 300, "drops",
             0}),
    [](const auto& test) { return std::string(test.param.name); });

// Two pipelines, one after the other: what was sent before EOS arrives, whenever the src comes; what a stop cuts off is
// dropped and its slots come back; a src that comes later, or again, gets the stream's caps and segment.

struct Pair {
  std::string channel = new_channel();
  [[nodiscard]] std::string sink(const std::string& options) const {
    return "gpumapsink name=sink channel=" + channel + " " + options;
  }
  [[nodiscard]] std::string src(const std::string& options = "") const {
    return "gpumapsrc name=src channel=" + channel + " " + options;
  }
};

constexpr const char* source =
    "videotestsrc pattern=snow num-buffers=20 ! video/x-raw,format=NV12,width=33,height=17,framerate=25/1 ! ";

TEST(Drain, EosWithFramesQueued) {
  const Pair pair;
  Pipeline in(source + pair.sink("slots=32"));
  // Alone, with no src: all 20 fit, and EOS is reached. The channel keeps them while the sink is stopped.
  ASSERT_EQ(in.run(), "eos");
  in.stop();
  Pipeline out(pair.src() + " ! gpumapkernel kernel=checksum ! fakesink sync=false");
  ASSERT_EQ(out.run(), "eos");
  EXPECT_EQ(out.results().size(), 20U);
  for (std::size_t i = 0; i < out.results().size(); ++i) {
    EXPECT_EQ(out.results()[i].sequence, i);
    EXPECT_EQ(out.results()[i].pts, i * GST_SECOND / 25);
  }
}

// The element that fills a channel may be gone before the one that empties it is made.
TEST(Drain, FramesOutliveTheirSink) {
  const Pair pair;
  {
    Pipeline in(source + pair.sink("slots=32"));
    ASSERT_EQ(in.run(), "eos");
  }
  Pipeline out(pair.src() + " ! gpumapkernel kernel=checksum ! fakesink sync=false");
  ASSERT_EQ(out.run(), "eos");
  EXPECT_EQ(out.results().size(), 20U);
}

// Another sink begins anew: what the one before left, and nobody took, goes.
TEST(Drain, NextSinkTakesTheChannel) {
  const Pair pair;
  {
    Pipeline in(source + pair.sink("slots=32"));
    ASSERT_EQ(in.run(), "eos");
  }
  Pipeline in("videotestsrc num-buffers=7 ! video/x-raw,format=RGB,width=33,height=17 ! " + pair.sink("slots=32"));
  ASSERT_EQ(in.run(), "eos");
  Pipeline out(pair.src() + " ! gpumapkernel kernel=checksum ! fakesink sync=false");
  ASSERT_EQ(out.run(), "eos");
  EXPECT_EQ(out.results().size(), 7U);
}

// Frames that no one came for do not keep GPU memory for ever.
TEST(Drain, FramesOfAnEndedStreamLingerForAWhile) {
  const Pair pair;
  SimulatedTime time;
  time.become_default();
  std::weak_ptr<Channel> channel;
  {
    Pipeline in(source + pair.sink("slots=32"));
    ASSERT_EQ(in.run(), "eos");
    channel = Channel::open(pair.channel);
  }
  time.pass(59s);
  g_usleep(10000);
  EXPECT_FALSE(channel.expired()) << "for a minute";
  time.pass(1s);
  EXPECT_TRUE(eventually([&] { return channel.expired(); }));
  Pipeline out(pair.src("timeout=300") + " ! fakesink sync=false");
  EXPECT_NE(out.run().find("no gpumapsink on channel"), std::string::npos);
}

// A src that stopped in the middle leaves nothing behind for one that has nothing to do with it.
TEST(Drain, WhatAStoppedSrcLeftIsGone) {
  const Pair pair;
  {
    Pipeline in(source + pair.sink("slots=32"));
    Pipeline out(pair.src() + " ! appsink name=out max-buffers=1 sync=false");
    ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_EQ(in.run(), "eos");
    ASSERT_NE(pull(out.appsink()), nullptr);
    out.stop();
  }
  Pipeline out(pair.src("timeout=300") + " ! fakesink sync=false");
  EXPECT_NE(out.run(), "eos");
  EXPECT_EQ(stat(out.element("src"), "frames"), 0U);
}

TEST(Drain, SinkPipelineGoesWhileTheSrcStillReads) {
  const Pair pair;
  Pipeline out(pair.src() + " ! appsink name=out max-buffers=1 sync=false");
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  {
    Pipeline in(source + pair.sink("slots=32"));
    ASSERT_EQ(in.run(), "eos");
  }
  for (int i = 0; i < 20; ++i) ASSERT_NE(pull(out.appsink()), nullptr) << i;
  EXPECT_EQ(pull(out.appsink()), nullptr);
  EXPECT_EQ(out.wait(), "eos");
}

// Stopped without EOS: what was queued is gone, and what comes next starts with its own caps.
TEST(Drain, StopDropsWhatIsQueued) {
  const Pair pair;
  Pipeline in(std::string("appsrc name=in format=time ! ") + pair.sink("slots=8"));
  gst_app_src_set_caps(in.appsrc(), new_caps("application/octet-stream").get());
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int i = 0; i < 5; ++i) push(in.appsrc(), new_buffer(random_data(999, 1)));
  ASSERT_TRUE(eventually([&] { return stat(in.element("sink"), "frames") == 5; }));
  in.stop();

  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Pipeline out(pair.src() + " ! gpumapkernel kernel=checksum ! fakesink sync=false");
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Data data = random_data(999, 2);
  push(in.appsrc(), new_buffer(data));
  gst_app_src_end_of_stream(in.appsrc());
  ASSERT_EQ(out.wait(), "eos");
  ASSERT_EQ(out.results().size(), 1U);
  EXPECT_EQ(out.results()[0].checksum, checksum_of(data));
}

// Again and again, with no src at all: every slot of every stopped ring is given back.
TEST(Drain, StopsLeakNothing) {
  const Pair pair;
  Pipeline in("videotestsrc ! video/x-raw,format=RGBA,width=1280,height=720 ! " + pair.sink("slots=8"));
  std::size_t bytes = 0, descriptors = 0;
  for (int i = 0; i < 40; ++i) {
    ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(eventually([&] { return stat(in.element("sink"), "frames") == 8; }));
    EXPECT_LT(in.stop(), at_once);
    if (i == 9) bytes = resident_bytes(), descriptors = open_descriptors();
  }
  EXPECT_TRUE(no_more_descriptors_than(descriptors)) << open_descriptors() << " of " << descriptors;
  if (!sanitized) {
    EXPECT_TRUE(eventually([&] { return resident_bytes() <= bytes + 29'000'000; }, 10s))
        << "one ring has 29.5 MB; before: " << bytes << ", now: " << resident_bytes();
  }
}

TEST(Drain, SrcThatComesLaterGetsCapsSegmentAndTags) {
  const Pair pair;
  Pipeline in(
      "audiotestsrc num-buffers=6 ! audio/x-raw,format=S16LE,channels=2,rate=44100 ! "
      "taginject tags=\"title=later\" ! " +
      pair.sink("slots=16"));
  ASSERT_EQ(in.run(), "eos");
  Pipeline out(pair.src() + " ! appsink name=out sync=false");
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Sample sample = pull(out.appsink());
  ASSERT_NE(sample, nullptr);
  EXPECT_TRUE(gst_caps_is_subset(gst_sample_get_caps(sample.get()),
                                 new_caps("audio/x-raw,format=S16LE,channels=2,rate=44100").get()));
  EXPECT_EQ(gst_sample_get_segment(sample.get())->format, GST_FORMAT_TIME);
  const Pad pad(gst_element_get_static_pad(out.element("out"), "sink"));
  GstEvent* tags = gst_pad_get_sticky_event(pad.get(), GST_EVENT_TAG, 0);
  EXPECT_NE(tags, nullptr);
  if (tags != nullptr) gst_event_unref(tags);
}

// One src leaves in mid-stream; the next gets the same stream's state, and frames from where the first stopped.
TEST(Drain, SecondSrcOfTheSameStream) {
  const Pair pair;
  Pipeline in(std::string("appsrc name=in format=time ! ") + pair.sink("slots=4"));
  gst_app_src_set_caps(in.appsrc(), video_caps("RGB", 33, 7).get());
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (std::size_t round = 0; round < 5; ++round) {
    Pipeline out(pair.src() + " ! appsink name=out sync=false");
    ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const Data data = random_data(frame_bytes(video_caps("RGB", 33, 7).get()), round);
    push(in.appsrc(), new_buffer(data, round * GST_SECOND));
    const Sample sample = pull(out.appsink());
    ASSERT_NE(sample, nullptr) << round;
    EXPECT_TRUE(data_of(gst_sample_get_buffer(sample.get())) == data) << round;
    EXPECT_TRUE(gst_caps_is_subset(gst_sample_get_caps(sample.get()),
                                   new_caps("video/x-raw,format=RGB,width=33,height=7").get()));
    EXPECT_EQ(gst_sample_get_segment(sample.get())->format, GST_FORMAT_TIME);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
