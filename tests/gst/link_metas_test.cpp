// SPDX-License-Identifier: MIT
// Metas between two processes: each arrives with its frame and with no other, whatever a client misses.
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launched.hpp"
#include "link_sides.hpp"
#include "link_written.hpp"
#include "numbered_metas.hpp"

namespace gpumap::gst::test {
namespace {

struct LinkMetas : LinkSides {
  void SetUp() override { register_metas(); }
  static void push_frame(const Pipeline& producer, std::uint64_t n, std::size_t bytes = frame_size) {
    Buffer buffer = new_buffer(random_data(bytes, n), n * GST_MSECOND);
    give_metas(buffer.get(), n);
    EXPECT_TRUE(push(producer.appsrc(), std::move(buffer)));
  }
  /// The frame's number; its content and its metas are of that one.
  static std::uint64_t check(GstBuffer* buffer, std::size_t bytes = frame_size) {
    const std::uint64_t n = GST_BUFFER_PTS(buffer) / GST_MSECOND;
    EXPECT_EQ(metas_of(buffer), metas_of_frame(n)) << "frame " << n;
    EXPECT_TRUE(data_of(buffer) == random_data(bytes, n)) << "frame " << n;
    return n;
  }
};

TEST_F(LinkMetas, ArriveWithTheirFrame) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer(to_appsink());
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  for (std::uint64_t n = 1; n < 60; ++n) push_frame(producer, n);
  push_eos(producer);
  std::uint64_t last = 0;
  while (const Sample sample = pull(consumer.appsink())) last = check(gst_sample_get_buffer(sample.get()));
  EXPECT_EQ(last, 59U);
}

TEST_F(LinkMetas, OfFramesThatAClientMissesAreMissedToo) {
  Pipeline producer(from_appsrc("slots=32"));
  start(producer);
  push_frame(producer, 0);
  std::vector<std::unique_ptr<Pipeline>> consumers;
  const auto join = [&](const std::string& leaky) {
    consumers.push_back(std::make_unique<Pipeline>(to_appsink("leaky=" + leaky) + " max-buffers=1"));
    start(*consumers.back());
    ASSERT_TRUE(eventually([&] { return clients(producer) == consumers.size(); }));
  };
  for (const char* const leaky : {"newest", "oldest"}) join(leaky);
  std::uint64_t pushed = 1;
  std::vector<std::size_t> seen(3);
  for (int round = 0; round < 12; ++round) {
    if (round == 5) join("oldest");
    for (const std::uint64_t end = pushed + 20; pushed < end; ++pushed) push_frame(producer, pushed);
    EXPECT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") == pushed; }));
    for (std::size_t which = 0; which < consumers.size(); ++which) {
      for (int turn = 0; turn < 2; ++turn) {
        const Sample sample = pull(consumers[which]->appsink());
        ASSERT_TRUE(sample) << which << " in round " << round << ", turn " << turn;
        (void)check(gst_sample_get_buffer(sample.get()));
        ++seen[which];
      }
    }
  }
  EXPECT_THAT(seen, testing::Each(testing::Gt(10U)));
}

// A flush takes frames with their metas; a larger frame comes through another ring, at another server.
TEST_F(LinkMetas, SurviveFlushesAndRings) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer(to_appsink("on-lost=eos") + " max-buffers=1");
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  const auto size_of = [](std::uint64_t n) { return frame_size * (n / 10 * 9 + 1); };
  const Pad pad(gst_element_get_static_pad(producer.element("in"), "src"));
  for (std::uint64_t n = 1; n < 60; ++n) {
    if (n % 20 == 7) {
      gst_pad_push_event(pad.get(), gst_event_new_flush_start());
      gst_pad_push_event(pad.get(), gst_event_new_flush_stop(TRUE));
      GstSegment segment;
      gst_segment_init(&segment, GST_FORMAT_TIME);
      gst_pad_push_event(pad.get(), gst_event_new_segment(&segment));
    }
    Buffer buffer = new_buffer(random_data(size_of(n), n), n * GST_MSECOND);
    give_metas(buffer.get(), n);
    ASSERT_EQ(gst_pad_push(pad.get(), buffer.release()), GST_FLOW_OK);
    if (n % 10 < 3) continue;  // some are on their way when the ring changes, or the flush comes
    for (std::uint64_t seen = 0; seen < n;) {
      const Sample sample = pull(consumer.appsink());
      ASSERT_TRUE(sample) << "frame " << n;
      GstBuffer* got = gst_sample_get_buffer(sample.get());
      seen = check(got, size_of(GST_BUFFER_PTS(got) / GST_MSECOND));
    }
  }
  EXPECT_EQ(consumer.error(), "");
}

TEST_F(LinkMetas, OfAnotherProcess) {
  if (sanitized) GTEST_SKIP() << "gst-launch-1.0 has no sanitizer's run time";
  Launched producer(
      "videotestsrc num-buffers=30 ! video/x-raw,format=NV12,width=33,height=7,framerate=30/1 ! timecodestamper ! "
      "gpumapsink wait-for-connection=true " +
      socket());
  Pipeline consumer(to_appsink());
  start(consumer);
  guint frames = 0;
  while (const Sample sample = pull(consumer.appsink())) {
    const auto* meta = gst_buffer_get_video_time_code_meta(gst_sample_get_buffer(sample.get()));
    ASSERT_NE(meta, nullptr) << "frame " << frames;
    EXPECT_EQ(meta->tc.frames, frames++);
    EXPECT_EQ(meta->tc.config.fps_n, 30U);
  }
  EXPECT_EQ(frames, 30U);
  EXPECT_TRUE(producer.succeeded());
}

TEST_F(LinkMetas, PlanesOfAudio) {
  for (const int channels : {1, 2, 3, 70}) {
    SCOPED_TRACE(channels);
    Pipeline producer(from_appsrc());
    const std::string media =
        "audio/x-raw,format=F32LE,layout=non-interleaved,rate=48000,channel-mask=(bitmask)0,channels=";
    gst_app_src_set_caps(producer.appsrc(), new_caps(media + std::to_string(channels)).get());
    start(producer);
    const auto push_one = [&](std::uint64_t n) {
      EXPECT_TRUE(push(producer.appsrc(), planar_audio(channels, 99 + n, n)));
    };
    push_one(0);
    Pipeline consumer(to_appsink());
    start(consumer);
    ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
    push_one(1);
    push_eos(producer);
    std::string last;
    while (const Sample sample = pull(consumer.appsink())) last = metas_of(gst_sample_get_buffer(sample.get()));
    const Buffer wanted = planar_audio(channels, 100, 1);
    EXPECT_EQ(last, metas_of(wanted.get()));
    EXPECT_EQ(producer.wait(), "eos");
  }
}

/// Of 32x4 pixels.
Buffer picture(GstVideoFormat format, std::vector<gsize> offset, std::vector<gint> stride, std::size_t bytes) {
  Buffer buffer = new_buffer(random_data(bytes, 3), 0);
  gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, format, 32, 4,
                                 static_cast<guint>(offset.size()), offset.data(), stride.data());
  return buffer;
}

// Rows from below, of a palette and tiles: where they lie is known here as well as there.
TEST_F(LinkMetas, RowsOfAnyDirectionAndTilesCross) {
  struct Case {
    GstVideoFormat format;
    std::vector<gsize> offset;
    std::vector<gint> stride;
    std::size_t bytes;
  };
  for (const Case& one :
       {Case{GST_VIDEO_FORMAT_RGBA, {432}, {-144}, 576}, Case{GST_VIDEO_FORMAT_RGB8P, {0, 192}, {48, 4}, 192 + 1024},
        Case{GST_VIDEO_FORMAT_GRAY8, {1}, {40}, 153},
        Case{GST_VIDEO_FORMAT_NV12_4L4,
             {0, 0},
             {static_cast<gint>(GST_VIDEO_TILE_MAKE_STRIDE(9, 2)), static_cast<gint>(GST_VIDEO_TILE_MAKE_STRIDE(9, 2))},
             288}}) {
    SCOPED_TRACE(gst_video_format_to_string(one.format));
    Pipeline producer(from_appsrc("wait-for-connection=true"));
    start(producer);
    Pipeline consumer(to_appsink());
    start(consumer);
    EXPECT_TRUE(push(producer.appsrc(), picture(one.format, one.offset, one.stride, one.bytes)));
    const Sample sample = pull(consumer.appsink());
    ASSERT_TRUE(sample) << consumer.error() << producer.error();
    const GstVideoMeta* meta = gst_buffer_get_video_meta(gst_sample_get_buffer(sample.get()));
    ASSERT_NE(meta, nullptr);
    EXPECT_EQ(meta->format, one.format);
    for (std::size_t plane = 0; plane < one.offset.size(); ++plane) {
      EXPECT_EQ(meta->offset[plane], one.offset[plane]);
      EXPECT_EQ(meta->stride[plane], one.stride[plane]);
    }
    EXPECT_EQ(producer.error(), "");
  }
}

TEST_F(LinkMetas, AFrameWhoseRowsLieElsewhereIsAnError) {
  Pipeline producer(from_appsrc());
  start(producer);
  EXPECT_TRUE(push(producer.appsrc(), picture(GST_VIDEO_FORMAT_RGBA, {0}, {-128}, 512)));
  EXPECT_THAT(producer.wait(), testing::HasSubstr("put videoconvert before"));
}

TEST_F(LinkMetas, EachPictureOfAFrameHasItsMeta) {
  Pipeline producer(from_appsrc("wait-for-connection=true"));
  start(producer);
  Pipeline consumer(to_appsink());
  start(consumer);
  Buffer buffer = picture(GST_VIDEO_FORMAT_GRAY8, {0}, {32}, 256);
  gsize offset[GST_VIDEO_MAX_PLANES] = {128};
  gint stride[GST_VIDEO_MAX_PLANES] = {32};
  constexpr auto flags =
      static_cast<GstVideoFrameFlags>(GST_VIDEO_FRAME_FLAG_MULTIPLE_VIEW | GST_VIDEO_FRAME_FLAG_FIRST_IN_BUNDLE);
  gst_buffer_add_video_meta_full(buffer.get(), flags, GST_VIDEO_FORMAT_GRAY8, 32, 4, 1, offset, stride)->id = 1;
  constexpr guint buffer_flags = GST_BUFFER_FLAG_SYNC_AFTER | GST_BUFFER_FLAG_NON_DROPPABLE |
                                 GST_BUFFER_FLAG_DECODE_ONLY | GST_VIDEO_BUFFER_FLAG_MULTIPLE_VIEW |
                                 GST_VIDEO_BUFFER_FLAG_FIRST_IN_BUNDLE;
  GST_BUFFER_FLAG_SET(buffer.get(), buffer_flags);
  EXPECT_TRUE(push(producer.appsrc(), std::move(buffer)));
  const Sample sample = pull(consumer.appsink());
  ASSERT_TRUE(sample);
  GstBuffer* got = gst_sample_get_buffer(sample.get());
  EXPECT_EQ(GST_BUFFER_FLAGS(got) & buffer_flags, buffer_flags);
  const GstVideoMeta* first = gst_buffer_get_video_meta(got);
  const GstVideoMeta* second = gst_buffer_get_video_meta_id(got, 1);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(first->id, 0);
  EXPECT_EQ(first->flags, GST_VIDEO_FRAME_FLAG_NONE);
  EXPECT_EQ(second->flags, flags);
  EXPECT_EQ(second->offset[0], 128U);
}

/// Of regions whose types nobody has named before, as a producer writes them.
LinkText note_of_new_names(std::uint64_t frame) {
  LinkText note;
  for (std::uint64_t n = 0; n < 50; ++n) {
    LinkText region(24);  // a place, and two numbers
    put_text(region, std::string(200, 'n') + std::to_string(frame) + "-" + std::to_string(n));
    note.push_back(std::byte{4});
    put(note, static_cast<std::uint32_t>(region.size()));
    note.insert(note.end(), region.begin(), region.end());
  }
  return note;
}

// The thread that takes the frames has no lock of the connection while it says what it left out.
TEST_F(LinkMetas, WhoIsToldThatNamesAreLeftOutMayAskTheProducer) {
  OwnProducer producer(path);
  producer.send(gst_event_new_stream_start("mine"));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  producer.send(gst_event_new_segment(&segment));
  std::atomic<bool> answered{false};
  Pipeline consumer("gpumapsrc name=src " + socket() + " ! fakesink async=false sync=false");
  const Ptr<GstBus> bus(gst_element_get_bus(consumer.get()));
  gst_bus_set_sync_handler(
      bus.get(),
      [](GstBus*, GstMessage* message, gpointer told) {
        if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_WARNING) return GST_BUS_PASS;
        const Pad pad(gst_element_get_static_pad(GST_ELEMENT(GST_MESSAGE_SRC(message)), "src"));
        const Ptr<GstQuery> query(gst_query_new_duration(GST_FORMAT_TIME));
        (void)gst_pad_query(pad.get(), query.get());
        *static_cast<std::atomic<bool>*>(told) = true;
        return GST_BUS_PASS;
      },
      &answered, nullptr);
  start(consumer);
  for (std::uint64_t n = 0; n < 2'000 && !answered && !HasFailure(); ++n) producer.show(note_of_new_names(n));
  EXPECT_TRUE(answered);
}

}  // namespace
}  // namespace gpumap::gst::test
