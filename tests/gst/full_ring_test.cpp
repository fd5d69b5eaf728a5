// SPDX-License-Identifier: MIT
// A ring that is full, small or large: blocks until stopped, or drops and counts; elements that hold frames do not lock
// it up.
#include <gst/check/gstharness.h>

#include "pipeline.hpp"

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

// An upstream queue that could hold every slot, and a downstream that keeps some.
TEST(HoldingElements, UpstreamQueueLongerThanTheRing) {
  Pipeline pipeline(on_new_channel(
      "videotestsrc num-buffers=300 pattern=snow ! video/x-raw,format=NV12,width=64,height=48 ! "
      "queue max-size-buffers=200 max-size-bytes=0 max-size-time=0 ! gpumapsink name=sink slots=2 $CHANNEL "
      "gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! fakesink"));
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(pipeline.results().size(), 300U);
  EXPECT_EQ(stat(pipeline.element("sink"), "drops"), 0U);
}

// The queue fills with all slots while each frame waits for its time: no reason to give host memory.
TEST(HoldingElements, UpstreamQueueThatWaitsForTheClock) {
  Pipeline pipeline(on_new_channel(
      "videotestsrc num-buffers=5 pattern=snow ! video/x-raw,format=NV12,width=64,height=48,framerate=5/7 ! "
      "queue max-size-buffers=200 max-size-bytes=0 max-size-time=0 ! gpumapsink name=sink sync=true slots=2 $CHANNEL "
      "gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! fakesink sync=false"));
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(pipeline.results().size(), 5U);
  EXPECT_EQ(stat(pipeline.element("sink"), "zero-copy-frames"), 5U);
}

// A queue that gives nothing away until it has 20 frames, of a ring of 2: the rest comes from host memory.
TEST(HoldingElements, UpstreamQueueThatWaitsForMoreThanTheRing) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=40 pattern=snow ! video/x-raw,format=NV12,width=64,height=48 ! "
                     "queue min-threshold-buffers=20 max-size-buffers=200 ! gpumapsink name=sink slots=2 $CHANNEL "
                     "gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! fakesink"));
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(pipeline.results().size(), 40U);
}

TEST(HoldingElements, DownstreamQueueLongerThanTheRing) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=300 pattern=snow ! video/x-raw,format=NV12,width=64,height=48 ! "
                     "gpumapsink name=sink slots=2 $CHANNEL gpumapsrc $CHANNEL ! queue max-size-buffers=200 ! "
                     "gpumapkernel kernel=checksum ! queue max-size-buffers=200 ! fakesink"));
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(pipeline.results().size(), 300U);
}

}  // namespace
}  // namespace gpumap::gst::test
