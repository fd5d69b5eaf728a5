// SPDX-License-Identifier: MIT
// Two pipelines, one after the other: what was sent before EOS arrives, whenever the src comes; what a stop cuts off is
// dropped and its slots come back; a src that comes later, or again, gets the stream's caps and segment.
#include "gst/channel/channel.hpp"
#include "sanitizers.hpp"
#include "simulated_time.hpp"

namespace gpumap::gst::test {
namespace {

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
