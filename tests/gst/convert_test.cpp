// SPDX-License-Identifier: MIT
// kernel=convert through the pipeline against plain C++: every format, colorimetry, output and memory, odd sizes,
// padded strides.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <cstring>
#include <tuple>

#include "builtin_reference.hpp"
#include "gpumap/kernel.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

struct Image {
  std::string format;
  std::uint32_t id;
  int width, height;
  const char* colorimetry;
  ColorMatrix matrix;
  ColorRange range;
};

GstVideoInfo info_of(const GstCaps* caps) {
  GstVideoInfo info;
  EXPECT_TRUE(gst_video_info_from_caps(&info, caps));
  return info;
}

reference::Layout layout_of(const Image& image, const GstVideoInfo& info) {
  reference::Layout layout{.format = image.id,
                           .width = static_cast<std::uint32_t>(image.width),
                           .height = static_cast<std::uint32_t>(image.height),
                           .planes = {},
                           .bytes = info.size};
  for (guint i = 0; i < GST_VIDEO_INFO_N_PLANES(&info); ++i) {
    layout.planes.push_back({info.offset[i], 0, 0, static_cast<std::size_t>(info.stride[i])});
  }
  return layout;
}

Caps caps_of(const Image& image) {
  Caps caps = video_caps(image.format.c_str(), image.width, image.height);
  gst_caps_set_simple(caps.get(), "colorimetry", G_TYPE_STRING, image.colorimetry, nullptr);
  return caps;
}

unsigned bits_of(const Image& image) {
  const GstVideoFormat format = gst_video_format_from_string(image.format.c_str());
  return GST_VIDEO_FORMAT_INFO_DEPTH(gst_video_format_get_info(format), 0);
}

/// Push one frame, `data` as `info` lays it out, through convert into `to`; what arrives.
Sample convert(const Caps& caps, GstVideoInfo info, const Data& data, const std::string& to, bool meta,
               const std::string& params = "", GstBufferFlags flags = static_cast<GstBufferFlags>(0)) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                     "gpumapkernel kernel=convert " +
                     params + " ! capsfilter caps=" + to + " ! appsink name=out sync=false"));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Buffer buffer = new_buffer(data);
  if (meta) {
    gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_INFO_FORMAT(&info),
                                   static_cast<guint>(info.width), static_cast<guint>(info.height),
                                   info.finfo->n_planes, info.offset, info.stride);
  }
  GST_BUFFER_FLAG_SET(buffer.get(), flags);
  push(pipeline.appsrc(), std::move(buffer));
  Sample sample = pull(pipeline.appsink());
  if (!sample) ADD_FAILURE() << "nothing came: " << pipeline.wait(1ms);
  return sample;
}

void expect_rgba(const Image& image, const reference::Layout& layout, const Data& in, GstBuffer* out) {
  const Data got = data_of(out);
  const auto width = static_cast<std::size_t>(image.width), height = static_cast<std::size_t>(image.height);
  ASSERT_EQ(got.size(), 4 * width * height);
  const gpumap_color color = color_matrix(image.matrix, image.range, bits_of(image));
  double worst = 0;
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      const auto component = reference::components(layout, in, x, y);
      const auto expected = reference::rgb(color, component);
      for (std::size_t c = 0; c < 3; ++c) {
        worst = std::max(worst, std::abs(std::to_integer<int>(got[4 * (y * width + x) + c]) - expected[c]));
      }
      worst = std::max(worst, std::abs(std::to_integer<int>(got[4 * (y * width + x) + 3]) - component[3]));
    }
  }
  EXPECT_LE(worst, 0.51) << image.format << " " << image.width << "x" << image.height << " " << image.colorimetry;
}

void expect_tensor(const Image& image, const reference::Layout& layout, const Data& in, GstBuffer* out) {
  const Data got = data_of(out);
  const auto width = static_cast<std::size_t>(image.width), height = static_cast<std::size_t>(image.height);
  ASSERT_EQ(got.size(), 3 * sizeof(float) * width * height);
  constexpr std::array mean{0.485, 0.456, 0.406}, scale{4.0, 4.5, 5.0};
  const gpumap_color color = color_matrix(image.matrix, image.range, bits_of(image));
  double worst = 0;
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      const auto expected = reference::rgb(color, reference::components(layout, in, x, y));
      for (std::size_t c = 0; c < 3; ++c) {
        float value = 0;
        std::memcpy(&value, &got[sizeof(float) * ((c * height + y) * width + x)], sizeof value);
        worst = std::max(worst, std::abs(double{value} - (expected[c] / 255 - mean[c]) * scale[c]));
      }
    }
  }
  EXPECT_LE(worst, 1e-4) << image.format << " " << image.width << "x" << image.height << " " << image.colorimetry;
}

/// What the caps of an output in a format of luma say of its colours, as the standards have it.
reference::Coding coding_of(const GstVideoInfo& info) {
  reference::Coding coding;
  const auto matrix = info.colorimetry.matrix;
  coding.matrix = matrix == GST_VIDEO_COLOR_MATRIX_BT709    ? ColorMatrix::bt709
                  : matrix == GST_VIDEO_COLOR_MATRIX_BT2020 ? ColorMatrix::bt2020
                                                            : ColorMatrix::bt601;
  coding.range = info.colorimetry.range == GST_VIDEO_COLOR_RANGE_16_235 ? ColorRange::limited : ColorRange::full;
  coding.bits = GST_VIDEO_INFO_COMP_DEPTH(&info, 0);
  coding.across = std::size_t{1} << GST_VIDEO_FORMAT_INFO_W_SUB(info.finfo, 1);
  coding.down = std::size_t{1} << GST_VIDEO_FORMAT_INFO_H_SUB(info.finfo, 1);
  return coding;
}

constexpr std::array luma_formats{std::pair{"NV12", GPUMAP_FORMAT_NV12},      std::pair{"I420", GPUMAP_FORMAT_I420},
                                  std::pair{"P010_10LE", GPUMAP_FORMAT_P010}, std::pair{"YUY2", GPUMAP_FORMAT_YUY2},
                                  std::pair{"Y444", GPUMAP_FORMAT_Y444},      std::pair{"GRAY8", GPUMAP_FORMAT_GRAY8}};

/// `sample`, of an output in the format of luma `id`, against the reference by what its own caps say.
void expect_luma(const Image& image, const reference::Layout& layout, const Data& in, GstSample* sample,
                 gpumap_format id, bool interlaced = false) {
  const GstVideoInfo info = info_of(gst_sample_get_caps(sample));
  const Image made{GST_VIDEO_INFO_NAME(&info), static_cast<std::uint32_t>(id), image.width, image.height, "", {}, {}};
  reference::Layout out = layout_of(made, info);
  out.interlaced = interlaced;
  const Data got = data_of(gst_sample_get_buffer(sample));
  ASSERT_EQ(got.size(), info.size);
  const gpumap_color color = color_matrix(image.matrix, image.range, bits_of(image));
  const auto rgb_at = [&](std::size_t x, std::size_t y) {
    return reference::wide_rgb(color, reference::components(layout, in, x, y));
  };
  double worst = 0;
  for (std::size_t y = 0; y < out.height; ++y) {
    for (std::size_t x = 0; x < out.width; ++x) {
      worst = std::max(worst, reference::luma_difference(out, got, coding_of(info), x, y, rgb_at));
    }
  }
  EXPECT_LE(worst, 0.01) << image.format << " " << image.width << "x" << image.height << " " << image.colorimetry;
}

constexpr const char* mean_and_scale = "params=\"mean=[0.485,0.456,0.406],scale=[4,4.5,5]\"";

class Convert : public testing::TestWithParam<Image> {};

TEST_P(Convert, ToEveryOutput) {
  const Image& image = GetParam();
  const Caps caps = caps_of(image);
  const GstVideoInfo info = info_of(caps.get());
  const reference::Layout layout = layout_of(image, info);
  const Data in = random_data(info.size, info.size);
  for (const char* to : {"video/x-raw,format=RGBA", "video/x-raw(memory:GPUMap),format=RGBA"}) {
    SCOPED_TRACE(to);
    const Sample sample = convert(caps, info, in, to, false);
    ASSERT_NE(sample, nullptr);
    expect_rgba(image, layout, in, gst_sample_get_buffer(sample.get()));
  }
  for (const char* to : {"application/x-tensor", "application/x-tensor(memory:GPUMap)"}) {
    SCOPED_TRACE(to);
    const Sample sample = convert(caps, info, in, to, false, mean_and_scale);
    ASSERT_NE(sample, nullptr);
    const GstStructure* made = gst_caps_get_structure(gst_sample_get_caps(sample.get()), 0);
    EXPECT_STREQ(gst_structure_get_string(made, "type"), "float32");
    EXPECT_STREQ(gst_structure_get_string(made, "layout"), "chw");
    gint channels = 0, width = 0, height = 0;
    EXPECT_TRUE(gst_structure_get(made, "channels", G_TYPE_INT, &channels, "width", G_TYPE_INT, &width, "height",
                                  G_TYPE_INT, &height, nullptr));
    EXPECT_EQ(channels, 3);
    EXPECT_EQ(width, image.width);
    EXPECT_EQ(height, image.height);
    expect_tensor(image, layout, in, gst_sample_get_buffer(sample.get()));
  }
}

TEST_P(Convert, ToEveryFormatOfLuma) {
  const Image& image = GetParam();
  const Caps caps = caps_of(image);
  const GstVideoInfo info = info_of(caps.get());
  const reference::Layout layout = layout_of(image, info);
  const Data in = random_data(info.size, info.size + 1);
  // Of two formats all, else every third; in their own colours, and in others.
  const bool all = image.width == 33 && (image.format == "NV12" || image.format == "RGB");
  constexpr std::array others{",colorimetry=bt709", ",colorimetry=1:3:5:1", ",colorimetry=1:4:16:3",
                              ",colorimetry=bt2020"};
  std::size_t turn = info.size;
  for (const auto& [format, id] : luma_formats) {
    if (++turn % 3 != 0 && !all) continue;
    for (const char* colorimetry : {"", others[turn % others.size()]}) {
      const std::string to = "video/x-raw,format=" + std::string(format) + colorimetry;
      SCOPED_TRACE(to);
      const Sample sample = convert(caps, info, in, to, false);
      ASSERT_NE(sample, nullptr);
      expect_luma(image, layout, in, sample.get(), id);
      const GstStructure* made = gst_caps_get_structure(gst_sample_get_caps(sample.get()), 0);
      const gchar* site = gst_structure_get_string(made, "chroma-site");
      const bool shares = GST_VIDEO_FORMAT_INFO_W_SUB(info_of(gst_sample_get_caps(sample.get())).finfo, 1) != 0;
      const bool shared = GST_VIDEO_FORMAT_INFO_W_SUB(info.finfo, 1) != 0;
      EXPECT_STREQ(site, shares && !shared ? "jpeg" : nullptr);
      // Full HD is long enough in one.
      if (image.width > 1000) break;
    }
  }
}

// The same picture with rows and planes further apart, as decoders leave them.
TEST_P(Convert, PaddedRowsGiveTheSame) {
  const Image& image = GetParam();
  const Caps caps = caps_of(image);
  GstVideoInfo padded = info_of(caps.get());
  GstVideoAlignment alignment;
  gst_video_alignment_reset(&alignment);
  alignment.padding_left = 16;
  alignment.padding_right = 7;
  alignment.padding_top = 2;
  alignment.padding_bottom = 5;
  for (auto& align : alignment.stride_align) align = 31;
  ASSERT_TRUE(gst_video_info_align(&padded, &alignment));
  const reference::Layout layout = layout_of(image, padded);
  const Data in = random_data(padded.size, padded.size);
  const Sample rgba = convert(caps, padded, in, "video/x-raw,format=RGBA", true);
  ASSERT_NE(rgba, nullptr);
  expect_rgba(image, layout, in, gst_sample_get_buffer(rgba.get()));
  const Sample tensor = convert(caps, padded, in, "application/x-tensor", true, mean_and_scale);
  ASSERT_NE(tensor, nullptr);
  expect_tensor(image, layout, in, gst_sample_get_buffer(tensor.get()));
}

// From one layout to another that has the same components, nothing changes, whether RGB has such a colour or not.
TEST(ConvertLayout, ComponentsStayAsTheyAre) {
  struct Pair {
    Image from;
    const char* to;
    gpumap_format id;
  };
  const auto image = [](const char* format, gpumap_format id, int width, int height) {
    return Image{
        format, static_cast<std::uint32_t>(id), width, height, "bt709", ColorMatrix::bt709, ColorRange::limited};
  };
  for (const auto& [width, height] : {std::pair{33, 7}, {1, 1}, {64, 48}, {7, 10}}) {
    for (const char* mode : {"progressive", "interleaved"}) {
      for (const Pair& pair :
           {Pair{image("NV12", GPUMAP_FORMAT_NV12, width, height), "I420", GPUMAP_FORMAT_I420},
            {image("I420", GPUMAP_FORMAT_I420, width, height), "NV12", GPUMAP_FORMAT_NV12},
            {image("NV12", GPUMAP_FORMAT_NV12, width, height), "Y444", GPUMAP_FORMAT_Y444},
            {image("NV12", GPUMAP_FORMAT_NV12, width, height), "YUY2", GPUMAP_FORMAT_YUY2},
            {image("I420_10LE", GPUMAP_FORMAT_I420_10, width, height), "P010_10LE", GPUMAP_FORMAT_P010},
            {image("UYVY", GPUMAP_FORMAT_UYVY, width, height), "YUY2", GPUMAP_FORMAT_YUY2},
            {image("Y42B", GPUMAP_FORMAT_Y42B, width, height), "YUY2", GPUMAP_FORMAT_YUY2},
            {image("Y444", GPUMAP_FORMAT_Y444, width, height), "Y444", GPUMAP_FORMAT_Y444}}) {
        SCOPED_TRACE(testing::Message() << pair.from.format << " to " << pair.to << ", " << mode << " " << height);
        // GStreamer's layout of P010 has no room for that.
        const bool interlaced = std::string_view(mode) == "interleaved";
        if (interlaced && pair.id == GPUMAP_FORMAT_P010 && height % 4 == 2) continue;
        const Caps caps = caps_of(pair.from);
        gst_caps_set_simple(caps.get(), "interlace-mode", G_TYPE_STRING, mode, "chroma-site", G_TYPE_STRING, "mpeg2",
                            nullptr);
        const GstVideoInfo info = info_of(caps.get());
        reference::Layout layout = layout_of(pair.from, info);
        const Data in = random_data(info.size, info.size + 3);
        const Sample sample = convert(caps, info, in, std::string("video/x-raw,format=") + pair.to, false, "",
                                      static_cast<GstBufferFlags>(interlaced ? GST_VIDEO_BUFFER_FLAG_INTERLACED : 0));
        ASSERT_NE(sample, nullptr);
        const GstVideoInfo made = info_of(gst_sample_get_caps(sample.get()));
        Image to = pair.from;
        to.id = pair.id;
        reference::Layout out = layout_of(to, made);
        layout.interlaced = out.interlaced = interlaced;
        const Data got = data_of(gst_sample_get_buffer(sample.get()));
        ASSERT_EQ(got.size(), made.size);
        bool same = true;
        for (std::size_t y = 0; y < out.height; ++y) {
          for (std::size_t x = 0; x < out.width; ++x) {
            const auto expected = reference::components(layout, in, x, y);
            same = same && reference::components(out, got, x, y) == expected;
          }
        }
        EXPECT_TRUE(same);
        EXPECT_EQ(made.colorimetry.matrix, GST_VIDEO_COLOR_MATRIX_BT709);
        EXPECT_EQ(made.colorimetry.range, GST_VIDEO_COLOR_RANGE_16_235);
        const bool shares = GST_VIDEO_FORMAT_INFO_W_SUB(made.finfo, 1) != 0;
        EXPECT_EQ(made.chroma_site == GST_VIDEO_CHROMA_SITE_MPEG2, shares);
      }
    }
  }
}

// An encoder or a screen that takes RGB gets that, as ever; one that does not gets what it takes, and colours before
// gray.
TEST(ConvertCaps, PrefersRgbAndColours) {
  const Caps caps = video_caps("BGR", 64, 48);
  const GstVideoInfo info = info_of(caps.get());
  const Data in = random_data(info.size, 1);
  for (const auto& [to, expected] : {std::pair{"video/x-raw", "RGBA"},
                                     {"video/x-raw,format={Y444,I420,NV12,RGB}", "RGB"},
                                     {"\"video/x-raw,format=I420;video/x-raw,format={GRAY8,BGRA}\"", "BGRA"},
                                     {"video/x-raw,format={GRAY8,Y444,I420,NV12}", "NV12"},
                                     {"video/x-raw,format={Y444,Y42B,I420,YV12}", "I420"},
                                     {"video/x-raw,format={YV12,Y444,YUY2,UYVY}", "YUY2"},
                                     {"video/x-raw,format={P010_10LE,Y444}", "P010_10LE"},
                                     {"video/x-raw,format={GRAY8,GRAY16_LE}", "GRAY8"},
                                     {"video/x-raw(memory:GPUMap),format={NV12,RGBA}", "RGBA"}}) {
    SCOPED_TRACE(to);
    const Sample sample = convert(caps, info, in, to, false);
    ASSERT_NE(sample, nullptr);
    EXPECT_STREQ(gst_structure_get_string(gst_caps_get_structure(gst_sample_get_caps(sample.get()), 0), "format"),
                 expected);
  }
}

TEST(ConvertCaps, AreListedByInspect) {
  Pipeline pipeline("gpumapkernel name=kernel ! fakesink");
  const std::string blurb =
      g_param_spec_get_blurb(g_object_class_find_property(G_OBJECT_GET_CLASS(pipeline.element("kernel")), "kernel"));
  const std::size_t gives = blurb.find(", gives ");
  ASSERT_NE(gives, std::string::npos) << blurb;
  for (const char* format : {"NV12", "Y42B", "Y444", "I420_10LE", "P016_LE", "Y444_10LE", "GRAY16_LE", "Bayer"}) {
    EXPECT_THAT(blurb.substr(0, gives), testing::HasSubstr(format));
  }
  for (const auto& [format, id] : luma_formats) EXPECT_THAT(blurb.substr(gives), testing::HasSubstr(format));
}

// A recording of RGB plays everywhere: 4:2:0, not 4:4:4.
TEST(ConvertCaps, EncodersGetWhatTheyTake) {
  for (const auto& [encoder, format, profile] :
       {std::tuple{"x264enc", "NV12", "high"}, {"openh264enc", "I420", "constrained-baseline"}}) {
    GstElementFactory* factory = gst_element_factory_find(encoder);
    if (factory == nullptr) continue;
    gst_object_unref(factory);
    for (const std::string to : {"", "video/x-raw,format={NV12,I420} ! "}) {
      SCOPED_TRACE(to + encoder);
      Pipeline pipeline(
          on_new_channel("videotestsrc num-buffers=3 pattern=smpte ! video/x-raw,format=BGRA,width=322,height=242 ! "
                         "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=convert ! " +
                         to + encoder + " name=encoder ! h264parse ! appsink name=out sync=false"));
      EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
      const GstStructure* made = gst_caps_get_structure(gst_sample_get_caps(sample.get()), 0);
      EXPECT_STREQ(gst_structure_get_string(made, "profile"), profile);
      EXPECT_STREQ(gst_structure_get_string(made, "chroma-format"), "4:2:0");
      const Ptr<GstPad> pad(gst_element_get_static_pad(pipeline.element("encoder"), "sink"));
      const Caps taken(gst_pad_get_current_caps(pad.get()));
      ASSERT_NE(taken, nullptr);
      EXPECT_STREQ(gst_structure_get_string(gst_caps_get_structure(taken.get(), 0), "format"), format);
    }
  }
}

TEST(ConvertCaps, RefusesAnotherChromaSite) {
  Pipeline pipeline(on_new_channel(
      "videotestsrc num-buffers=1 ! video/x-raw,format=RGBA,width=64,height=48 ! gpumapsink $CHANNEL "
      "gpumapsrc $CHANNEL ! gpumapkernel kernel=convert ! video/x-raw,format=NV12,chroma-site=mpeg2 ! fakesink"));
  pipeline.set_state(GST_STATE_PLAYING);
  EXPECT_THAT(pipeline.wait(),
              testing::HasSubstr("asks for chroma-site=mpeg2, and of this input it makes chroma-site=jpeg"));
}

// RGB becomes the YUV that GStreamer expects of such a size, in limited range, unless downstream asks for another.
TEST(ConvertCaps, SaysWhichYuvItIs) {
  struct Case {
    int width, height;
    const char *in, *to, *made;
  };
  for (const Case& test : {Case{64, 48, "1:1:7:1", "video/x-raw,format=NV12", "2:4:7:1"},
                           {1280, 720, "1:1:7:1", "video/x-raw,format=I420", "2:3:7:1"},
                           {1280, 720, "1:1:7:1", "video/x-raw,format=I420,colorimetry=bt601", "bt601"},
                           {64, 48, "1:1:14:7", "video/x-raw,format=P010_10LE,colorimetry=1:6:14:7", "1:6:14:7"}}) {
    SCOPED_TRACE(testing::Message() << test.height << " " << test.to);
    const Image image{"RGB", GPUMAP_FORMAT_RGB, test.width, test.height, test.in, ColorMatrix::rgb, ColorRange::full};
    const Caps caps = caps_of(image);
    const GstVideoInfo info = info_of(caps.get());
    const Sample sample = convert(caps, info, random_data(info.size, 4), test.to, false);
    ASSERT_NE(sample, nullptr);
    GstVideoColorimetry expected;
    ASSERT_TRUE(gst_video_colorimetry_from_string(&expected, test.made));
    const GstVideoInfo made = info_of(gst_sample_get_caps(sample.get()));
    EXPECT_TRUE(gst_video_colorimetry_is_equal(&made.colorimetry, &expected))
        << gst_video_colorimetry_to_string(&made.colorimetry);
  }
}

// Limited RGB is asked for by its colorimetry.
TEST(ConvertCaps, MakesLimitedRgbWhereThatIsAskedFor) {
  const Image image{"RGB", GPUMAP_FORMAT_RGB, 33, 7, "1:1:7:1", ColorMatrix::rgb, ColorRange::full};
  const Caps caps = caps_of(image);
  const GstVideoInfo info = info_of(caps.get());
  const Data in = random_data(info.size, 6);
  const Sample sample = convert(caps, info, in, "video/x-raw,format=RGB,colorimetry=2:1:7:1", false);
  ASSERT_NE(sample, nullptr);
  const Data got = data_of(gst_sample_get_buffer(sample.get()));
  ASSERT_EQ(got.size(), in.size());
  for (std::size_t y = 0; y < 7; ++y) {
    for (std::size_t x = 0; x < 99; ++x) {
      const std::size_t at = y * static_cast<std::size_t>(info.stride[0]) + x;
      EXPECT_NEAR(std::to_integer<int>(got[at]), 16 + 219 * std::to_integer<int>(in[at]) / 255.0, 0.51);
    }
  }
}

/// What convert makes of a picture of this size and pixels for a downstream that takes `to`: its width and height.
std::pair<int, int> size_for(int width, int height, const std::string& to, const char* pixels = "1/1",
                             const std::string& params = "") {
  const Caps caps = video_caps("RGB", width, height);
  gst_caps_set_simple(caps.get(), "pixel-aspect-ratio", GST_TYPE_FRACTION, atoi(pixels), atoi(pixels + 2), nullptr);
  GstVideoInfo info = info_of(caps.get());
  const Sample sample = convert(caps, info, random_data(info.size, 1), to, false, params);
  std::pair<int, int> size;
  if (!sample) return size;
  const GstStructure* made = gst_caps_get_structure(gst_sample_get_caps(sample.get()), 0);
  EXPECT_TRUE(gst_structure_get(made, "width", G_TYPE_INT, &size.first, "height", G_TYPE_INT, &size.second, nullptr));
  return size;
}

// The nearest to what comes in, and of its shape, as videoscale has it.
TEST(ConvertSize, IsTheNearestThatDownstreamTakes) {
  using Size = std::pair<int, int>;
  for (const char* kind : {"video/x-raw,", "video/x-raw(memory:GPUMap),", "application/x-tensor,"}) {
    SCOPED_TRACE(kind);
    const std::string of = kind;
    EXPECT_EQ(size_for(640, 480, of + "width=[1,320],height=[1,240]"), Size(320, 240));
    EXPECT_EQ(size_for(640, 480, of + "width=[1,320],height=[1,2000]"), Size(320, 240));
    EXPECT_EQ(size_for(640, 480, of + "width=[1,2000],height=[1,120]"), Size(160, 120));
    EXPECT_EQ(size_for(640, 480, of + "width=[1,320]"), Size(320, 240));
    EXPECT_EQ(size_for(64, 48, of + "width=[100,200],height=[90,200]"), Size(120, 90));
    EXPECT_EQ(size_for(33, 7, of + "width=[1,4000],height=[1,4000]"), Size(33, 7));
    EXPECT_EQ(size_for(64, 48, of + "width={100,32},height={100,24}"), Size(32, 24));
    EXPECT_EQ(size_for(64, 48, of + "width=[1,32],height=48"), Size(32, 48));
  }
  // A size that is left out stays as it is.
  EXPECT_EQ(size_for(64, 48, "video/x-raw,width=32"), Size(32, 48));
  // Pixels twice as wide as high become square ones.
  EXPECT_EQ(size_for(64, 48, "video/x-raw,width=[1,4000],height=[1,24],pixel-aspect-ratio=1/1", "2/1"), Size(64, 24));
  // Only what is shown counts.
  EXPECT_EQ(size_for(64, 48, "video/x-raw,width=[1,20],height=[1,48]", "1/1", "params=crop=[3,4,40,10]"), Size(20, 5));
}

// Two rows of a field share their chroma, whatever the picture's height.
TEST(ConvertInterlaced, ChromaIsKeptByField) {
  using Flagged = std::pair<const char*, bool>;  // the mode, and whether each frame has the flag
  for (const auto& [mode, flagged] :
       {Flagged{"interleaved", false}, Flagged{"mixed", true}, Flagged{"mixed", false}, Flagged{"progressive", true}}) {
    for (const int height : {1, 2, 3, 5, 8, 14, 1080}) {
      for (const auto& [format, id] : {std::pair{"NV12", GPUMAP_FORMAT_NV12},
                                       {"I420", GPUMAP_FORMAT_I420},
                                       {"P010_10LE", GPUMAP_FORMAT_P010},
                                       {"I420_10LE", GPUMAP_FORMAT_I420_10},
                                       {"P016_LE", GPUMAP_FORMAT_P016}}) {
        SCOPED_TRACE(testing::Message() << format << " " << mode << " " << flagged << " " << height);
        const Image image{
            format, static_cast<std::uint32_t>(id), 34, height, "bt601", ColorMatrix::bt601, ColorRange::limited};
        const Caps caps = caps_of(image);
        gst_caps_set_simple(caps.get(), "interlace-mode", G_TYPE_STRING, mode, nullptr);
        const GstVideoInfo info = info_of(caps.get());
        reference::Layout layout = layout_of(image, info);
        const std::string_view kind(mode);
        layout.interlaced = kind == "interleaved" || (kind == "mixed" && flagged);
        // GStreamer's layout has no room for it.
        const bool semi_planar = id == GPUMAP_FORMAT_P010 || id == GPUMAP_FORMAT_P016;
        if (semi_planar && height % 4 == 2) layout.interlaced = false;
        const Data in = random_data(info.size, info.size);
        const auto flags = static_cast<GstBufferFlags>(flagged ? GST_VIDEO_BUFFER_FLAG_INTERLACED : 0);
        const Sample rgba = convert(caps, info, in, "video/x-raw,format=RGBA", height % 2 == 0, "", flags);
        ASSERT_NE(rgba, nullptr);
        expect_rgba(image, layout, in, gst_sample_get_buffer(rgba.get()));
        const Sample tensor = convert(caps, info, in, "application/x-tensor", false, mean_and_scale, flags);
        ASSERT_NE(tensor, nullptr);
        expect_tensor(image, layout, in, gst_sample_get_buffer(tensor.get()));
      }
    }
  }
}

// The same of chroma that is made, whatever it is made of.
TEST(ConvertInterlaced, ChromaIsMadeByField) {
  for (const char* mode : {"interleaved", "mixed", "progressive"}) {
    for (const int height : {1, 2, 3, 5, 6, 8, 11}) {
      for (const auto& [format, in_id] :
           {std::pair{"RGBA", GPUMAP_FORMAT_RGBA}, {"YUY2", GPUMAP_FORMAT_YUY2}, {"NV12", GPUMAP_FORMAT_NV12}}) {
        for (const auto& [to, id] : {luma_formats[0], luma_formats[1], luma_formats[2], luma_formats[3]}) {
          SCOPED_TRACE(testing::Message() << format << " to " << to << ", " << mode << " " << height);
          const bool rgb = in_id == GPUMAP_FORMAT_RGBA;
          const Image image{format,
                            static_cast<std::uint32_t>(in_id),
                            13,
                            height,
                            rgb ? "sRGB" : "bt601",
                            rgb ? ColorMatrix::rgb : ColorMatrix::bt601,
                            rgb ? ColorRange::full : ColorRange::limited};
          const Caps caps = caps_of(image);
          gst_caps_set_simple(caps.get(), "interlace-mode", G_TYPE_STRING, mode, nullptr);
          const GstVideoInfo info = info_of(caps.get());
          reference::Layout layout = layout_of(image, info);
          // GStreamer's layout of P010 has no room for it.
          const bool fields = std::string_view(mode) != "progressive" && (id != GPUMAP_FORMAT_P010 || height % 4 != 2);
          layout.interlaced = fields;
          const Data in = random_data(info.size, info.size);
          const Sample sample = convert(caps, info, in, std::string("video/x-raw,format=") + to, false, "",
                                        static_cast<GstBufferFlags>(GST_VIDEO_BUFFER_FLAG_INTERLACED));
          ASSERT_NE(sample, nullptr);
          expect_luma(image, layout, in, sample.get(), id, fields);
        }
      }
    }
  }
}

/// Bands of colours, so wide that in their middle it does not matter how chroma is resampled.
std::vector<std::array<int, 4>> colours_of(const Caps& caps, const Data& picture, const std::string& converter) {
  constexpr std::size_t bands = 16, band = 16;
  Pipeline pipeline(on_new_channel("appsrc name=in format=time ! " + converter +
                                   " ! video/x-raw,format=RGBA ! appsink name=out sync=false"));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), new_buffer(picture));
  const Sample sample = pull(pipeline.appsink());
  std::vector<std::array<int, 4>> colours;
  if (!sample) return colours;
  const Data got = data_of(gst_sample_get_buffer(sample.get()));
  for (std::size_t i = 0; i < bands; ++i) {
    auto& colour = colours.emplace_back();
    for (std::size_t c = 0; c < 4; ++c) {
      colour[c] = std::to_integer<int>(got[4 * (bands * band * 8 + i * band + band / 2) + c]);
    }
  }
  return colours;
}

// Its default: the matrix and the range, and neither the transfer function nor the primaries.
TEST(ConvertColorimetry, IsWhatVideoconvertMakesOfIt) {
  for (const char* format : {"NV12", "P010_10LE", "RGB"}) {
    // The last two: the matrix of the FCC, and BT.2020 in full range.
    for (const char* colorimetry :
         {"bt601", "bt709", "smpte240m", "bt2020", "bt2020-10", "bt2100-pq", "bt2100-hlg", "2:2:4:2", "1:6:14:7"}) {
      SCOPED_TRACE(testing::Message() << format << " " << colorimetry);
      const bool is_rgb = std::string_view(format) == "RGB";
      Caps caps = video_caps(format, 256, 16);
      gst_caps_set_simple(caps.get(), "colorimetry", G_TYPE_STRING, is_rgb ? "1:1:14:7" : colorimetry, nullptr);
      const GstVideoInfo info = info_of(caps.get());
      Data picture(info.size);
      for (std::size_t i = 0; i < picture.size(); ++i) {
        const auto stride = static_cast<std::size_t>(info.stride[0]);
        const std::size_t pair = is_rgb ? 3 : format[0] == 'P' ? 4 : 2;  // bytes whose values belong together
        const std::size_t place = i % stride / (is_rgb ? 48 : format[0] == 'P' ? 32 : 16);
        const std::size_t component = i < info.offset[1] && !is_rgb ? 0 : 1 + i % pair * (pair == 4 ? 1 : 2) / 2;
        // 40 to 215: of limited range too.
        picture[i] = std::byte(40 + (place * 67 + component * 101) % 176);
      }
      const auto expected =
          colours_of(caps, picture, "videoconvert dither=none ! video/x-raw,format=ARGB64 ! videoconvert dither=none");
      const auto got =
          colours_of(caps, picture, "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=convert");
      ASSERT_EQ(got.size(), 16U);
      ASSERT_EQ(expected.size(), 16U);
      int worst = 0;
      for (std::size_t i = 0; i < 16; ++i) {
        for (std::size_t c = 0; c < 4; ++c) worst = std::max(worst, std::abs(got[i][c] - expected[i][c]));
      }
      EXPECT_LE(worst, 3);  // videoconvert's own rounding
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Convert,
    testing::Values(Image{"NV12", GPUMAP_FORMAT_NV12, 1917, 1081, "bt709", ColorMatrix::bt709, ColorRange::limited},
                    Image{"NV12", GPUMAP_FORMAT_NV12, 33, 7, "1:4:0:0", ColorMatrix::bt601, ColorRange::full},
                    Image{"NV12", GPUMAP_FORMAT_NV12, 1, 1, "bt601", ColorMatrix::bt601, ColorRange::limited},
                    Image{"I420", GPUMAP_FORMAT_I420, 33, 7, "bt601", ColorMatrix::bt601, ColorRange::limited},
                    Image{"I420", GPUMAP_FORMAT_I420, 641, 361, "1:3:5:1", ColorMatrix::bt709, ColorRange::full},
                    Image{"YUY2", GPUMAP_FORMAT_YUY2, 33, 7, "bt709", ColorMatrix::bt709, ColorRange::limited},
                    Image{"UYVY", GPUMAP_FORMAT_UYVY, 35, 3, "bt601", ColorMatrix::bt601, ColorRange::limited},
                    Image{"RGB", GPUMAP_FORMAT_RGB, 33, 7, "sRGB", ColorMatrix::rgb, ColorRange::full},
                    Image{"BGR", GPUMAP_FORMAT_BGR, 31, 9, "sRGB", ColorMatrix::rgb, ColorRange::full},
                    Image{"RGBA", GPUMAP_FORMAT_RGBA, 33, 7, "sRGB", ColorMatrix::rgb, ColorRange::full},
                    Image{"BGRA", GPUMAP_FORMAT_BGRA, 127, 2, "2:1:7:1", ColorMatrix::rgb, ColorRange::limited},
                    Image{"P010_10LE", GPUMAP_FORMAT_P010, 33, 7, "bt2020", ColorMatrix::bt2020, ColorRange::limited},
                    Image{"P010_10LE", GPUMAP_FORMAT_P010, 641, 361, "1:3:5:1", ColorMatrix::bt709, ColorRange::full},
                    Image{"v210", GPUMAP_FORMAT_V210, 49, 7, "bt709", ColorMatrix::bt709, ColorRange::limited},
                    Image{"Y210", GPUMAP_FORMAT_Y210, 33, 7, "bt709", ColorMatrix::bt709, ColorRange::limited},
                    Image{"Y42B", GPUMAP_FORMAT_Y42B, 33, 7, "bt709", ColorMatrix::bt709, ColorRange::limited},
                    Image{"Y42B", GPUMAP_FORMAT_Y42B, 640, 3, "1:4:0:0", ColorMatrix::bt601, ColorRange::full},
                    Image{"Y444", GPUMAP_FORMAT_Y444, 33, 7, "bt601", ColorMatrix::bt601, ColorRange::limited},
                    Image{"I420_10LE", GPUMAP_FORMAT_I420_10, 33, 7, "bt2020-10", ColorMatrix::bt2020,
                          ColorRange::limited},
                    Image{"Y444_10LE", GPUMAP_FORMAT_Y444_10, 31, 9, "1:6:14:7", ColorMatrix::bt2020, ColorRange::full},
                    Image{"P016_LE", GPUMAP_FORMAT_P016, 33, 7, "bt709", ColorMatrix::bt709, ColorRange::limited},
                    Image{"GRAY8", GPUMAP_FORMAT_GRAY8, 33, 7, "1:4:0:0", ColorMatrix::rgb, ColorRange::full},
                    Image{"GRAY16_LE", GPUMAP_FORMAT_GRAY16, 33, 7, "2:4:0:0", ColorMatrix::rgb, ColorRange::limited}),
    [](const auto& test) {
      return test.param.format + "_" + std::to_string(test.param.width) + "x" + std::to_string(test.param.height);
    });

}  // namespace
}  // namespace gpumap::gst::test
