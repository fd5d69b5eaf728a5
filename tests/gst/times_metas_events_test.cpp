// SPDX-License-Identifier: MIT
// What belongs to a frame and what lies between frames crosses the ring: times, flags, metas, events, and their order.
#include <gmock/gmock.h>
#include <gst/audio/audio.h>
#include <gst/check/gstharness.h>

#include <array>
#include <mutex>
#include <random>

#include "gst/channel/channel.hpp"
#include "gst/kernel/kernel_metas.hpp"
#include "pipeline.hpp"
#include "test_frames.hpp"

namespace gpumap::gst::test {
namespace {

/// A gpumapsink to push into and a gpumapsrc, each without a pipeline; what leaves the src is recorded in order.
class Passage : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string channel = new_channel();
    in_ = gst_harness_new_parse(on_transport("gpumapsink slots=256 channel=" + channel, GetParam()).c_str());
    out_ = gst_harness_new_parse(("gpumapsrc channel=" + channel).c_str());
    gst_pad_add_probe(out_->sinkpad,
                      static_cast<GstPadProbeType>(static_cast<unsigned>(GST_PAD_PROBE_TYPE_BUFFER) |
                                                   GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM),
                      record, this, nullptr);
    gst_harness_add_propose_allocation_meta(out_, GST_VIDEO_META_API_TYPE, nullptr);
    gst_harness_play(out_);
  }
  void TearDown() override {
    gst_harness_teardown(in_);
    gst_harness_teardown(out_);
    for (GstMiniObject* object : seen_) gst_mini_object_unref(object);
  }
  static GstPadProbeReturn record(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<Passage*>(user);
    const std::lock_guard lock(self->mutex_);
    self->seen_.push_back(gst_mini_object_ref(GST_MINI_OBJECT(info->data)));
    return GST_PAD_PROBE_OK;
  }

  void send(GstEvent* event) { EXPECT_TRUE(gst_harness_push_event(in_, event)); }
  void send(Buffer buffer) { EXPECT_EQ(gst_harness_push(in_, buffer.release()), GST_FLOW_OK); }
  void open(const char* caps, const GstSegment* segment = nullptr) {
    GstSegment time;
    gst_segment_init(&time, GST_FORMAT_TIME);
    send(gst_event_new_stream_start("passage"));
    send(gst_event_new_caps(new_caps(caps).get()));
    send(gst_event_new_segment(segment != nullptr ? segment : &time));
  }

  std::size_t seen() {
    const std::lock_guard lock(mutex_);
    return seen_.size();
  }
  [[nodiscard]] bool wait_for(std::size_t count) {
    return eventually([&] { return seen() >= count; });
  }
  GstEvent* event(std::size_t at) { return GST_IS_EVENT(seen_.at(at)) ? GST_EVENT(seen_.at(at)) : nullptr; }
  GstBuffer* buffer(std::size_t at) { return GST_IS_BUFFER(seen_.at(at)) ? GST_BUFFER(seen_.at(at)) : nullptr; }
  std::string kinds() {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (GstMiniObject* object : seen_) {
      text += GST_IS_BUFFER(object) ? "frame" : gst_event_type_get_name(GST_EVENT_TYPE(GST_EVENT(object)));
      text += ' ';
    }
    return text;
  }

  GstHarness* in_ = nullptr;
  GstHarness* out_ = nullptr;
  std::mutex mutex_;
  std::vector<GstMiniObject*> seen_;
};

INSTANTIATE_TEST_SUITE_P(Transports, Passage, testing::ValuesIn(transports()), transport_name);

TEST_P(Passage, TimesOffsetsAndFlags) {
  open("application/octet-stream");
  constexpr unsigned every_flag = GST_BUFFER_FLAG_LIVE | GST_BUFFER_FLAG_DISCONT | GST_BUFFER_FLAG_RESYNC |
                                  GST_BUFFER_FLAG_CORRUPTED | GST_BUFFER_FLAG_MARKER | GST_BUFFER_FLAG_HEADER |
                                  GST_BUFFER_FLAG_GAP | GST_BUFFER_FLAG_DROPPABLE | GST_BUFFER_FLAG_DELTA_UNIT |
                                  GST_BUFFER_FLAG_NON_DROPPABLE | (GST_BUFFER_FLAG_LAST << 3);
  for (int i = 0; i < 2; ++i) {
    Buffer made = new_buffer(random_data(777, 1));
    if (i == 0) {
      GST_BUFFER_PTS(made.get()) = 12345678901;
      GST_BUFFER_DTS(made.get()) = 12345;
      GST_BUFFER_DURATION(made.get()) = 333;
      GST_BUFFER_OFFSET(made.get()) = 99;
      GST_BUFFER_OFFSET_END(made.get()) = 101;
      GST_BUFFER_FLAG_SET(made.get(), every_flag);
    }
    send(std::move(made));
  }
  ASSERT_TRUE(wait_for(5)) << kinds();
  GstBuffer* all = buffer(3);
  ASSERT_NE(all, nullptr) << kinds();
  EXPECT_EQ(GST_BUFFER_PTS(all), 12345678901U);
  EXPECT_EQ(GST_BUFFER_DTS(all), 12345U);
  EXPECT_EQ(GST_BUFFER_DURATION(all), 333U);
  EXPECT_EQ(GST_BUFFER_OFFSET(all), 99U);
  EXPECT_EQ(GST_BUFFER_OFFSET_END(all), 101U);
  EXPECT_EQ(GST_BUFFER_FLAGS(all) & every_flag, every_flag);
  GstBuffer* none = buffer(4);
  ASSERT_NE(none, nullptr);
  EXPECT_EQ(GST_BUFFER_PTS(none), GST_CLOCK_TIME_NONE);
  EXPECT_EQ(GST_BUFFER_DTS(none), GST_CLOCK_TIME_NONE);
  EXPECT_EQ(GST_BUFFER_DURATION(none), GST_CLOCK_TIME_NONE);
  EXPECT_EQ(GST_BUFFER_OFFSET(none), GST_BUFFER_OFFSET_NONE);
  EXPECT_EQ(GST_BUFFER_OFFSET_END(none), GST_BUFFER_OFFSET_NONE);
  EXPECT_EQ(GST_BUFFER_FLAGS(none) & every_flag, 0U);
}

TEST_P(Passage, Metas) {
  static const gchar* tags[] = {nullptr};
  static const GstMetaInfo* const registered =
      gst_meta_register_custom("GpumapTestMeta", tags, nullptr, nullptr, nullptr);
  ASSERT_NE(registered, nullptr);
  open("video/x-raw,format=NV12,width=33,height=7,framerate=30/1");
  Buffer made = new_buffer(random_data(5000, 3));
  gsize offset[GST_VIDEO_MAX_PLANES] = {128, 2048};
  gint stride[GST_VIDEO_MAX_PLANES] = {77, 91};
  gst_buffer_add_video_meta_full(made.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_NV12, 33, 7, 2, offset,
                                 stride);
  const Caps reference = new_caps("timestamp/x-unix");
  gst_buffer_add_reference_timestamp_meta(made.get(), reference.get(), 1718000000123456789, 40);
  GstCustomMeta* custom = gst_buffer_add_custom_meta(made.get(), "GpumapTestMeta");
  gst_structure_set(gst_custom_meta_get_structure(custom), "answer", G_TYPE_INT, 42, nullptr);
  send(std::move(made));

  ASSERT_TRUE(wait_for(4)) << kinds();
  GstBuffer* got = buffer(3);
  ASSERT_NE(got, nullptr) << kinds();
  GstVideoMeta* video = gst_buffer_get_video_meta(got);
  ASSERT_NE(video, nullptr);
  EXPECT_EQ(video->stride[1], 91);
  EXPECT_EQ(video->offset[0], 128U);
  GstReferenceTimestampMeta* stamp = gst_buffer_get_reference_timestamp_meta(got, reference.get());
  ASSERT_NE(stamp, nullptr);
  EXPECT_EQ(stamp->timestamp, 1718000000123456789U);
  EXPECT_EQ(stamp->duration, 40U);
  custom = gst_buffer_get_custom_meta(got, "GpumapTestMeta");
  ASSERT_NE(custom, nullptr);
  gint answer = 0;
  gst_structure_get_int(gst_custom_meta_get_structure(custom), "answer", &answer);
  EXPECT_EQ(answer, 42);
}

TEST_P(Passage, CapsAndSegment) {
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  segment.rate = 1.5;
  segment.applied_rate = 2.0;
  segment.start = 10 * GST_SECOND;
  segment.stop = 100 * GST_SECOND;
  segment.time = 5 * GST_SECOND;
  segment.base = 3 * GST_SECOND;
  segment.position = 11 * GST_SECOND;
  open("audio/x-raw,format=S16LE,rate=44100,channels=2,layout=interleaved", &segment);
  ASSERT_TRUE(wait_for(3));
  ASSERT_EQ(kinds(), "stream-start caps segment ");
  GstCaps* caps = nullptr;
  gst_event_parse_caps(event(1), &caps);
  EXPECT_TRUE(gst_caps_is_equal(caps, new_caps("audio/x-raw,format=S16LE,rate=44100,channels=2,"
                                               "layout=interleaved")
                                          .get()))
      << gst_caps_to_string(caps);
  const GstSegment* got = nullptr;
  gst_event_parse_segment(event(2), &got);
  EXPECT_TRUE(gst_segment_is_equal(got, &segment));
}

// Caps features that say nothing about memory cross. A pad that takes anything gets plain memory: it names no other.
TEST_P(Passage, CapsFeatures) {
  open("video/x-raw(format:Interlaced),format=NV12,width=64,height=48,interlace-mode=alternate,framerate=25/1");
  ASSERT_TRUE(wait_for(3)) << kinds();
  GstCaps* caps = nullptr;
  gst_event_parse_caps(event(1), &caps);
  const GstCapsFeatures* features = gst_caps_get_features(caps, 0);
  EXPECT_TRUE(gst_caps_features_contains(features, "format:Interlaced"));
  EXPECT_FALSE(gst_caps_features_contains(features, "memory:GPUMap"));
}

TEST_P(Passage, OrderOfEventsAndFrames) {
  open("application/octet-stream");
  send(new_buffer(random_data(10, 1)));
  send(gst_event_new_tag(gst_tag_list_new(GST_TAG_TITLE, "first light", nullptr)));
  send(new_buffer(random_data(11, 2)));
  send(new_buffer(random_data(12, 3)));
  send(gst_event_new_gap(4 * GST_SECOND, GST_SECOND));
  send(gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new("mark", "n", G_TYPE_INT, 5, nullptr)));
  send(new_buffer(random_data(70000, 4)));  // a ring with larger slots starts here
  send(gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_STICKY, gst_structure_new_empty("stays")));
  send(gst_event_new_eos());
  ASSERT_TRUE(wait_for(12)) << kinds();
  ASSERT_EQ(
      kinds(),
      "stream-start caps segment frame tag frame frame gap custom-downstream frame custom-downstream-sticky eos ");
  GstTagList* tags = nullptr;
  gst_event_parse_tag(event(4), &tags);
  gchar* title = nullptr;
  ASSERT_TRUE(gst_tag_list_get_string(tags, GST_TAG_TITLE, &title));
  EXPECT_STREQ(title, "first light");
  g_free(title);
  GstClockTime start = 0, duration = 0;
  gst_event_parse_gap(event(7), &start, &duration);
  EXPECT_EQ(start, 4 * GST_SECOND);
  EXPECT_EQ(duration, GST_SECOND);
  gint mark = 0;
  EXPECT_TRUE(gst_structure_get_int(gst_event_get_structure(event(8)), "n", &mark));
  EXPECT_EQ(mark, 5);
  for (const auto& [at, bytes] : {std::pair{3, 10}, {5, 11}, {6, 12}, {9, 70000}}) {
    EXPECT_EQ(gst_buffer_get_size(buffer(static_cast<std::size_t>(at))), static_cast<gsize>(bytes));
  }
}

// The same many times: an event is neither early nor late, whichever thread is ahead. The record holds every slot.
TEST_P(Passage, OrderHoldsUnderLoad) {
  open("application/octet-stream");
  for (int i = 0; i < 200; ++i) {
    send(gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new("n", "n", G_TYPE_INT, i, nullptr)));
    Buffer made = new_buffer(random_data(64, static_cast<std::uint64_t>(i)));
    GST_BUFFER_OFFSET(made.get()) = static_cast<guint64>(i);
    send(std::move(made));
  }
  ASSERT_TRUE(wait_for(403));
  for (std::size_t i = 0; i < 200; ++i) {
    const std::size_t at = 3 + 2 * i;
    ASSERT_TRUE(event(at) != nullptr && buffer(at + 1) != nullptr) << i;
    gint n = -1;
    gst_structure_get_int(gst_event_get_structure(event(at)), "n", &n);
    ASSERT_EQ(n, static_cast<gint>(i));
    ASSERT_EQ(GST_BUFFER_OFFSET(buffer(at + 1)), i);
  }
}

// Kernels keep what the frame carries, whether the frame is handed on or a new one is made, here or in host memory.
TEST(PassageThroughKernel, KeepsTimesFlagsAndMetas) {
  for (const char* kernel : {"checksum", "identity"}) {
    for (const char* memory : {"application/octet-stream(memory:GPUMap)", "application/octet-stream"}) {
      SCOPED_TRACE(std::string(kernel) + " into " + memory);
      Pipeline pipeline(on_new_channel(std::string("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc "
                                                   "$CHANNEL ! gpumapkernel kernel=") +
                                       kernel + " ! capsfilter caps=" + memory + " ! appsink name=out sync=false"));
      gst_app_src_set_caps(pipeline.appsrc(), new_caps("application/octet-stream").get());
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      const Data data = random_data(333, 9);
      Buffer made = new_buffer(data, 7 * GST_SECOND);
      GST_BUFFER_DTS(made.get()) = 6 * GST_SECOND;
      GST_BUFFER_DURATION(made.get()) = 5;
      GST_BUFFER_OFFSET(made.get()) = 4;
      GST_BUFFER_OFFSET_END(made.get()) = 8;
      GST_BUFFER_FLAG_SET(made.get(), GST_BUFFER_FLAG_MARKER);
      const Caps reference = new_caps("timestamp/x-unix");
      gst_buffer_add_reference_timestamp_meta(made.get(), reference.get(), 17, 40);
      push(pipeline.appsrc(), std::move(made));
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr);
      GstBuffer* got = gst_sample_get_buffer(sample.get());
      EXPECT_EQ(data_of(got) == data, true);
      EXPECT_EQ(GST_BUFFER_PTS(got), 7 * GST_SECOND);
      EXPECT_EQ(GST_BUFFER_DTS(got), 6 * GST_SECOND);
      EXPECT_EQ(GST_BUFFER_DURATION(got), 5U);
      EXPECT_EQ(GST_BUFFER_OFFSET(got), 4U);
      EXPECT_EQ(GST_BUFFER_OFFSET_END(got), 8U);
      EXPECT_TRUE(GST_BUFFER_FLAG_IS_SET(got, GST_BUFFER_FLAG_MARKER));
      GstReferenceTimestampMeta* stamp = gst_buffer_get_reference_timestamp_meta(got, reference.get());
      ASSERT_NE(stamp, nullptr);
      EXPECT_EQ(stamp->timestamp, 17U);
      if (std::string_view(kernel) == "checksum") {
        GstCustomMeta* meta = gst_buffer_get_custom_meta(got, "GpumapResult");
        ASSERT_NE(meta, nullptr);
        guint64 sum = 0;
        EXPECT_TRUE(gst_structure_get_uint64(gst_custom_meta_get_structure(meta), "checksum", &sum));
        EXPECT_EQ(sum, checksum_of(data));
      }
    }
  }
}

// What becomes of a frame's metas in a gpumapkernel, and of what its caps say of colours and fields.

using Regions = std::vector<std::array<guint, 4>>;

/// Frames of `caps` with whatever `prepare` puts on them, through gpumapkernel with `options`.
Sample through(const std::string& options, const Caps& caps, Buffer buffer) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel " + options +
                     " ! appsink name=out sync=false"));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), std::move(buffer));
  Sample sample = pull(pipeline.appsink(), 20s);
  EXPECT_NE(sample, nullptr) << options << ": " << pipeline.wait(1ms);
  return sample;
}

Buffer frame_of(const Caps& caps) {
  return new_buffer(random_data(frame_bytes(caps.get()), 4));
}

GstVideoRegionOfInterestMeta* first_region(GstBuffer* buffer) {
  return reinterpret_cast<GstVideoRegionOfInterestMeta*>(
      gst_buffer_get_meta(buffer, GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE));
}

TEST(Metas, RegionsOfInterestAreWhereThePictureIs) {
  const Caps caps = video_caps("NV12", 101, 67);
  for (const char* to : {"video/x-raw,format=RGBA,", "application/x-tensor,", "video/x-raw(memory:GPUMap),"}) {
    Buffer buffer = frame_of(caps);
    GstVideoRegionOfInterestMeta* region =
        gst_buffer_add_video_region_of_interest_meta(buffer.get(), "face", 20, 15, 40, 30);
    region->id = 7;
    region->parent_id = 3;
    gst_video_region_of_interest_meta_add_param(region,
                                                gst_structure_new("detection", "score", G_TYPE_INT, 9, nullptr));
    // Of the part from (11,5) on, of 50 by 40, every pixel becomes 2 by 3.
    const Sample sample =
        through(std::string("kernel=convert params=crop=[11,5,50,40] ! ") + to + "width=100,height=120", caps,
                std::move(buffer));
    ASSERT_NE(sample, nullptr);
    GstBuffer* out = gst_sample_get_buffer(sample.get());
    const GstVideoRegionOfInterestMeta* moved = first_region(out);
    ASSERT_NE(moved, nullptr) << to;
    EXPECT_EQ((std::array{moved->x, moved->y, moved->w, moved->h}), (std::array{18U, 30U, 80U, 90U})) << to;
    EXPECT_EQ(moved->id, 7);
    EXPECT_EQ(moved->parent_id, 3);
    EXPECT_EQ(g_quark_to_string(moved->roi_type), std::string("face"));
    EXPECT_NE(
        gst_video_region_of_interest_meta_get_param(const_cast<GstVideoRegionOfInterestMeta*>(moved), "detection"),
        nullptr);
    EXPECT_EQ(gst_buffer_get_n_meta(out, GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE), 1U);
  }
  for (const char* same : {"kernel=identity", "kernel=checksum", "kernel=convert"}) {
    Buffer buffer = frame_of(caps);
    gst_buffer_add_video_region_of_interest_meta(buffer.get(), "face", 20, 15, 40, 30);
    const Sample sample = through(same, caps, std::move(buffer));
    ASSERT_NE(sample, nullptr);
    const GstVideoRegionOfInterestMeta* kept = first_region(gst_sample_get_buffer(sample.get()));
    ASSERT_NE(kept, nullptr) << same;
    EXPECT_EQ((std::array{kept->x, kept->y, kept->w, kept->h}), (std::array{20U, 15U, 40U, 30U})) << same;
  }
}

// A part of a region, whatever its place, never reaches out of the picture; one outside is none.
TEST(Metas, RegionsAreCutAtTheCropsEdge) {
  std::mt19937 random(5);
  const auto below = [&random](guint end) { return std::uniform_int_distribution<guint>(0, end - 1)(random); };
  const MetaRule::Picture picture{.x = 13, .y = 7, .shown_width = 40, .shown_height = 21, .width = 33, .height = 99};
  int gone = 0;
  for (int i = 0; i < 2000; ++i) {
    Buffer in(gst_buffer_new()), out(gst_buffer_new());
    const guint x = below(100), y = below(60), w = below(60), h = below(60);
    gst_buffer_add_video_region_of_interest_meta(in.get(), "face", x, y, w, h);
    copy_metas(out.get(), in.get(), {.keeps_bytes = false, .keeps_colors = false, .picture = picture});
    const GstVideoRegionOfInterestMeta* moved = first_region(out.get());
    const bool shown = x < 53 && x + w > 13 && y < 28 && y + h > 7 && w > 0 && h > 0;
    ASSERT_EQ(moved != nullptr, shown) << x << "," << y << " " << w << "x" << h;
    gone += shown ? 0 : 1;
    if (moved == nullptr) continue;
    EXPECT_LE(moved->x + moved->w, 33U);
    EXPECT_LE(moved->y + moved->h, 99U);
    EXPECT_EQ(moved->x, x < 13 ? 0 : (x - 13) * 33 / 40);
  }
  EXPECT_GT(gone, 100);
}

TEST(Metas, OfColoursGoWithTheColours) {
  static const gchar* tags[] = {"video", "colorspace", nullptr};
  gst_meta_register_custom("GpumapTestColours", tags, nullptr, nullptr, nullptr);
  const Caps caps = video_caps("NV12", 33, 7);
  const std::pair<const char*, bool> cases[] = {
      {"kernel=identity", true},
      {"kernel=checksum", true},
      {"location=" GPUMAP_EXAMPLES "/kernels/invert.comp", true},
      {"kernel=convert", false},
  };
  for (const auto& [options, kept] : cases) {
    Buffer buffer = frame_of(caps);
    gst_buffer_add_custom_meta(buffer.get(), "GpumapTestColours");
    const Sample sample = through(options, caps, std::move(buffer));
    ASSERT_NE(sample, nullptr);
    EXPECT_EQ(gst_buffer_get_custom_meta(gst_sample_get_buffer(sample.get()), "GpumapTestColours") != nullptr, kept)
        << options;
  }
}

/// What `converter` says of its output for pictures of `in`.
std::string said_by(const std::string& converter, const std::string& in, const std::string& format, const char* field) {
  Pipeline pipeline(on_new_channel("videotestsrc num-buffers=1 ! video/x-raw,width=32,height=16," + in + " ! " +
                                   converter + " ! video/x-raw,format=" + format + " ! appsink name=out sync=false"));
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Sample sample = pull(pipeline.appsink());
  if (!sample) return "nothing: " + pipeline.wait(1ms);
  const gchar* text = gst_structure_get_string(gst_caps_get_structure(gst_sample_get_caps(sample.get()), 0), field);
  return text != nullptr ? text : "";
}

TEST(Metas, ConvertSaysOfColoursAndFieldsWhatVideoconvertSays) {
  const std::string kernel = "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=convert";
  for (const char* format : {"RGBA", "GRAY8"}) {
    for (const char* colorimetry : {"", ",colorimetry=bt709", ",colorimetry=bt601", ",colorimetry=bt2020",
                                    ",colorimetry=1:4:16:3", ",colorimetry=2:3:14:7"}) {
      const std::string in = std::string("format=NV12") + colorimetry;
      EXPECT_EQ(said_by(kernel, in, format, "colorimetry"), said_by("videoconvert", in, format, "colorimetry"))
          << in << " to " << format;
    }
    const std::string fields = "format=I420,interlace-mode=interleaved,field-order=bottom-field-first";
    EXPECT_EQ(said_by(kernel, fields, format, "field-order"), "bottom-field-first");
    EXPECT_EQ(said_by("videoconvert", fields, format, "field-order"), "bottom-field-first");
  }
  // A downstream that asks for another one gets what it asks for.
  EXPECT_EQ(said_by(kernel, "format=NV12,colorimetry=bt709", "RGBA,colorimetry=sRGB", "colorimetry"), "sRGB");
}

// What light the numbers stand for is true as long as primaries and transfer function are.
TEST(Metas, LightOfHdrGoesWithPrimariesAndTransfer) {
  const std::string display = "34000:16000:13250:34500:7500:3000:15635:16450:10000000:1";
  const std::string in = "format=P010_10LE,colorimetry=bt2100-pq,mastering-display-info=(string)\"" + display +
                         "\",content-light-level=(string)\"1000:400\"";
  const std::string channel = "gpumapsink $CHANNEL gpumapsrc $CHANNEL";
  const std::string convert = channel + " ! gpumapkernel kernel=convert";
  for (const std::string& kept : {channel, channel + " ! gpumapkernel kernel=identity"}) {
    EXPECT_EQ(said_by(kept, in, "P010_10LE", "mastering-display-info"), display) << kept;
    EXPECT_EQ(said_by(kept, in, "P010_10LE", "content-light-level"), "1000:400") << kept;
  }
  for (const char* format : {"RGBA", "GRAY8"}) {
    for (const char* field : {"mastering-display-info", "content-light-level"}) {
      EXPECT_EQ(said_by(convert, in, format, field), said_by("videoconvert", in, format, field)) << format;
      EXPECT_NE(said_by(convert, in, format, field), "") << format;
      EXPECT_EQ(said_by(convert, in, std::string(format) + ",colorimetry=sRGB", field), "") << format;
    }
  }
  EXPECT_EQ(said_by(convert, in, "RGBA,content-light-level=(string)\"500:100\"", "content-light-level"), "500:100");
}

// Where each channel lies is true of the same bytes only. (GStreamer takes no such meta for a buffer without memory.)
TEST(Metas, PlanarAudioKeepsItsPlanes) {
  constexpr int channels = 3;
  constexpr std::size_t samples = 1001;
  const Data data = random_data(channels * samples * sizeof(float), 8);
  GstAudioInfo info;
  gst_audio_info_set_format(&info, GST_AUDIO_FORMAT_F32LE, 48000, channels, nullptr);
  info.layout = GST_AUDIO_LAYOUT_NON_INTERLEAVED;
  const std::pair<const char*, bool> cases[] = {
      {"kernel=identity", true},
      {"kernel=checksum", true},
      {"location=" GPUMAP_EXAMPLES "/kernels/invert.comp", true},
      {"location=" GPUMAP_EXAMPLES "/kernels/invert.comp declare=\"output application/x-other\"", false},
  };
  for (const auto& [options, kept] : cases) {
    for (const char* memory : {"", "(memory:GPUMap)"}) {
      const std::string media = kept ? "audio/x-raw" : "application/x-other";
      Pipeline pipeline(std::string("appsrc name=in format=time ! gpumapkernel ") + options + " ! " + media + memory +
                        " ! appsink name=out sync=false");
      gst_app_src_set_caps(
          pipeline.appsrc(),
          new_caps("audio/x-raw(memory:GPUMap),format=F32LE,layout=non-interleaved,rate=48000,channels=3").get());
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      Buffer buffer = on_gpu(data);
      ASSERT_NE(gst_buffer_add_audio_meta(buffer.get(), &info, samples, nullptr), nullptr);
      push(pipeline.appsrc(), std::move(buffer));
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << options << ": " << pipeline.wait(1ms);
      const GstAudioMeta* meta = gst_buffer_get_audio_meta(gst_sample_get_buffer(sample.get()));
      ASSERT_EQ(meta != nullptr, kept) << options << memory;
      if (kept) {
        EXPECT_EQ(meta->samples, samples);
        EXPECT_EQ(meta->offsets[2], 2 * samples * sizeof(float));
      }
    }
  }
}

/// What waits in a channel, in its order: "name", or "start+duration flags" of a gap.
std::vector<std::string> taken_from(Channel& channel) {
  std::vector<std::string> taken;
  while (true) {
    const Channel::Next next = channel.next(Clock::now());
    if (next.kind != Channel::Next::Kind::event) return taken;
    const Ptr<GstEvent> event(next.event);
    if (GST_EVENT_TYPE(next.event) != GST_EVENT_GAP) {
      taken.emplace_back(GST_EVENT_TYPE_NAME(next.event));
      continue;
    }
    GstClockTime start = 0;
    GstClockTime duration = 0;
    GstGapFlags flags{};
    gst_event_parse_gap(next.event, &start, &duration);
    gst_event_parse_gap_flags(next.event, &flags);
    taken.push_back(std::to_string(start) + "+" + std::to_string(duration) + (flags != 0 ? " missing" : ""));
  }
}

// From 64 waiting events on gaps are joined: what they span is spanned, forwards and backwards, and a gap where data is
// missing stays apart from one where there is none.
TEST(ManyGaps, AreJoinedAndNothingOfThemIsLost) {
  for (const bool forwards : {true, false}) {
    const auto channel = Channel::open(new_channel());
    const auto push = [&](GstEvent* made) {
      const Ptr<GstEvent> event(made);
      EXPECT_TRUE(channel->push_event(event.get()));
    };
    const auto gap = [&](GstClockTime at, GstGapFlags flags = {}) {
      GstEvent* event = gst_event_new_gap(forwards ? at * 10 : 10000 - at * 10, 10 + at % 2);
      gst_event_set_gap_flags(event, flags);
      push(event);
    };
    for (GstClockTime at = 0; at < 300; ++at) gap(at);
    for (GstClockTime at = 300; at < 400; ++at) gap(at, GST_GAP_FLAG_MISSING_DATA);
    push(gst_event_new_tag(gst_tag_list_new_empty()));
    for (GstClockTime at = 400; at < 500; ++at) gap(at);
    const std::vector<std::string> taken = taken_from(*channel);
    ASSERT_EQ(taken.size(), 67U) << testing::PrintToString(taken);
    EXPECT_EQ(taken[0], forwards ? "0+10" : "10000+10");
    EXPECT_EQ(taken[62], forwards ? "620+10" : "9380+10");
    EXPECT_EQ(taken[63], forwards ? "630+2371" : "7010+2371");
    EXPECT_EQ(taken[64], forwards ? "3000+1001 missing" : "6010+1000 missing");
    EXPECT_EQ(taken[65], "tag");
    EXPECT_EQ(taken[66], forwards ? "4000+1001" : "5010+1000");
  }
}

}  // namespace
}  // namespace gpumap::gst::test
