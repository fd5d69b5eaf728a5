// SPDX-License-Identifier: MIT
// kernel=convert for what cameras and capture cards give and networks take: Bayer, tensors of every type and layout,
// other sizes, parts of the picture, and how caps are agreed on.
#include <gmock/gmock.h>

#include <array>
#include <optional>
#include <ostream>
#include <string_view>

#include "builtin_reference.hpp"
#include "gpumap/kernel.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using reference::Layout;
using ::testing::HasSubstr;

/// A layout without padding, or with rows of a multiple of 4 bytes, as GStreamer has video and Bayer.
Layout packed(std::uint32_t format, std::uint32_t width, std::uint32_t height, bool rows_of_4) {
  Layout layout = reference::layout(format, width, height, true);
  layout.bytes = 0;
  for (reference::Plane& plane : layout.planes) {
    plane.stride = rows_of_4 ? (plane.row_bytes + 3) / 4 * 4 : plane.row_bytes;
    plane.offset = layout.bytes;
    layout.bytes += plane.stride * plane.rows;
  }
  return layout;
}

/// One frame of random bytes through convert: what arrives, else null and `error` has the reason.
struct Conversion {
  std::string in, to, params;
  std::string error;

  Sample run(const Data& data) {
    Pipeline pipeline(
        on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                       "gpumapkernel name=convert kernel=convert ! capsfilter name=to ! "
                       "appsink name=out sync=false"));
    g_object_set(pipeline.element("convert"), "params", params.c_str(), nullptr);
    g_object_set(pipeline.element("to"), "caps", new_caps(to).get(), nullptr);
    gst_app_src_set_caps(pipeline.appsrc(), new_caps(in).get());
    EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    push(pipeline.appsrc(), new_buffer(data));
    gst_app_src_end_of_stream(pipeline.appsrc());
    Sample sample = pull(pipeline.appsink());
    if (!sample) error = pipeline.wait(at_once);
    return sample;
  }
};

/// The bytes of `sample` against the reference. `coding` is of outputs in formats of luma.
void expect_picture(const Layout& in, const Data& data, const gpumap_color& color, const reference::Crop& crop,
                    const Layout& out, GstSample* sample, const std::array<float, 6>& params,
                    const std::optional<reference::Coding>& coding = {}) {
  const Data got = data_of(gst_sample_get_buffer(sample));
  ASSERT_EQ(got.size(), out.bytes);
  double worst = 0;
  for (std::size_t y = 0; y < out.height; ++y) {
    for (std::size_t x = 0; x < out.width; ++x) {
      if (coding) {
        const auto rgb_at = [&](std::size_t column, std::size_t row) {
          return reference::wide_rgb(color, reference::resampled(in, data, crop, column, row, out.width, out.height));
        };
        worst = std::max(worst, reference::luma_difference(out, got, *coding, x, y, rgb_at));
        continue;
      }
      const auto component = reference::resampled(in, data, crop, x, y, out.width, out.height);
      const auto rgb = reference::rgb(color, component);
      for (std::size_t c = 0; c < 4; ++c) {
        const std::array<double, 4> expected{rgb[0], rgb[1], rgb[2], component[3]};
        worst = std::max(worst, reference::difference(out, got.data(), x, y, c, expected, params.data()));
      }
    }
  }
  EXPECT_LE(worst, 0.0005);
}

constexpr std::array<float, 6> no_normalisation{0, 0, 0, 1, 1, 1};

std::pair<gint, gint> size_of(GstSample* sample) {
  gint width = 0;
  gint height = 0;
  const GstStructure* structure = gst_caps_get_structure(gst_sample_get_caps(sample), 0);
  gst_structure_get(structure, "width", G_TYPE_INT, &width, "height", G_TYPE_INT, &height, nullptr);
  return {width, height};
}

struct Output {
  const char* caps;
  std::uint32_t format;
  bool rows_of_4;
  std::optional<reference::Coding> coding = {};
};
/// As GStreamer lays it out.
Layout layout_of(const Output& output, std::uint32_t width, std::uint32_t height) {
  if (!output.coding) return packed(output.format, width, height, output.rows_of_4);
  GstVideoInfo info;
  const std::string_view caps = output.caps;
  const std::string name(caps.substr(caps.find('=') + 1));
  gst_video_info_set_format(&info, gst_video_format_from_string(name.c_str()), width, height);
  Layout layout{.format = output.format, .width = width, .height = height, .planes = {}, .bytes = info.size};
  for (guint i = 0; i < GST_VIDEO_INFO_N_PLANES(&info); ++i) {
    layout.planes.push_back({info.offset[i], 0, 0, static_cast<std::size_t>(info.stride[i])});
  }
  return layout;
}
constexpr std::array outputs{
    Output{"video/x-raw,format=RGBA", GPUMAP_FORMAT_RGBA, true},
    Output{"video/x-raw,format=BGRA", GPUMAP_FORMAT_BGRA, true},
    Output{"video/x-raw,format=RGB", GPUMAP_FORMAT_RGB, true},
    Output{"video/x-raw,format=GRAY8", GPUMAP_FORMAT_GRAY8, true, reference::Coding{}},
    Output{"video/x-raw,format=NV12", GPUMAP_FORMAT_NV12, true,
           reference::Coding{ColorMatrix::bt709, ColorRange::limited, 8, 2, 2}},
    Output{"video/x-raw,format=I420", GPUMAP_FORMAT_I420, true,
           reference::Coding{ColorMatrix::bt709, ColorRange::limited, 8, 2, 2}},
    Output{"video/x-raw,format=P010_10LE", GPUMAP_FORMAT_P010, true,
           reference::Coding{ColorMatrix::bt709, ColorRange::limited, 10, 2, 2}},
    Output{"video/x-raw,format=YUY2", GPUMAP_FORMAT_YUY2, true,
           reference::Coding{ColorMatrix::bt709, ColorRange::limited, 8, 2, 1}},
    Output{"video/x-raw,format=Y444", GPUMAP_FORMAT_Y444, true,
           reference::Coding{ColorMatrix::bt709, ColorRange::limited}},
    Output{"application/x-tensor,type=float32,layout=chw", GPUMAP_FORMAT_RGB_F32_PLANAR, false},
    Output{"application/x-tensor,type=float16,layout=chw", GPUMAP_FORMAT_RGB_F16_PLANAR, false},
    Output{"application/x-tensor,type=uint8,layout=chw", GPUMAP_FORMAT_RGB_U8_PLANAR, false},
    Output{"application/x-tensor,type=float32,layout=hwc", GPUMAP_FORMAT_RGB_F32, false},
    Output{"application/x-tensor,type=float16,layout=hwc", GPUMAP_FORMAT_RGB_F16, false},
    Output{"application/x-tensor,type=uint8,layout=hwc", GPUMAP_FORMAT_RGB_U8, false},
};

void PrintTo(const Output& output, std::ostream* out) {
  *out << output.caps;
}

// One test an output: each compiles kernels, and has a time limit of its own.
class CaptureOutput : public testing::TestWithParam<Output> {};

TEST_P(CaptureOutput, IsRightAtEverySize) {
  const Layout in = packed(GPUMAP_FORMAT_YUY2, 34, 21, true);
  const Data data = random_data(in.bytes, 5);
  const gpumap_color color = color_matrix(ColorMatrix::bt709, ColorRange::limited);
  for (const auto& [width, height] : {std::pair{34U, 21U}, {21U, 34U}, {7U, 5U}, {67U, 63U}}) {
    for (const char* memory : {"", "(memory:GPUMap)"}) {
      std::string to = GetParam().caps;
      to.insert(to.find(','), memory);
      to += ",width=" + std::to_string(width) + ",height=" + std::to_string(height);
      SCOPED_TRACE(to);
      Conversion conversion{.in = "video/x-raw,format=YUY2,width=34,height=21,framerate=30/1,colorimetry=bt709",
                            .to = to,
                            .params = "mean=[0.5,0.25,0.125],scale=[2,1,-3]",
                            .error = {}};
      const Sample sample = conversion.run(data);
      ASSERT_NE(sample, nullptr) << conversion.error;
      expect_picture(in, data, color, {0, 0, 34, 21}, layout_of(GetParam(), width, height), sample.get(),
                     {0.5F, 0.25F, 0.125F, 2, 1, -3}, GetParam().coding);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CaptureOutput, testing::ValuesIn(outputs));

TEST(Capture, BayerOfEveryOrderAndDepth) {
  constexpr std::array orders{"bggr", "gbrg", "grbg", "rggb"};
  for (std::uint32_t order = 0; order < orders.size(); ++order) {
    for (const unsigned bits : {8U, 10U, 12U, 14U, 16U}) {
      const std::uint32_t first = bits == 8 ? GPUMAP_FORMAT_BAYER8_BGGR : GPUMAP_FORMAT_BAYER16_BGGR;
      const Layout in = packed(first + order, 38, 10, true);
      Layout padded = in;
      padded.planes[0].stride = bits == 8 ? 40 : 80;  // of whole groups of 4 samples
      padded.bytes = padded.planes[0].stride * 10;
      Data data = random_data(padded.bytes, bits);
      if (bits > 8) {
        for (std::size_t i = 1; i < data.size(); i += 2) data[i] &= std::byte((1U << (bits - 8)) - 1);
      }
      const std::string depth = bits == 8 ? "" : std::to_string(bits) + "le";
      Conversion conversion{
          .in = std::string("video/x-bayer,format=") + orders[order] + depth + ",width=38,height=10,framerate=30/1",
          .to = "application/x-tensor",
          .params = "",
          .error = {}};
      SCOPED_TRACE(conversion.in);
      const Sample sample = conversion.run(data);
      ASSERT_NE(sample, nullptr) << conversion.error;
      expect_picture(padded, data, color_matrix(ColorMatrix::rgb, ColorRange::full, bits), {0, 0, 38, 10},
                     packed(GPUMAP_FORMAT_RGB_F32_PLANAR, 38, 10, false), sample.get(), no_normalisation);
    }
  }
}

TEST(Capture, AgreesOnCaps) {
  struct Case {
    const char *to, *params;
    gint width, height;
    const char* has;  ///< in the caps that come out
  };
  const std::string in = "video/x-raw,format=NV12,width=64,height=48,framerate=30/1,pixel-aspect-ratio=4/3";
  for (const Case& chosen : {
           Case{"ANY", "", 64, 48, "format=(string)RGBA"},
           Case{"video/x-raw", "", 64, 48, "pixel-aspect-ratio=(fraction)4/3"},
           Case{"video/x-raw,width=32", "", 32, 48, "RGBA"},
           Case{"video/x-raw,height=[10,20]", "", 36, 20, "RGBA"},  // of its shape, in square pixels
           Case{"video/x-raw,width=32,height=100,format=GRAY8", "", 32, 100, "framerate=(fraction)30/1"},
           Case{"video/x-raw,width=32,height=32,pixel-aspect-ratio=1/1", "", 32, 32, "1/1"},
           Case{"application/x-tensor", "", 64, 48, "type=(string)float32, layout=(string)chw, channels=(int)3"},
           Case{"application/x-tensor,type=uint8,width=20,height=20", "", 20, 20, "layout=(string)chw"},
           Case{"video/x-raw", "crop=[10,8,30,20]", 30, 20, "RGBA"},
           Case{"video/x-raw", "crop=[10,8,0,20]", 54, 20, "RGBA"},
           Case{"video/x-raw,height=40", "crop=[10,8,30,20]", 30, 40, "RGBA"},
           Case{"application/x-tensor,width=64,height=48", "crop=[10,8,30,20]", 64, 48, "float32"},
       }) {
    SCOPED_TRACE(chosen.to + std::string(" ") + chosen.params);
    Conversion conversion{.in = in, .to = chosen.to, .params = chosen.params, .error = {}};
    const Sample sample = conversion.run(random_data(64 * 48 * 3 / 2, 1));
    ASSERT_NE(sample, nullptr) << conversion.error;
    EXPECT_EQ(size_of(sample.get()), std::pair(chosen.width, chosen.height));
    gchar* caps = gst_caps_to_string(gst_sample_get_caps(sample.get()));
    EXPECT_THAT(caps, HasSubstr(chosen.has));
    g_free(caps);
  }
}

TEST(Capture, CropShowsAPart) {
  const Layout in = packed(GPUMAP_FORMAT_RGB, 40, 30, true);
  const Data data = random_data(in.bytes, 9);
  Conversion conversion{.in = "video/x-raw,format=RGB,width=40,height=30,framerate=30/1",
                        .to = "video/x-raw,format=RGB",
                        .params = "crop=[7,5,21,13]",
                        .error = {}};
  const Sample sample = conversion.run(data);
  ASSERT_NE(sample, nullptr) << conversion.error;
  expect_picture(in, data, color_matrix(ColorMatrix::rgb, ColorRange::full), {7, 5, 21, 13},
                 packed(GPUMAP_FORMAT_RGB, 21, 13, true), sample.get(), no_normalisation);
}

TEST(Capture, RefusesWhatItCannotShow) {
  const std::string in = "video/x-raw,format=NV12,width=64,height=48,framerate=30/1";
  const Data data = random_data(64 * 48 * 3 / 2, 1);
  for (const auto& [params, what] : {std::pair{"crop=[0,0,65,0]", "pixels across: outside the picture of 64"},
                                     {"crop=[0,48,0,0]", "pixels down: outside the picture of 48"}}) {
    Conversion conversion{.in = in, .to = "video/x-raw", .params = params, .error = {}};
    EXPECT_EQ(conversion.run(data), nullptr) << params;
    EXPECT_THAT(conversion.error, HasSubstr(what));
  }
  Conversion interlaced{
      .in = in + ",interlace-mode=interleaved", .to = "video/x-raw,height=24", .params = "", .error = {}};
  EXPECT_EQ(interlaced.run(data), nullptr);
  EXPECT_THAT(interlaced.error, HasSubstr("does not take video/x-raw"));
  EXPECT_THAT(interlaced.error, HasSubstr("put deinterlace before gpumap"));
  interlaced.to = "video/x-raw";
  interlaced.params = "crop=[0,0,0,24]";
  EXPECT_EQ(interlaced.run(data), nullptr);
  EXPECT_THAT(interlaced.error, HasSubstr("an interlaced picture is neither cropped nor resized"));
}

// And goes on with the one of before.
TEST(Capture, RefusesACropWhileItPlays) {
  Pipeline pipeline(on_new_channel(
      "videotestsrc is-live=true ! video/x-raw,format=NV12,width=64,height=48,framerate=60/1 ! gpumapsink $CHANNEL "
      "gpumapsrc $CHANNEL is-live=true ! gpumapkernel name=convert kernel=convert ! fakesink"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  g_object_set(pipeline.element("convert"), "params", "crop=[0,0,100,0]", nullptr);
  (void)eventually([&] { return pipeline.wait(100ms) != "timeout" || !pipeline.warnings().empty(); });
  ASSERT_EQ(pipeline.error(), "");
  ASSERT_FALSE(pipeline.warnings().empty());
  EXPECT_THAT(pipeline.warnings()[0], HasSubstr("outside the picture of 64"));
}

// The same picture as GStreamer's own elements make, but for their rounding and interpolation of chroma.
TEST(Capture, LooksAsVideoconvertMakesIt) {
  for (const char* format : {"P010_10LE", "v210", "Y210", "GRAY8", "GRAY16_LE", "NV12"}) {
    SCOPED_TRACE(format);
    Pipeline pipeline(on_new_channel(
        std::string(
            "videotestsrc num-buffers=1 pattern=ball ! videoconvert ! video/x-raw,width=640,height=480,format=") +
        format +
        " ! tee name=t  t. ! queue ! gpumapsink $CHANNEL  gpumapsrc $CHANNEL ! gpumapkernel kernel=convert ! "
        "video/x-raw,format=RGBA,width=320,height=240 ! appsink name=ours sync=false  "
        "t. ! queue ! videoscale ! videoconvert ! video/x-raw,format=RGBA,width=320,height=240 ! "
        "appsink name=theirs sync=false"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const Sample ours = pull(pipeline.appsink("ours")), theirs = pull(pipeline.appsink("theirs"));
    ASSERT_NE(ours, nullptr) << pipeline.wait(1ms);
    ASSERT_NE(theirs, nullptr) << pipeline.wait(1ms);
    const Data a = data_of(gst_sample_get_buffer(ours.get())), b = data_of(gst_sample_get_buffer(theirs.get()));
    ASSERT_EQ(a.size(), b.size());
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(std::to_integer<int>(a[i]) - std::to_integer<int>(b[i]));
    EXPECT_LT(sum / static_cast<double>(a.size()), 1.0);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
