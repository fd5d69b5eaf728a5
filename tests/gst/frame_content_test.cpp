// SPDX-License-Identifier: MIT
// What is pushed into gpumapsink is, byte for byte, what a kernel after gpumapsrc reads: random frames of odd sizes.
#include <random>
#include <tuple>

#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

constexpr const char* summed =
    "appsrc name=in format=time ! gpumapsink name=sink $CHANNEL "
    "gpumapsrc $CHANNEL name=src ! gpumapkernel kernel=checksum ! fakesink";

/// Most of what follows, for every transport.
class Content : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Content, testing::ValuesIn(transports()), transport_name);

/// Push `frames` with this caps and compare the checksums that come out with theirs, in order.
void expect_to_cross(const Caps& caps, const std::vector<Data>& frames, const std::string& description = summed) {
  Pipeline pipeline(on_new_channel(description));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frames[i], i * 7 * GST_MSECOND + 3)));
    bytes += frames[i].size();
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(90s), "eos");
  ASSERT_EQ(pipeline.results().size(), frames.size());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const Result& result = pipeline.results()[i];
    EXPECT_EQ(result.checksum, checksum_of(frames[i])) << "frame " << i << " of " << frames[i].size() << " bytes";
    EXPECT_EQ(result.bytes, frames[i].size());
    EXPECT_EQ(result.pts, i * 7 * GST_MSECOND + 3);
  }
  EXPECT_EQ(stat(pipeline.element("sink"), "frames"), frames.size());
  EXPECT_EQ(stat(pipeline.element("sink"), "copied-frames"), frames.size());
  EXPECT_EQ(stat(pipeline.element("sink"), "bytes-copied"), bytes);
  EXPECT_EQ(stat(pipeline.element("src"), "frames"), frames.size());
  EXPECT_EQ(stat(pipeline.element("src"), "bytes"), bytes);
}

std::vector<Data> random_frames(std::size_t count, std::size_t bytes) {
  std::vector<Data> frames;
  for (std::size_t i = 0; i < count; ++i) frames.push_back(random_data(bytes, 1000 * bytes + i));
  return frames;
}

using Size = std::pair<int, int>;
class VideoContent : public testing::TestWithParam<std::tuple<const char*, Size>> {};

TEST_P(VideoContent, Crosses) {
  const auto& [format, size] = GetParam();
  const Caps caps = video_caps(format, size.first, size.second);
  // More frames than slots, so that slots are used again.
  expect_to_cross(caps, random_frames(20, frame_bytes(caps.get())));
}

INSTANTIATE_TEST_SUITE_P(Formats, VideoContent,
                         testing::Combine(testing::Values("NV12", "I420", "RGB", "GRAY8", "AYUV"),
                                          testing::Values(Size{1, 1}, Size{2, 2}, Size{33, 7}, Size{1917, 1081})),
                         [](const auto& test) {
                           const Size size = std::get<1>(test.param);
                           return std::string(std::get<0>(test.param)) + "_" + std::to_string(size.first) + "x" +
                                  std::to_string(size.second);
                         });

TEST_P(Content, EightK) {
  const Caps caps = video_caps("NV12", 7680, 4320);
  expect_to_cross(caps, random_frames(3, frame_bytes(caps.get())),
                  on_transport("appsrc name=in format=time ! gpumapsink name=sink slots=2 $CHANNEL "
                               "gpumapsrc $CHANNEL name=src ! gpumapkernel kernel=checksum ! fakesink",
                               GetParam()));
}

TEST_P(Content, BytesOfOneSize) {
  for (const std::size_t bytes : {1, 63, 4097, 100001}) {
    SCOPED_TRACE(bytes);
    expect_to_cross(new_caps("application/octet-stream"), random_frames(20, bytes), on_transport(summed, GetParam()));
  }
}

// Slots grow with the frames: each larger one starts a new ring while frames of the old one are under way.
TEST_P(Content, BytesOfGrowingAndMixedSize) {
  std::mt19937 random(7);
  std::vector<Data> frames;
  for (const std::size_t bytes : {1, 2, 63, 64, 65, 4095, 4096, 4097, 100001}) {
    frames.push_back(random_data(bytes, bytes));
    frames.push_back(random_data(1 + random() % bytes, bytes + 1));
  }
  for (std::size_t i = 0; i < 60; ++i) frames.push_back(random_data(1 + random() % 200000, i + 5000));
  expect_to_cross(new_caps("application/octet-stream"), frames, on_transport(summed, GetParam()));
}

TEST_P(Content, Audio) {
  for (const char* caps : {"audio/x-raw,format=S16LE,rate=48000,channels=2,layout=interleaved",
                           "audio/x-raw,format=F32LE,rate=2400000,channels=2,layout=interleaved",
                           "audio/x-raw,format=U8,rate=8000,channels=1,layout=interleaved",
                           "audio/x-raw,format=S24LE,rate=96000,channels=6,layout=interleaved,"
                           "channel-mask=(bitmask)0x3f"}) {
    SCOPED_TRACE(caps);
    std::vector<Data> frames;
    for (std::size_t i = 1; i < 30; ++i) frames.push_back(random_data(144 * i, i));  // whole samples in each format
    expect_to_cross(new_caps(caps), frames, on_transport(summed, GetParam()));
  }
}

// A buffer of several memories is one frame.
TEST_P(Content, SeveralMemories) {
  Pipeline pipeline(on_new_channel(on_transport(summed, GetParam())));
  gst_app_src_set_caps(pipeline.appsrc(), new_caps("application/octet-stream").get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Data whole;
  Buffer buffer(gst_buffer_new());
  for (const std::size_t bytes : {1, 100, 7, 4096, 63}) {
    const Data part = random_data(bytes, bytes);
    whole.insert(whole.end(), part.begin(), part.end());
    // Not from the start of its memory.
    GstMemory* memory = gst_allocator_alloc(nullptr, bytes + 5, nullptr);
    gst_memory_resize(memory, 5, bytes);
    gst_buffer_append_memory(buffer.get(), memory);
    gst_buffer_fill(buffer.get(), whole.size() - bytes, part.data(), bytes);
  }
  push(pipeline.appsrc(), std::move(buffer));
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.results().size(), 1U);
  EXPECT_EQ(pipeline.results()[0].checksum, checksum_of(whole));
}

// The CPU reads of a downstream that knows no GPU memory see the same bytes.
TEST_P(Content, ReadByTheCpu) {
  Pipeline pipeline(
      on_new_channel(on_transport("appsrc name=in format=time ! gpumapsink $CHANNEL "
                                  "gpumapsrc $CHANNEL ! capsfilter caps=video/x-raw ! appsink name=out sync=false",
                                  GetParam())));
  const Caps caps = video_caps("NV12", 1917, 1081);
  const auto frames = random_frames(12, frame_bytes(caps.get()));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (const Data& frame : frames) push(pipeline.appsrc(), new_buffer(frame));
  gst_app_src_end_of_stream(pipeline.appsrc());
  for (const Data& frame : frames) {
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr);
    EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())) == frame, true);
  }
  EXPECT_EQ(pull(pipeline.appsink()), nullptr);
}

// An element that changes frames in place, after gpumapsrc: it gets a copy, and the slot stays as it was.
TEST_P(Content, ChangedDownstreamInACopy) {
  Pipeline pipeline(on_new_channel(on_transport(
      "appsrc name=in format=time ! gpumapsink $CHANNEL "
      "gpumapsrc $CHANNEL ! tee name=t ! queue ! capsfilter caps=video/x-raw ! appsink name=out sync=false "
      "t. ! queue ! capsfilter caps=video/x-raw ! videobalance brightness=1 ! appsink name=bright "
      "sync=false",
      GetParam())));
  const Caps caps = video_caps("I420", 33, 7);
  const auto frames = random_frames(10, frame_bytes(caps.get()));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (const Data& frame : frames) push(pipeline.appsrc(), new_buffer(frame));
  gst_app_src_end_of_stream(pipeline.appsrc());
  for (const Data& frame : frames) {
    const Sample same = pull(pipeline.appsink());
    const Sample bright = pull(pipeline.appsink("bright"));
    ASSERT_TRUE(same && bright);
    EXPECT_EQ(data_of(gst_sample_get_buffer(same.get())) == frame, true);
    EXPECT_EQ(data_of(gst_sample_get_buffer(bright.get())) == frame, false);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
