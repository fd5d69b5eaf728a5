// SPDX-License-Identifier: MIT
// Padded rows: a downstream that reads GstVideoMeta gets the slot as it is, one that does not gets default strides.
#include <gmock/gmock.h>
#include <gst/video/video.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "pipeline.hpp"
#include "test_frames.hpp"

namespace gpumap::gst::test {
namespace {

/// Rows of a frame without padding, one after another.
Data rows_of(const GstVideoInfo& info, const Data& frame) {
  Data rows;
  for (guint component = 0; component < GST_VIDEO_INFO_N_PLANES(&info); ++component) {
    const auto width = static_cast<std::size_t>(GST_VIDEO_INFO_COMP_WIDTH(&info, component) *
                                                GST_VIDEO_INFO_COMP_PSTRIDE(&info, component));
    for (gint y = 0; y < GST_VIDEO_INFO_COMP_HEIGHT(&info, component); ++y) {
      const auto* row = frame.data() + info.offset[component] + static_cast<std::size_t>(y * info.stride[component]);
      rows.insert(rows.end(), row, row + width);
    }
  }
  return rows;
}

class Layout : public testing::TestWithParam<const char*> {};

TEST_P(Layout, DefaultStridesWithoutVideoMeta) {
  Pipeline pipeline(
      on_new_channel(std::string("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! ") +
                     GetParam() + "capsfilter caps=video/x-raw ! appsink name=out sync=false"));
  const Caps caps = video_caps("I420", 35, 9);
  GstVideoInfo packed, padded;
  ASSERT_TRUE(gst_video_info_from_caps(&packed, caps.get()));
  padded = packed;
  GstVideoAlignment alignment;
  gst_video_alignment_reset(&alignment);
  alignment.padding_left = alignment.padding_top = 16;
  alignment.padding_right = 77;
  ASSERT_TRUE(gst_video_info_align(&padded, &alignment));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (std::uint64_t i = 0; i < 12; ++i) {
    const Data data = random_data(padded.size, i);
    Buffer buffer = new_buffer(data, i * GST_MSECOND);
    gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_I420, 35, 9, 3,
                                   padded.offset, padded.stride);
    push(pipeline.appsrc(), std::move(buffer));
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
    GstBuffer* got = gst_sample_get_buffer(sample.get());
    EXPECT_EQ(GST_BUFFER_PTS(got), i * GST_MSECOND);
    ASSERT_EQ(gst_buffer_get_size(got), packed.size);
    EXPECT_TRUE(rows_of(packed, data_of(got)) == rows_of(padded, data)) << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Through, Layout,
                         testing::Values("", "gpumapkernel kernel=checksum ! ", "gpumapkernel kernel=identity ! ",
                                         "gpumapkernel location=" GPUMAP_EXAMPLES "/kernels/invert.comp ! gpumapkernel "
                                         "location=" GPUMAP_EXAMPLES "/kernels/invert.comp ! "),
                         [](const auto& test) {
                           const std::string_view text(test.param);
                           return text.empty()                          ? "Src"
                                  : text.find("sum") != text.npos       ? "Checksum"
                                  : text.find("location=") == text.npos ? "Identity"
                                                                        : "User";
                         });

gboolean map_own_memory(GstVideoMeta* /*meta*/, guint /*plane*/, GstMapInfo* /*info*/, gpointer* /*data*/,
                        gint* /*stride*/, GstMapFlags /*flags*/) {
  return FALSE;  // as a hardware decoder's function does with memory of another
}
gboolean unmap_own_memory(GstVideoMeta* /*meta*/, guint /*plane*/, GstMapInfo* /*info*/) {
  return FALSE;
}

// How upstream maps the planes of its own memory is of no use for the slot: that is read as the layout says.
TEST(OwnWaysToMap, StayWithUpstreamsMemory) {
  const Caps caps = video_caps("I420", 35, 9);
  GstVideoInfo packed, padded;
  ASSERT_TRUE(gst_video_info_from_caps(&packed, caps.get()));
  padded = packed;
  GstVideoAlignment alignment;
  gst_video_alignment_reset(&alignment);
  alignment.padding_left = 16;
  alignment.padding_right = 77;
  ASSERT_TRUE(gst_video_info_align(&padded, &alignment));
  for (const char* memory : {"", "(memory:GPUMap)"}) {
    SCOPED_TRACE(memory);
    Pipeline pipeline(
        on_new_channel(std::string("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                                   "capsfilter caps=video/x-raw") +
                       memory + " ! appsink name=out sync=false"));
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const Data data = random_data(padded.size, 4);
    Buffer buffer = new_buffer(data);
    GstVideoMeta* meta = gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_I420,
                                                        35, 9, 3, padded.offset, padded.stride);
    meta->map = map_own_memory;
    meta->unmap = unmap_own_memory;
    push(pipeline.appsrc(), std::move(buffer));
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
    GstVideoFrame frame;
    ASSERT_TRUE(gst_video_frame_map(&frame, &packed, gst_sample_get_buffer(sample.get()), GST_MAP_READ));
    Data rows;
    for (guint plane = 0; plane < 3; ++plane) {
      const auto width = static_cast<std::size_t>(GST_VIDEO_FRAME_COMP_WIDTH(&frame, plane));
      for (gint row = 0; row < GST_VIDEO_FRAME_COMP_HEIGHT(&frame, plane); ++row) {
        const auto* first = static_cast<const std::byte*>(GST_VIDEO_FRAME_PLANE_DATA(&frame, plane)) +
                            std::ptrdiff_t{row} * GST_VIDEO_FRAME_PLANE_STRIDE(&frame, plane);
        rows.insert(rows.end(), first, first + width);
      }
    }
    gst_video_frame_unmap(&frame);
    EXPECT_TRUE(rows == rows_of(padded, data));
  }
}

/// I420 with `below` rows under its picture.
GstVideoInfo padded_info(const Caps& caps, guint below) {
  GstVideoInfo info;
  EXPECT_TRUE(gst_video_info_from_caps(&info, caps.get()));
  GstVideoAlignment alignment;
  gst_video_alignment_reset(&alignment);
  alignment.padding_top = 2;
  alignment.padding_bottom = below;
  EXPECT_TRUE(gst_video_info_align(&info, &alignment));
  return info;
}

// A user's kernel gets as much room as there is input, the padding too; and a sum is that of every byte.
TEST(PaddedFrames, FitTheOutputOfEveryKernel) {
  const Caps caps = video_caps("I420", 320, 240);
  GstVideoInfo info = padded_info(caps, 4000);  // far more than the picture
  for (const char* memory : {"", "(memory:GPUMap)"}) {
    Pipeline pipeline(
        on_new_channel(std::string("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel "
                                   "location=" GPUMAP_EXAMPLES "/kernels/invert.comp ! gpumapkernel kernel=identity ! "
                                   "gpumapkernel kernel=checksum ! capsfilter caps=video/x-raw") +
                       memory + " ! appsink name=out sync=false"));
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const Data data = random_data(info.size, 1);
    Buffer buffer = new_buffer(data);
    gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_I420, 320, 240, 3,
                                   info.offset, info.stride);
    push(pipeline.appsrc(), std::move(buffer));
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
    if (std::string_view(memory).empty()) continue;  // repacked
    GstBuffer* out = gst_sample_get_buffer(sample.get());
    const Data got = data_of(out);
    ASSERT_EQ(got.size(), data.size());
    for (std::size_t i = info.offset[0]; i < data.size(); ++i) ASSERT_EQ(got[i], ~data[i]) << i;
    GstCustomMeta* meta = gst_buffer_get_custom_meta(out, "GpumapResult");
    ASSERT_NE(meta, nullptr);
    guint64 sum = 0;
    ASSERT_TRUE(gst_structure_get_uint64(gst_custom_meta_get_structure(meta), "checksum", &sum));
    EXPECT_EQ(sum, checksum_of(got));
  }
}

// A frame that cannot be read is an error, not one of whatever lay in memory.
TEST(UnreadableFrames, AreErrors) {
  const Caps caps = video_caps("I420", 32, 16);
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc name=src $CHANNEL ! "
                     "capsfilter caps=video/x-raw ! appsink name=out sync=false"));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  GstVideoInfo far = padded_info(caps, 4000);
  Buffer buffer = new_buffer(random_data(1000, 1));
  gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_I420, 32, 16, 3, far.offset,
                                 far.stride);
  push(pipeline.appsrc(), std::move(buffer));
  EXPECT_NE(pipeline.wait(20s).find("1000 bytes"), std::string::npos) << pipeline.error();
  EXPECT_EQ(pipeline.culprit(), "src");
}

// Nor one that is described as another picture than the caps say, as where it was made before them. GStreamer asserts
// that it is not, which ends a process that takes assertions for fatal.
TEST(UnreadableFrames, OfOtherPicturesThanTheCapsSayAreErrors) {
  const Caps caps = video_caps("RGBA", 34, 18);
  GstVideoInfo padded = padded_info(caps, 256);  // GStreamer 1.22 takes it without const
  const auto error_of = [&](GstVideoFormat format, guint width, guint height, guint planes) {
    Pipeline pipeline(
        on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc name=src $CHANNEL ! "
                       "capsfilter caps=video/x-raw ! appsink name=out sync=false"));
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    Buffer buffer = new_buffer(random_data(padded.size, planes));
    gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, format, width, height, planes,
                                   padded.offset, padded.stride);
    push(pipeline.appsrc(), std::move(buffer));
    return pipeline.wait();
  };
  EXPECT_THAT(error_of(GST_VIDEO_FORMAT_NV12, 34, 18, 2), testing::HasSubstr("says NV12 of 34x18"));
  EXPECT_THAT(error_of(GST_VIDEO_FORMAT_RGBA, 32, 18, 1), testing::HasSubstr("caps say RGBA of 34x18"));
  EXPECT_THAT(error_of(GST_VIDEO_FORMAT_RGBA, 34, 17, 1), testing::HasSubstr("says RGBA of 34x17"));
}

// A frame holds one field of a picture that has twice its rows.
TEST(SingleFields, PassKernelsThatDeclareNoCaps) {
  const Caps caps =
      new_caps("video/x-raw(format:Interlaced),format=NV12,width=66,height=50,interlace-mode=alternate,framerate=25/1");
  const Data data = random_data(frame_bytes(caps.get()), 5);
  const auto play = [&](const char* kernel, const char* memory, const auto& look) {
    SCOPED_TRACE(std::string(kernel) + memory);
    Pipeline pipeline(on_new_channel(std::string("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc "
                                                 "$CHANNEL ! gpumapkernel kernel=") +
                                     kernel + " ! " + memory + "appsink name=out sync=false"));
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    push(pipeline.appsrc(), new_buffer(data));
    look(pipeline);
  };
  const auto arrives = [&](Pipeline& pipeline) {
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
    EXPECT_TRUE(
        gst_caps_features_contains(gst_caps_get_features(gst_sample_get_caps(sample.get()), 0), "format:Interlaced"));
    EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), data);
    gst_app_src_end_of_stream(pipeline.appsrc());
    EXPECT_EQ(pipeline.wait(), "eos");
    for (const Result& result : pipeline.results()) EXPECT_EQ(result.checksum, checksum_of(data));
  };
  play("identity", "", arrives);
  play("checksum", "", arrives);
  play("checksum", "capsfilter caps=\"video/x-raw(memory:GPUMap,format:Interlaced)\" ! ", arrives);
  play("convert", "", [](Pipeline& pipeline) {
    EXPECT_NE(pipeline.wait().find("interlace-mode=interleaved"), std::string::npos) << pipeline.error();
  });
}

// Their strides count tiles, not bytes.
TEST(TiledFormats, Pass) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=3 ! videoconvert ! video/x-raw,format=NV12_64Z32,width=320,height=240 ! "
                     "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=identity ! "
                     "gpumapkernel kernel=checksum ! fakesink"));
  EXPECT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(pipeline.results().size(), 3U);
}

TEST(TiledFormats, MayNotReachBeyondTheirBuffer) {
  const Caps caps = video_caps("NV12_64Z32", 320, 240);
  GstVideoInfo info;
  ASSERT_TRUE(gst_video_info_from_caps(&info, caps.get()));
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                     "gpumapkernel kernel=identity ! fakesink"));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Buffer buffer = new_buffer(random_data(info.size, 1));
  gint stride[GST_VIDEO_MAX_PLANES] = {GST_VIDEO_TILE_MAKE_STRIDE(5, 9), info.stride[1]};
  stride[0] += info.stride[0];
  gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_NV12_64Z32, 320, 240, 2,
                                 info.offset, stride);
  push(pipeline.appsrc(), std::move(buffer));
  EXPECT_NE(pipeline.wait(20s).find("GstVideoMeta"), std::string::npos) << pipeline.error();
}

// Four bytes for each value of a pixel, and no rows.
TEST(Palettes, AreNoRows) {
  const Caps caps = video_caps("RGB8P", 33, 7);
  constexpr std::size_t stride = 64, end = 16 + 7 * stride + 1024;
  for (const std::size_t bytes : {end, end - 1}) {
    Pipeline pipeline(
        on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                       "gpumapkernel kernel=identity ! appsink name=out sync=false"));
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const Data data = random_data(bytes, 6);
    Buffer buffer = new_buffer(data);
    gsize offset[] = {16, 16 + 7 * stride};
    gint strides[] = {stride, 4};
    gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_RGB8P, 33, 7, 2, offset,
                                   strides);
    push(pipeline.appsrc(), std::move(buffer));
    if (bytes != end) {
      EXPECT_NE(pipeline.wait().find("a GstVideoMeta describes more than"), std::string::npos) << pipeline.error();
      continue;
    }
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
    const Data got = data_of(gst_sample_get_buffer(sample.get()));
    ASSERT_EQ(got.size(), 36U * 7 + 1024);
    for (std::size_t y = 0; y < 7; ++y) {
      ASSERT_TRUE(std::equal(got.begin() + 36 * y, got.begin() + 36 * y + 33, data.begin() + 16 + stride * y)) << y;
    }
    EXPECT_TRUE(std::equal(got.end() - 1024, got.end(), data.end() - 1024));
  }
}

// One frame that is cut off does not end the stream.
TEST(ShortFrames, AreLeftOutAndTold) {
  const std::pair<const char*, const char*> cases[] = {
      {"video/x-raw(memory:GPUMap),format=NV12,width=34,height=8,framerate=30/1", "kernel=convert"},
      {"video/x-raw(memory:GPUMap),format=NV12,width=34,height=8,framerate=30/1", "kernel=checksum"},
      {"video/x-bayer(memory:GPUMap),format=rggb,width=36,height=8,framerate=30/1", "kernel=convert"},
  };
  for (const auto& [caps, kernel] : cases) {
    Pipeline pipeline(std::string("appsrc name=in format=time ! gpumapkernel name=kernel ") + kernel +
                      " ! appsink name=out sync=false");
    gst_app_src_set_caps(pipeline.appsrc(), new_caps(caps).get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const std::size_t whole = std::string_view(caps).find("NV12") != std::string_view::npos ? 36 * 12 : 36 * 8;
    for (const std::size_t bytes : {whole, whole - 1, std::size_t{0}, std::size_t{1}, whole, whole}) {
      push(pipeline.appsrc(), bytes != 0 ? on_gpu(random_data(bytes, bytes)) : Buffer(gst_buffer_new()));
    }
    gst_app_src_end_of_stream(pipeline.appsrc());
    for (int i = 0; i < 3; ++i) {
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << kernel << " " << i << ": " << pipeline.wait(1ms);
      const bool after_a_hole = i == 1;
      const bool discont = GST_BUFFER_IS_DISCONT(gst_sample_get_buffer(sample.get())) != 0;
      EXPECT_EQ(discont, after_a_hole || i == 0) << i;
    }
    EXPECT_EQ(pipeline.wait(), "eos") << kernel;
    EXPECT_EQ(stat(pipeline.element("kernel"), "dropped"), 3U);
    ASSERT_EQ(pipeline.warnings().size(), 1U);
    const std::string text =
        "a frame of " + std::to_string(whole - 1) + " bytes where the caps say " + std::to_string(whole);
    EXPECT_NE(pipeline.warnings()[0].find(text), std::string::npos) << pipeline.warnings()[0];
  }
}

// Pictures that a GstVideoCropMeta cuts out of larger ones: a kernel that writes a picture of its own sees the part,
// and so does a downstream that knows no layouts; others get frame and meta as they came.

constexpr gint full_width = 40, full_height = 30, width = 22, height = 16;

struct Plane {
  std::size_t bytes;  ///< of a pixel of its
  unsigned across, down;
};
struct Format {
  const char* name;
  std::vector<Plane> planes;
};
/// Chroma of half the width begins at even pixels: (7,5) counts as (6,4), or (6,5) where it has all rows.
const std::vector<Format>& formats() {
  static const auto* const all = new std::vector<Format>{
      {"RGBA", {{4, 1, 1}}},
      {"GRAY8", {{1, 1, 1}}},
      {"NV12", {{1, 1, 1}, {2, 2, 2}}},
      {"I420", {{1, 1, 1}, {1, 2, 2}, {1, 2, 2}}},
      {"YUY2", {{2, 1, 1}}},
      {"P010_10LE", {{2, 1, 1}, {4, 2, 2}}},
  };
  return *all;
}

GstVideoInfo info_of(const char* format, gint across, gint down) {
  GstVideoInfo info;
  EXPECT_TRUE(gst_video_info_from_caps(&info, video_caps(format, across, down).get()));
  return info;
}

struct Pictures {
  Buffer whole, part;  ///< the one with the meta, and what it shows
};

Pictures pictures_of(const Format& format, guint x, guint y) {
  GstVideoInfo from = info_of(format.name, full_width, full_height);
  const GstVideoInfo to = info_of(format.name, width, height);
  const Data data = random_data(from.size, 11);
  Data shown(to.size);
  const bool sampled = std::string_view(format.name) != "RGBA" && std::string_view(format.name) != "GRAY8";
  const bool by_rows = format.planes.size() > 1;
  const std::size_t left = sampled ? x / 2 * 2 : x, top = by_rows ? y / 2 * 2 : y;
  for (std::size_t i = 0; i < format.planes.size(); ++i) {
    const Plane& plane = format.planes[i];
    for (std::size_t row = 0; row < height / plane.down; ++row) {
      const auto* at = data.data() + from.offset[i] +
                       (top / plane.down + row) * static_cast<std::size_t>(from.stride[i]) +
                       left / plane.across * plane.bytes;
      std::copy_n(at, width / plane.across * plane.bytes,
                  shown.data() + to.offset[i] + row * static_cast<std::size_t>(to.stride[i]));
    }
  }
  Pictures made{new_buffer(data), new_buffer(shown)};
  gst_buffer_add_video_meta_full(made.whole.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_INFO_FORMAT(&from), full_width,
                                 full_height, GST_VIDEO_INFO_N_PLANES(&from), from.offset, from.stride);
  GstVideoCropMeta* crop = gst_buffer_add_video_crop_meta(made.whole.get());
  crop->x = x;
  crop->y = y;
  crop->width = width;
  crop->height = height;
  return made;
}

/// What comes out of `elements` for `buffer`, whose caps are those of the part.
Sample through(const std::string& elements, const char* format, Buffer buffer) {
  Pipeline pipeline(on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! " + elements +
                                   "appsink name=out sync=false"));
  gst_app_src_set_caps(pipeline.appsrc(), video_caps(format, width, height).get());
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), std::move(buffer));
  Sample sample = pull(pipeline.appsink());
  EXPECT_NE(sample, nullptr) << elements << format << ": " << pipeline.wait(1ms);
  return sample;
}

bool has_crop(const Sample& sample) {
  return gst_buffer_get_video_crop_meta(gst_sample_get_buffer(sample.get())) != nullptr;
}

TEST(CropMeta, IsWhatConvertShows) {
  for (const Format& format : formats()) {
    for (const auto& [x, y] : {std::pair{0U, 0U}, {6U, 4U}, {7U, 5U}, {18U, 14U}}) {
      for (const char* to : {"gpumapkernel kernel=convert ! video/x-raw,format=RGBA ! ",
                             "gpumapkernel kernel=convert ! video/x-raw,format=RGB,width=44,height=8 ! ",
                             "gpumapkernel kernel=convert ! application/x-tensor ! "}) {
        Pictures pictures = pictures_of(format, x, y);
        const Sample cut = through(to, format.name, std::move(pictures.whole));
        const Sample plain = through(to, format.name, std::move(pictures.part));
        ASSERT_TRUE(cut && plain);
        EXPECT_EQ(data_of(gst_sample_get_buffer(cut.get())), data_of(gst_sample_get_buffer(plain.get())))
            << format.name << " from " << x << "," << y << " " << to;
        EXPECT_FALSE(has_crop(cut)) << format.name << " " << to;
      }
    }
  }
}

// Without GstVideoMeta there is but one layout, that of the caps.
TEST(CropMeta, IsCutOutForADownstreamWithoutVideoMeta) {
  for (const Format& format : formats()) {
    for (const char* to : {"", "gpumapkernel kernel=identity ! "}) {
      Pictures pictures = pictures_of(format, 7, 5);
      const Sample cut = through(to, format.name, std::move(pictures.whole));
      const Sample plain = through(to, format.name, std::move(pictures.part));
      ASSERT_TRUE(cut && plain);
      EXPECT_EQ(pixels_of(cut.get()), pixels_of(plain.get())) << format.name << " " << to;
      EXPECT_FALSE(has_crop(cut)) << format.name << " " << to;
    }
  }
}

TEST(CropMeta, StaysWithTheBytes) {
  for (const char* to : {"gpumapkernel kernel=identity ! video/x-raw(memory:GPUMap) ! ",
                         "gpumapkernel kernel=checksum ! video/x-raw(memory:GPUMap) ! "}) {
    const Sample kept = through(to, "NV12", pictures_of(formats()[2], 6, 4).whole);
    ASSERT_NE(kept, nullptr);
    EXPECT_TRUE(has_crop(kept)) << to;
  }
}

TEST(CropMeta, OutsideThePictureIsAnError) {
  Pictures pictures = pictures_of(formats()[2], 20, 0);
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel "
                     "kernel=convert ! video/x-raw,format=RGBA ! appsink name=out sync=false"));
  gst_app_src_set_caps(pipeline.appsrc(), video_caps("NV12", width, height).get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), std::move(pictures.whole));
  EXPECT_THAT(pipeline.wait(), testing::HasSubstr("GstVideoCropMeta"));
}

// Who asks is told that no one here reads GstVideoCropMeta. Kernels that declare no output see the whole picture's
// first pixels, not the part: from an upstream that cuts by itself where it must (videocrop), each kernel gets the
// right ones.
TEST(CropMeta, IsNotAskedFor) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in ! gpumapsink name=sink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel "
                     "kernel=convert ! video/x-raw,format=RGBA ! fakesink"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  const Pad pad(gst_element_get_static_pad(pipeline.element("sink"), "sink"));
  GstQuery* query = gst_query_new_allocation(video_caps("NV12", width, height).get(), TRUE);
  ASSERT_TRUE(gst_pad_query(pad.get(), query));
  EXPECT_TRUE(gst_query_find_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr));
  EXPECT_FALSE(gst_query_find_allocation_meta(query, GST_VIDEO_CROP_META_API_TYPE, nullptr));
  gst_query_unref(query);
}

TEST(CropMeta, EveryKernelSeesWhatVideocropLeaves) {
  const auto of = [](const std::string& way) {
    Pipeline pipeline(
        on_new_channel("videotestsrc num-buffers=1 pattern=smpte ! "
                       "video/x-raw,format=RGBA,width=40,height=30 ! videocrop left=7 top=5 right=11 "
                       "bottom=9 ! " +
                       way + "appsink name=out sync=false"));
    EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const Sample sample = pull(pipeline.appsink());
    EXPECT_NE(sample, nullptr) << way << pipeline.wait(1ms);
    return sample ? pixels_of(sample.get()) : Data();
  };
  Data inverted = of("");
  for (std::size_t i = 0; i < inverted.size(); ++i) {
    if (i % 4 != 3) inverted[i] = ~inverted[i];
  }
  EXPECT_EQ(of("gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel location=" GPUMAP_EXAMPLES
               "/kernels/invert.comp ! video/x-raw,format=RGBA ! "),
            inverted);
}

}  // namespace
}  // namespace gpumap::gst::test
