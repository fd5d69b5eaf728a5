// SPDX-License-Identifier: MIT
// What is pushed into gpumapsink is, byte for byte, what a kernel after gpumapsrc reads: random frames of odd sizes.
#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "gst/channel/channel.hpp"
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

// What a frame's slot tells of it, for a reader that has no GStreamer buffer: times, offsets and flags.

/// Takes the frames of a channel in the place of a gpumapsrc.
class Reader {
 public:
  explicit Reader(const std::string& name) : channel_(Channel::open(name)) {
    std::string holder;
    EXPECT_TRUE(channel_->attach_src(
        element_, nullptr, [](GstEvent* event) { gst_event_unref(event); }, holder));
  }
  ~Reader() {
    channel_->detach_src();
    gst_object_unref(element_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[nodiscard]] Channel::Next frame() const {
    for (;;) {
      Channel::Next next = channel_->next(Clock::now() + patience);
      if (next.event != nullptr) gst_event_unref(next.event);
      if (next.kind != Channel::Next::Kind::event) return next;
    }
  }

 private:
  GstElement* element_ = GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make("identity", nullptr)));
  std::shared_ptr<Channel> channel_;
};

/// A frame of 16 bytes; frame 3 and those after it have no times.
GstBuffer* numbered(std::uint64_t n) {
  GstBuffer* buffer = gst_buffer_new_allocate(nullptr, 16, nullptr);
  if (n < 3) {
    GST_BUFFER_PTS(buffer) = n * GST_MSECOND;
    GST_BUFFER_DTS(buffer) = n * GST_MSECOND + 7;
    GST_BUFFER_DURATION(buffer) = 40 + n;
    GST_BUFFER_OFFSET(buffer) = 100 + n;
    GST_BUFFER_OFFSET_END(buffer) = 200 + n;
  }
  if (n == 1) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_MARKER | GST_BUFFER_FLAG_DELTA_UNIT);
  return buffer;
}

TEST(FrameInfo, TellsTimesOffsetsAndFlags) {
  const std::string channel = new_channel();
  const Reader reader(channel);
  Pipeline pipeline("appsrc name=in format=time caps=application/octet-stream ! gpumapsink sync=false channel=" +
                    channel);
  for (std::uint64_t n = 1; n <= 3; ++n) gst_app_src_push_buffer(pipeline.appsrc(), numbered(n));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (std::uint64_t n = 1; n <= 3; ++n) {
    const Channel::Next next = reader.frame();
    ASSERT_EQ(next.kind, Channel::Next::Kind::frame);
    const gpumap::FrameInfo& info = next.lease.info();
    const auto number = static_cast<std::int64_t>(n);
    EXPECT_EQ(info.bytes, 16U);
    EXPECT_EQ(info.pts, n < 3 ? number * 1'000'000 : no_time);
    EXPECT_EQ(info.dts, n < 3 ? number * 1'000'000 + 7 : no_time);
    EXPECT_EQ(info.duration, n < 3 ? 40 + number : no_time);
    EXPECT_EQ(info.offset, n < 3 ? 100 + n : GST_BUFFER_OFFSET_NONE);
    EXPECT_EQ(info.offset_end, n < 3 ? 200 + n : GST_BUFFER_OFFSET_NONE);
    EXPECT_EQ((info.flags & GST_BUFFER_FLAG_MARKER) != 0, n == 1);
    EXPECT_EQ(info.flags, GST_BUFFER_FLAGS(next.carrier.get())) << "and those of the buffer that gpumapsrc makes";
  }
}

// The sink itself marks the frame that follows a hole.
TEST(FrameInfo, TellsOfAHole) {
  const std::string channel = new_channel();
  const Reader reader(channel);
  Pipeline pipeline(
      "appsrc name=in format=time caps=application/octet-stream ! "
      "gpumapsink name=sink sync=false leaky=newest slots=2 channel=" +
      channel);
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (std::uint64_t n = 1; n <= 6; ++n) gst_app_src_push_buffer(pipeline.appsrc(), numbered(n));
  ASSERT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "drops") >= 1; }, patience));
  bool told = false;
  for (std::uint64_t n = 7; n < 12 && !told; ++n) {
    const Channel::Next next = reader.frame();
    ASSERT_EQ(next.kind, Channel::Next::Kind::frame);
    EXPECT_EQ(next.lease.info().flags, GST_BUFFER_FLAGS(next.carrier.get()));
    told = next.sequence > 1 && (next.lease.info().flags & GST_BUFFER_FLAG_DISCONT) != 0;
    gst_app_src_push_buffer(pipeline.appsrc(), numbered(n));
  }
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace gpumap::gst::test
