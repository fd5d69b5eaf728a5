// SPDX-License-Identifier: MIT
// What becomes of a frame's metas in a gpumapkernel, and of what its caps say of colours and fields.
#include <gmock/gmock.h>
#include <gst/audio/audio.h>

#include <array>
#include <random>

#include "gpu_buffer.hpp"
#include "gst/kernel/metas.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

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

}  // namespace
}  // namespace gpumap::gst::test
