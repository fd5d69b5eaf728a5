// SPDX-License-Identifier: MIT
// A pipeline prerolls with as many frames as what is behind gpumapsrc wants, and makes no more of them until it plays.
#include <atomic>

#include "matrix.hpp"
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

}  // namespace
}  // namespace gpumap::gst::test
