// SPDX-License-Identifier: MIT
// What a frame's slot tells of it, for a reader that has no GStreamer buffer: times, offsets and flags.
#include <gtest/gtest.h>

#include "gst/channel/channel.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

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
