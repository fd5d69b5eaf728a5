// SPDX-License-Identifier: MIT
// Pictures that a GstVideoCropMeta cuts out of larger ones: a kernel that writes a picture of its own sees the part,
// and so does a downstream that knows no layouts; others get frame and meta as they came.
#include <gmock/gmock.h>
#include <gst/video/video.h>

#include <algorithm>
#include <vector>

#include "pipeline.hpp"
#include "pixels.hpp"

namespace gpumap::gst::test {
namespace {

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
