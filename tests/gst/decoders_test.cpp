// SPDX-License-Identifier: MIT
// Upstream elements that read what they wrote, hold frames or send one twice: the picture is right, at one copy a frame
// and next to no CPU reads of slots.
#include <algorithm>

#include "pixels.hpp"

namespace gpumap::gst::test {
namespace {

std::vector<Data> frames_of(Pipeline& pipeline) {
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<Data> frames;
  while (const Sample sample = pull(pipeline.appsink())) frames.push_back(pixels_of(sample.get()));
  EXPECT_EQ(pipeline.wait(), "eos");
  return frames;
}

/// Through gpumap as without it.
void expect_same(const std::string& upstream, std::size_t frames, std::uint64_t copied, std::uint64_t reads_at_most,
                 const std::string& options = "") {
  Pipeline plain(upstream + " ! capsfilter caps=video/x-raw ! appsink name=out sync=false");
  Pipeline mapped(on_new_channel(upstream + " ! gpumapsink name=sink $CHANNEL " + options +
                                 " gpumapsrc $CHANNEL ! capsfilter caps=video/x-raw ! appsink name=out sync=false"));
  const auto expected = frames_of(plain);
  const auto got = frames_of(mapped);
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_EQ(got.size(), frames);
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i] == expected[i]) << "frame " << i << ", from byte "
                                       << std::mismatch(got[i].begin(), got[i].end(), expected[i].begin()).first -
                                              got[i].begin();
  }
  GstElement* sink = mapped.element("sink");
  EXPECT_EQ(stat(sink, "copied-frames"), copied);
  EXPECT_EQ(stat(sink, "copied-frames") + stat(sink, "zero-copy-frames"), stat(sink, "frames"));
  EXPECT_LE(stat(sink, "cpu-reads"), reads_at_most);
}

// Moving and noisy, so that predicted frames have something to predict from and to correct.
constexpr const char* moving =
    "videotestsrc num-buffers=40 pattern=ball ! video/x-raw,format=I420,width=322,height=182 ! videobox ! ";

TEST(Decoders, H264ReadsItsReferenceFrames) {
  expect_same(std::string(moving) + "x264enc bframes=2 b-adapt=false speed-preset=ultrafast ! h264parse ! avdec_h264",
              40, 40, 8);
}

TEST(Decoders, TextoverlayReadsWhatItWritesOver) {
  expect_same(std::string(moving) + "textoverlay text=first-light", 40, 40, 8);
}

/// Where slots lie in host memory the CPU may read them.
class ReadableSlots : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, ReadableSlots, testing::Values("pinned", "zero-copy", "pageable"), transport_name);

TEST_P(ReadableSlots, CostUpstreamsThatReadNoCopy) {
  const std::string options = std::string("slots=16 transport=") + GetParam();
  expect_same(std::string(moving) + "x264enc bframes=2 b-adapt=false speed-preset=ultrafast ! h264parse ! avdec_h264",
              40, 0, 0, options);
  expect_same(std::string(moving) + "textoverlay text=first-light", 40, 0, 0, options);
  expect_same(
      "videotestsrc num-buffers=5 pattern=ball ! video/x-raw,format=RGB,width=322,height=182 ! "
      "pngenc snapshot=false ! pngdec",
      5, 0, 0, options);
}

// The decoder wants one slot more for its reference frames, and the last one is with the sink's last sample.
TEST_P(ReadableSlots, RunOutWhereBothSidesHoldFrames) {
  Pipeline pipeline(on_new_channel(
      std::string(moving) +
      "x264enc bframes=2 b-adapt=false ref=4 ! h264parse ! avdec_h264 max-threads=4 ! gpumapsink name=sink slots=6 "
      "$CHANNEL transport=" +
      GetParam() + " gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! fakesink"));
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(pipeline.results().size(), 40U);
}

TEST(Decoders, JpegdecWritesOnly) {
  // Whole blocks, so that nothing beyond the picture's edge takes part in the encoding.
  expect_same(
      "videotestsrc num-buffers=40 pattern=ball ! video/x-raw,format=I420,width=320,height=176 ! jpegenc ! jpegdec", 40,
      0, 0);
}

TEST(Decoders, PngdecReads) {
  expect_same(
      "videotestsrc num-buffers=5 pattern=ball ! video/x-raw,format=RGB,width=322,height=182 ! "
      "pngenc snapshot=false ! pngdec",
      5, 5, 0);
}

// The sink of a player is in a bin of its own, and may be in two.
TEST(Decoders, AreFoundFromInsideBins) {
  const std::string channel = new_channel();
  for (int bins = 1; bins <= 2; ++bins) {
    Pipeline pipeline(
        "videotestsrc num-buffers=5 pattern=ball ! video/x-raw,format=RGB,width=322,height=182 ! "
        "pngenc snapshot=false ! pngdec name=last gpumapsrc channel=" +
        channel + " ! fakesink sync=false");
    GstElement* bin =
        gst_parse_bin_from_description(("queue ! gpumapsink name=sink channel=" + channel).c_str(), TRUE, nullptr);
    if (bins == 2) {
      GstElement* outer = gst_bin_new(nullptr);
      const Pad inner(gst_element_get_static_pad(bin, "sink"));
      gst_bin_add(GST_BIN(outer), bin);
      gst_element_add_pad(outer, gst_ghost_pad_new("sink", inner.get()));
      bin = outer;
    }
    gst_bin_add(GST_BIN(pipeline.get()), bin);
    ASSERT_TRUE(gst_element_link(pipeline.element("last"), bin));
    ASSERT_EQ(pipeline.run(), "eos");
    EXPECT_EQ(stat(pipeline.element("sink"), "copied-frames"), 5U) << "in " << bins << " bins";
  }
}

// The same buffer pushed again and again: the first time it is the slot, then its content is copied from there.
TEST(Decoders, ImagefreezeSendsOneFrameOften) {
  expect_same(
      "videotestsrc num-buffers=1 pattern=snow ! video/x-raw,format=RGB,width=33,height=17 ! "
      "imagefreeze num-buffers=30",
      30, 29, 1, "slots=3");
}

// Since 1.24 it gives some of its duplicates as the frame in our memory that it had from us.
TEST(Decoders, VideorateDuplicates) {
  guint major = 0;
  guint minor = 0;
  guint micro = 0;
  guint nano = 0;
  gst_version(&major, &minor, &micro, &nano);
  const bool newer = minor >= 24;
  expect_same(
      "videotestsrc num-buffers=10 pattern=ball ! video/x-raw,format=NV12,width=64,height=48,framerate=5/1 ! "
      "videorate ! video/x-raw,framerate=15/1",
      27, newer ? 17 : 27, newer ? 9 : 0, "slots=4");
}

}  // namespace
}  // namespace gpumap::gst::test
