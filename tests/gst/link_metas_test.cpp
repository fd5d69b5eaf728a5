// SPDX-License-Identifier: MIT
// Metas between two processes: each arrives with its frame and with no other, whatever a client misses.
#include <gmock/gmock.h>
#include <gst/audio/audio.h>
#include <gst/video/video.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/link.hpp"
#include "gst/channel/meta_text.hpp"
#include "launched.hpp"
#include "link_sides.hpp"
#include "link_written.hpp"
#include "pipeline.hpp"

// Metas of frames by their number, and what a frame's metas say as text.
namespace gpumap::gst::test {

inline constexpr const char* custom_name = "GpumapLinkTestMeta";
/// Some elements keep what they know of a frame in a meta of their own: it stays in its process.
inline constexpr const char* private_name = "GpumapLinkTestPrivate";

inline void register_metas() {
  static const gchar* tags[] = {nullptr};
  static const auto* const custom = gst_meta_register_custom(custom_name, tags, nullptr, nullptr, nullptr);
  static const auto* const hidden = gst_meta_register(
      gst_meta_api_type_register("GpumapLinkTestPrivateAPI", tags), private_name, sizeof(GstMeta),
      [](GstMeta*, gpointer, GstBuffer*) -> gboolean { return TRUE; }, nullptr,
      [](GstBuffer*, GstMeta*, GstBuffer*, GQuark, gpointer) -> gboolean { return TRUE; });
  ASSERT_NE(custom, nullptr);
  ASSERT_NE(hidden, nullptr);
}

/// Those of frame `n`: every third has none.
inline void give_metas(GstBuffer* buffer, std::uint64_t n) {
  const auto small = static_cast<guint>(n % 20);
  if (n % 3 == 0) return;
  for (const char* const clock : {"timestamp/x-unix", "timestamp/x-ntp,mine=(string)\"a, b\""}) {
    gst_buffer_add_reference_timestamp_meta(buffer, new_caps(clock).get(), 1718000000000000000 + n,
                                            n % 2 == 0 ? n : GST_CLOCK_TIME_NONE);
  }
  GstVideoCropMeta* crop = gst_buffer_add_video_crop_meta(buffer);
  crop->x = small;
  crop->y = 2 * small;
  crop->width = 7;
  crop->height = 9 + small;
  for (guint region = 0; region < small; ++region) {
    auto* roi = gst_buffer_add_video_region_of_interest_meta(buffer, region % 2 == 0 ? "face" : "käse", region, small,
                                                             30, 40 + small);
    roi->id = static_cast<gint>(n);
    roi->parent_id = -static_cast<gint>(region);
    for (guint param = 0; param < region % 3; ++param) {
      gst_video_region_of_interest_meta_add_param(
          roi, gst_structure_new("detection", "score", G_TYPE_DOUBLE, 1.0 / (small + 1), "label", G_TYPE_STRING,
                                 "a [b] {c} <d>", nullptr));
    }
  }
  GDateTime* jam = g_date_time_new_from_iso8601("2026-02-03T04:05:06.789012+05:30", nullptr);
  const GstVideoTimeCodeFlags flags =
      n % 2 == 0 ? GST_VIDEO_TIME_CODE_FLAGS_NONE : GST_VIDEO_TIME_CODE_FLAGS_INTERLACED;
  GstVideoTimeCode* code = gst_video_time_code_new(25, 1, n % 5 == 0 ? nullptr : jam, flags, 23, small, 59, small, 1);
  gst_buffer_add_video_time_code_meta(buffer, code);
  gst_video_time_code_free(code);
  g_date_time_unref(jam);
  GstStructure* structure = gst_custom_meta_get_structure(gst_buffer_add_custom_meta(buffer, custom_name));
  gst_structure_set(structure, "n", G_TYPE_UINT64, n, "text", G_TYPE_STRING, "x, y=(int){ 1 }", nullptr);
}

inline std::string taken(gchar* text) {
  std::string copy = text != nullptr ? text : "none";
  g_free(text);
  return copy;
}

inline std::string text_of_meta(GstMeta* meta) {
  const GType api = meta->info->api;
  std::string text = g_type_name(meta->info->type);
  const auto add = [&](const auto&... values) { ((text += " " + std::to_string(values)), ...); };
  if (api == GST_REFERENCE_TIMESTAMP_META_API_TYPE) {
    const auto& one = *reinterpret_cast<GstReferenceTimestampMeta*>(meta);
    add(one.timestamp, one.duration);
    text += taken(gst_caps_to_string(one.reference));
  } else if (api == GST_VIDEO_CROP_META_API_TYPE) {
    const auto& one = *reinterpret_cast<GstVideoCropMeta*>(meta);
    add(one.x, one.y, one.width, one.height);
  } else if (api == GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE) {
    const auto& one = *reinterpret_cast<GstVideoRegionOfInterestMeta*>(meta);
    add(one.x, one.y, one.w, one.h, one.id, one.parent_id);
    text += one.roi_type != 0 ? g_quark_to_string(one.roi_type) : "";
    for (GList* param = one.params; param != nullptr; param = param->next) {
      text += taken(gst_structure_to_string(static_cast<GstStructure*>(param->data)));
    }
  } else if (api == GST_VIDEO_TIME_CODE_META_API_TYPE) {
    const GstVideoTimeCode& one = reinterpret_cast<GstVideoTimeCodeMeta*>(meta)->tc;
    GDateTime* const jam = one.config.latest_daily_jam;
    add(one.config.fps_n, one.config.fps_d, static_cast<int>(one.config.flags), one.hours, one.minutes, one.seconds,
        one.frames, one.field_count);
    text += jam != nullptr ? taken(g_date_time_format_iso8601(jam)) : "";
  } else if (api == GST_AUDIO_META_API_TYPE) {
    const auto& one = *reinterpret_cast<GstAudioMeta*>(meta);
    add(static_cast<int>(GST_AUDIO_INFO_FORMAT(&one.info)), one.info.rate, one.info.channels,
        static_cast<int>(one.info.layout), static_cast<int>(one.info.flags), one.samples);
    for (int channel = 0; channel < one.info.channels; ++channel) {
      if (channel < 64) add(static_cast<int>(one.info.position[channel]));
      if (one.info.layout == GST_AUDIO_LAYOUT_NON_INTERLEAVED) add(one.offsets[channel]);
    }
  } else if (gst_meta_info_is_custom(meta->info) != 0) {
    text += taken(gst_structure_to_string(gst_custom_meta_get_structure(reinterpret_cast<GstCustomMeta*>(meta))));
  }
  return text;
}

inline std::string metas_of(GstBuffer* buffer) {
  std::vector<std::string> lines;
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(buffer, &state)) lines.push_back(text_of_meta(meta) + "\n");
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}
inline std::string metas_of_frame(std::uint64_t n) {
  const Buffer wanted(gst_buffer_new());
  give_metas(wanted.get(), n);
  return metas_of(wanted.get());
}

/// Of `channels` planes in any order, with a gap behind each.
inline Buffer planar_audio(int channels, std::size_t samples, std::uint64_t seed) {
  constexpr std::size_t gap = 24;
  const std::size_t plane = samples * sizeof(float);
  Buffer buffer = new_buffer(random_data(static_cast<std::size_t>(channels) * (plane + gap), seed), 0);
  GstAudioInfo info;
  gst_audio_info_set_format(&info, GST_AUDIO_FORMAT_F32LE, 48000, channels, nullptr);
  info.layout = GST_AUDIO_LAYOUT_NON_INTERLEAVED;
  std::vector<gsize> offsets;
  for (int channel = 0; channel < channels; ++channel) {
    offsets.push_back(static_cast<std::size_t>(channels - 1 - channel) * (plane + gap));
  }
  gst_buffer_add_audio_meta(buffer.get(), &info, samples, offsets.data());
  return buffer;
}

}  // namespace gpumap::gst::test

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

// The application may flush in its handler of the error.
TEST_F(LinkMetas, AFrameWhoseRowsLieElsewhereIsAnError) {
  Pipeline producer(from_appsrc());
  const Ptr<GstBus> bus(gst_element_get_bus(producer.get()));
  gst_bus_set_sync_handler(
      bus.get(),
      [](GstBus*, GstMessage* message, gpointer) {
        if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_ERROR) return GST_BUS_PASS;
        const Pad in(gst_element_get_static_pad(GST_ELEMENT(GST_MESSAGE_SRC(message)), "sink"));
        EXPECT_TRUE(gst_pad_send_event(in.get(), gst_event_new_flush_start()));
        EXPECT_TRUE(gst_pad_send_event(in.get(), gst_event_new_flush_stop(TRUE)));
        return GST_BUS_PASS;
      },
      nullptr, nullptr);
  start(producer);
  EXPECT_TRUE(push(producer.appsrc(), picture(GST_VIDEO_FORMAT_RGBA, {0}, {-128}, 512)));
  EXPECT_THAT(producer.wait(), testing::HasSubstr("put videoconvert before"));
}

// As one that runs in a streaming thread, which cannot wait for its own end either.
TEST_F(LinkMetas, AHandlerThatStopsTheProducerInTheThreadOfTheLinkIsRefused) {
  Pipeline producer(from_appsrc());
  expect_no_stop_at_error(producer);
  start(producer);
  EXPECT_TRUE(push(producer.appsrc(), picture(GST_VIDEO_FORMAT_RGBA, {0}, {-128}, 512)));
  EXPECT_THAT(producer.wait(), testing::HasSubstr("these rows are not in it"));
  producer.stop();
}

// The link has more threads than that one: those of its servers, and the one that seeks for a client.
TEST_F(LinkMetas, SoIsOneOfASignalOrASeek) {
  struct Stop {
    GstElement* pipeline;
    std::atomic<int> refused{0};
    static void at_once(gpointer own) {
      auto& all = *static_cast<Stop*>(own);
      if (gst_element_set_state(all.pipeline, GST_STATE_NULL) == GST_STATE_CHANGE_FAILURE) ++all.refused;
    }
  };
  for (const std::string when : {"client-connected", "client-disconnected", "seek"}) {
    SCOPED_TRACE(when);
    Pipeline producer(from_appsrc());
    Stop all{producer.get()};
    const Pad in(gst_element_get_static_pad(producer.element("sink"), "sink"));
    if (when != "seek") {
      g_signal_connect_swapped(producer.element("sink"), when.c_str(), G_CALLBACK(Stop::at_once), &all);
    } else {
      gst_pad_add_probe(
          in.get(), GST_PAD_PROBE_TYPE_EVENT_UPSTREAM,
          [](GstPad*, GstPadProbeInfo* info, gpointer own) {
            if (GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_SEEK) Stop::at_once(own);
            return GST_PAD_PROBE_OK;
          },
          &all, nullptr);
    }
    start(producer);
    push_frame(producer, 0);
    {
      Pipeline consumer(to_appsink());
      start(consumer);
      ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
      const Pad out(gst_element_get_static_pad(consumer.element("src"), "src"));
      // It may be connected, and not yet hand on what goes upstream.
      const auto is_refused = [&] {
        gst_pad_send_event(out.get(), gst_event_new_seek(1, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET, 0,
                                                         GST_SEEK_TYPE_NONE, -1));
        return all.refused > 0;
      };
      EXPECT_TRUE(when != "seek" || eventually(is_refused));
    }
    EXPECT_TRUE(eventually([&] { return all.refused > 0; }));
    producer.stop();
  }
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

// What a peer writes in the place of metas is not believed; what cannot be written is left out.

struct MetaTexts : testing::Test {
  void SetUp() override { register_metas(); }
};

constexpr std::uint64_t plenty = 1U << 20U;

/// What a peer's text adds to a frame of `bytes`; "refused: " ahead of it where some of it was.
std::string read_from(const LinkText& text, std::uint64_t bytes = plenty) {
  const Buffer carrier(gst_buffer_new());
  NewNames names;
  const bool all = add_metas(carrier.get(), text, bytes, names);
  EXPECT_EQ(gst_buffer_n_memory(carrier.get()), 0U);
  return (all ? "" : "refused: ") + metas_of(carrier.get());
}

TEST_F(MetaTexts, WithoutAnyThereIsNothingToSay) {
  const Buffer buffer = new_buffer(random_data(100, 1));
  gst_buffer_add_video_meta(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_GRAY8, 10, 10);
  const MetaText text = text_of_metas(buffer.get(), max_link_note);
  EXPECT_TRUE(text.text.empty());
  EXPECT_EQ(text.left_out, 0U);
  EXPECT_EQ(read_from(text.text), "");
}

TEST_F(MetaTexts, WhatCannotBeWrittenOrHasNoRoomIsLeftOut) {
  const Buffer buffer(gst_buffer_new());
  gst_buffer_add_meta(buffer.get(), gst_meta_get_info(private_name), nullptr);
  EXPECT_EQ(text_of_metas(buffer.get(), max_link_note).left_out, 1U);
  give_metas(buffer.get(), 1);
  const std::size_t whole = text_of_metas(buffer.get(), max_link_note).text.size();
  for (std::size_t most = 0; most < whole; most += 13) {
    const MetaText text = text_of_metas(buffer.get(), most);
    EXPECT_LE(text.text.size(), most);
    EXPECT_GT(text.left_out, 1U);
    EXPECT_EQ(read_from(text.text).find("refused"), std::string::npos) << "the rest is whole";
  }
}

// What is written of it takes no more than the room that is left.
TEST_F(MetaTexts, ARegionCrossesWithTheParametersThatHaveRoom) {
  const Buffer buffer(gst_buffer_new());
  GstVideoRegionOfInterestMeta* region = gst_buffer_add_video_region_of_interest_meta(buffer.get(), "face", 1, 2, 3, 4);
  const std::string long_one(1000, 'x');
  for (int n = 0; n < 40; ++n) {
    gst_video_region_of_interest_meta_add_param(
        region, gst_structure_new("param", "text", G_TYPE_STRING, long_one.c_str(), nullptr));
  }
  const MetaText text = text_of_metas(buffer.get(), max_link_note);
  EXPECT_EQ(text.left_out, 1U) << "in part";
  const Buffer carrier(gst_buffer_new());
  NewNames names;
  EXPECT_TRUE(add_metas(carrier.get(), text.text, plenty, names));
  const GstVideoRegionOfInterestMeta* got = gst_buffer_get_video_region_of_interest_meta_id(carrier.get(), 0);
  ASSERT_NE(got, nullptr);
  const auto whole = [](const GstStructure* one) { return gst_structure_has_field(one, "text") != 0; };
  guint params = 0;
  for (const GList* at = got->params; at != nullptr; at = at->next) {
    params += whole(static_cast<const GstStructure*>(at->data)) ? 1U : 0U;
  }
  EXPECT_GE(params, 14U);
  EXPECT_LT(params, 17U);
}

TEST_F(MetaTexts, ARegionWithoutATypeCrosses) {
  const Buffer buffer(gst_buffer_new());
  gst_buffer_add_video_region_of_interest_meta_id(buffer.get(), 0, 1, 2, 3, 4);
  const Buffer carrier(gst_buffer_new());
  NewNames names;
  EXPECT_TRUE(add_metas(carrier.get(), text_of_metas(buffer.get(), max_link_note).text, plenty, names));
  const GstVideoRegionOfInterestMeta* got = gst_buffer_get_video_region_of_interest_meta_id(carrier.get(), 0);
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->roi_type, 0U);
  EXPECT_EQ(got->h, 4U);
}

LinkText text_of_one(const std::function<void(GstBuffer*)>& add) {
  const Buffer buffer(gst_buffer_new());
  add(buffer.get());
  return text_of_metas(buffer.get(), max_link_note).text;
}
LinkText text_of_crop(guint x, guint y, guint width, guint height) {
  return text_of_one([&](GstBuffer* buffer) {
    GstVideoCropMeta* crop = gst_buffer_add_video_crop_meta(buffer);
    crop->x = x;
    crop->y = y;
    crop->width = width;
    crop->height = height;
  });
}

TEST_F(MetaTexts, WhatCannotBeTrueIsRefused) {
  const auto refused = [](const LinkText& text, std::uint64_t bytes = plenty) {
    return read_from(text, bytes) == "refused: ";
  };
  EXPECT_FALSE(refused(text_of_crop(1, 2, 3, 4)));
  EXPECT_TRUE(refused(text_of_crop(~0U, 2, 3, 4)));
  EXPECT_TRUE(refused(text_of_crop(1, 2, 3, G_MAXINT)));
  const auto region = [](guint x, guint h) {
    return text_of_one(
        [&](GstBuffer* buffer) { gst_buffer_add_video_region_of_interest_meta(buffer, "face", x, 1, 2, h); });
  };
  EXPECT_FALSE(refused(region(1, 2)));
  EXPECT_TRUE(refused(region(~0U, 2)));
  EXPECT_TRUE(refused(region(1, ~0U)));
  const auto reference = [](GstCaps* caps) {
    return text_of_one([&](GstBuffer* buffer) { gst_buffer_add_reference_timestamp_meta(buffer, caps, 1, 2); });
  };
  EXPECT_FALSE(refused(reference(new_caps("timestamp/x-unix").get())));
  EXPECT_TRUE(refused(reference(new_caps("ANY").get())));
  EXPECT_TRUE(refused(reference(new_caps("EMPTY").get())));
}

template <typename Value>
LinkText patched(LinkText text, std::size_t at, Value value) {
  std::memcpy(&text.at(at), &value, sizeof value);
  return text;
}

TEST_F(MetaTexts, PlanesThatCannotBeAreRefused) {
  // A kind, a length; format, rate, channels, layout, samples; positions; offsets.
  constexpr std::size_t format = 5, rate = 9, channels = 13, layout = 17, samples = 21, positions = 29, offsets = 41;
  constexpr std::uint64_t bytes = std::uint64_t{3} * (100 * 4 + 24);
  const Buffer audio = planar_audio(3, 100, 1);
  const LinkText text = text_of_metas(audio.get(), max_link_note).text;
  const auto refused = [&](const LinkText& one) { return read_from(one, bytes) == "refused: "; };
  EXPECT_FALSE(refused(text));
  EXPECT_EQ(read_from(text, bytes - 25), "refused: ") << "a frame that is too short";
  for (const int lie : {-1, 0, 1, 100000, G_MAXINT, G_MININT}) EXPECT_TRUE(refused(patched(text, format, lie))) << lie;
  for (const int lie : {-1, 0}) EXPECT_TRUE(refused(patched(text, rate, lie))) << lie;
  for (const int lie : {-1, 0, 2, 4, 64, 65, 1024, 1025, G_MAXINT}) EXPECT_TRUE(refused(patched(text, channels, lie)));
  for (const int lie : {-1, 0, 2}) EXPECT_TRUE(refused(patched(text, layout, lie))) << lie;
  for (const std::uint64_t lie : {std::uint64_t{107}, ~std::uint64_t{0}, std::uint64_t{1} << 62U}) {
    EXPECT_TRUE(refused(patched(text, samples, lie))) << lie;
  }
  for (const int lie : {-2, 1, 63, 64, G_MAXINT, G_MININT}) EXPECT_TRUE(refused(patched(text, positions, lie))) << lie;
  for (const std::uint64_t lie : {std::uint64_t{1}, bytes - 399, ~std::uint64_t{0}, ~std::uint64_t{0} - 399}) {
    EXPECT_TRUE(refused(patched(text, offsets, lie))) << lie;
  }
}

TEST_F(MetaTexts, TimeCodesThatCannotBeAreRefused) {
  constexpr std::size_t fps_n = 5, fps_d = 9, flags = 13, hours = 17, frames = 29, jam = 37;
  const LinkText text = text_of_one([](GstBuffer* buffer) {
    GDateTime* when = g_date_time_new_from_iso8601("2026-02-03T04:05:06Z", nullptr);
    GstVideoTimeCode* code = gst_video_time_code_new(25, 1, when, GST_VIDEO_TIME_CODE_FLAGS_NONE, 23, 2, 59, 24, 0);
    gst_buffer_add_video_time_code_meta(buffer, code);
    gst_video_time_code_free(code);
    g_date_time_unref(when);
  });
  const auto refused = [](const LinkText& one) { return read_from(one) == "refused: "; };
  EXPECT_FALSE(refused(text));
  EXPECT_TRUE(refused(patched(text, fps_n, 0U)));
  EXPECT_TRUE(refused(patched(text, fps_d, 0U)));
  EXPECT_TRUE(refused(patched(text, flags, 4U)));
  EXPECT_TRUE(refused(patched(text, hours, 25U)));
  EXPECT_TRUE(refused(patched(text, frames, 25U)));
  EXPECT_TRUE(refused(patched(text, jam, 'x')));
}

TEST_F(MetaTexts, OfNoneThatIsKnownHereIsNothing) {
  const auto custom = [](const std::string& name, const std::string& structure) {
    LinkText text(5);
    text[0] = std::byte{6};
    put_text(text, name);
    if (!structure.empty()) (void)put_structure(text, parsed(structure).get(), max_link_note);
    return patched(text, 1, static_cast<std::uint32_t>(text.size() - 5));
  };
  EXPECT_EQ(read_from(custom(custom_name, "x, n=(int)1")), std::string(custom_name) + custom_name + ", n=(int)1;\n");
  EXPECT_EQ(read_from(custom("NobodyKnowsIt", "x, n=(int)1")), "");
  EXPECT_EQ(read_from(custom("GstVideoCropMeta", "x, n=(int)1")), "refused: ") << "it is not that kind";
  EXPECT_EQ(read_from(custom(custom_name, "")), "refused: ");
}

#if GST_CHECK_VERSION(1, 24, 0)
struct CountMeta {
  GstMeta meta;
  guint32 count;
};
/// An application's, with a writer and a reader of its own.
const GstMetaInfo* count_meta() {
  static const GstMetaInfo* const registered = [] {
    static const gchar* tags[] = {nullptr};
    GstMetaInfo* info = gst_meta_info_new(gst_meta_api_type_register("GpumapLinkTestCountAPI", tags),
                                          "GpumapLinkTestCount", sizeof(CountMeta));
    info->init_func = [](GstMeta*, gpointer, GstBuffer*) -> gboolean { return TRUE; };
    info->serialize_func = [](const GstMeta* meta, GstByteArrayInterface* to, guint8* version) -> gboolean {
      *version = 3;
      const auto* one = reinterpret_cast<const CountMeta*>(meta);
      return gst_byte_array_interface_append_data(to, reinterpret_cast<const guint8*>(&one->count), sizeof one->count);
    };
    info->deserialize_func = [](const GstMetaInfo* mine, GstBuffer* buffer, const guint8* data, gsize size,
                                guint8 version) -> GstMeta* {
      if (version != 3 || size != sizeof(guint32)) return nullptr;
      auto* one = reinterpret_cast<CountMeta*>(gst_buffer_add_meta(buffer, mine, nullptr));
      std::memcpy(&one->count, data, sizeof one->count);
      return &one->meta;
    };
    return gst_meta_info_register(info);
  }();
  return registered;
}

TEST_F(MetaTexts, OthersCrossWhereTheyCanBeSerialised) {
  const LinkText text = text_of_one([](GstBuffer* buffer) {
    reinterpret_cast<CountMeta*>(gst_buffer_add_meta(buffer, count_meta(), nullptr))->count = 1234567;
  });
  const Buffer carrier(gst_buffer_new());
  NewNames names;
  ASSERT_TRUE(add_metas(carrier.get(), text, plenty, names));
  const auto* read = reinterpret_cast<CountMeta*>(gst_buffer_get_meta(carrier.get(), count_meta()->api));
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->count, 1234567U);
  // GStreamer's head: a total length, the name's, the name, a version.
  constexpr std::size_t total = 5, name_length = 9, name = 13;
  for (const std::uint32_t lie : {0U, 1U, 100U, ~0U, ~0U - 9}) {
    EXPECT_EQ(read_from(patched(text, total, lie)), "refused: ") << lie;
    EXPECT_EQ(read_from(patched(text, name_length, lie)), "refused: ") << lie;
  }
  EXPECT_EQ(read_from(patched(text, name, 'X')), "") << "nobody here knows it";
  EXPECT_EQ(read_from(patched(text, name + std::strlen("GpumapLinkTestCount") + 1, '\4')), "refused: ") << "a version";
}
#endif

// Anything, and what is nearly right, leaves nothing that cannot be.
TEST_F(MetaTexts, NoBytesDoAnyHarm) {
  const Buffer buffer(gst_buffer_new());
  give_metas(buffer.get(), 19);
  const LinkText metas = text_of_metas(buffer.get(), max_link_note).text;
  const Buffer planes = planar_audio(5, 100, 1);
  const LinkText audio = text_of_metas(planes.get(), max_link_note).text;
  std::mt19937 random(3);
  const auto below = [&](std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); };
  NewNames names;
  std::size_t whole = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    LinkText text = turn % 3 == 0 ? audio : metas;
    if (turn % 3 == 2) {  // one record of them, so that more of its fields are hit
      std::size_t at = 0;
      for (std::size_t skip = below(8); skip > 0 && at < text.size(); --skip) {
        std::uint32_t length = 0;
        std::memcpy(&length, &text[at + 1], sizeof length);
        at += 5 + length;
      }
      text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(at, text.size() - 1)));
    }
    for (std::size_t changes = below(4); changes > 0; --changes) {
      text[below(text.size())] = static_cast<std::byte>(turn % 2 == 0 ? random() : 1U << below(8));
    }
    if (turn % 7 == 0) text.resize(below(text.size()));
    const std::uint64_t bytes = below(3000);
    const Buffer carrier(gst_buffer_new());
    whole += add_metas(carrier.get(), text, bytes, names) ? 1 : 0;
    gpointer state = nullptr;
    while (GstMeta* meta = gst_buffer_iterate_meta(carrier.get(), &state)) {
      ASSERT_NE(text_of_meta(meta), "");
      if (meta->info->api != GST_AUDIO_META_API_TYPE) continue;
      const auto& one = *reinterpret_cast<GstAudioMeta*>(meta);
      const std::uint64_t plane = one.samples * static_cast<std::uint64_t>(GST_AUDIO_INFO_WIDTH(&one.info)) / 8;
      for (int channel = 0; one.offsets != nullptr && channel < one.info.channels; ++channel) {
        ASSERT_LE(one.offsets[channel] + plane, bytes);
      }
    }
  }
  EXPECT_GT(whole, 1000U);
}

}  // namespace
}  // namespace gpumap::gst::test
