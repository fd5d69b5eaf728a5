// SPDX-License-Identifier: MIT
// examples/focus: the figure against the CPU's, and the lens at its ends.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "example.hpp"

namespace gpumap::gst::test {
namespace {

/// By its definition: two passes in double.
double variance_of_laplacian(const Data& data, const GstVideoInfo& info) {
  const auto stride = static_cast<std::size_t>(GST_VIDEO_INFO_PLANE_STRIDE(&info, 0));
  const auto luma = [&](int x, int y) {
    return std::to_integer<int>(data[static_cast<std::size_t>(y) * stride + static_cast<std::size_t>(x)]);
  };
  std::vector<double> values;
  for (int y = 1; y + 1 < GST_VIDEO_INFO_HEIGHT(&info); ++y) {
    for (int x = 1; x + 1 < GST_VIDEO_INFO_WIDTH(&info); ++x) {
      values.push_back(4 * luma(x, y) - luma(x - 1, y) - luma(x + 1, y) - luma(x, y - 1) - luma(x, y + 1));
    }
  }
  if (values.empty()) return 0;
  const auto count = static_cast<double>(values.size());
  double mean = 0;
  for (const double value : values) mean += value / count;
  double variance = 0;
  for (const double value : values) variance += (value - mean) * (value - mean) / count;
  return variance;
}

class Focus : public Example {
 protected:
  static std::string through(const std::string& kernel_name, const std::string& options, const std::string& caps) {
    return on_new_channel(
        "appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel location=" +
        kernel("focus/" + kernel_name) + " " + options + " ! " + caps + " ! appsink name=out sync=false");
  }
};

TEST_P(Focus, IsTheVarianceOfTheLaplacian) {
  for (const char* format : {"NV12", "I420", "GRAY8"}) {
    for (const auto& [width, height] : {std::pair(641, 363), {33, 9}, {3, 3}, {1, 7}, {320, 2}}) {
      SCOPED_TRACE(testing::Message() << format << " " << width << "x" << height);
      const Caps caps = video_caps(format, width, height);
      GstVideoInfo info;
      ASSERT_TRUE(gst_video_info_from_caps(&info, caps.get()));
      Pipeline pipeline(through("focus", "", "application/x-focus"));
      gst_app_src_set_caps(pipeline.appsrc(), caps.get());
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      // The second frame is flat, the last one the first again: sums begin at zero each time.
      const Data random = random_data(info.size, 3);
      std::vector<double> figures;
      for (const Data& data : {random, Data(info.size, std::byte{77}), random}) {
        push(pipeline.appsrc(), new_buffer(data));
        const Sample sample = pull(pipeline.appsink());
        ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
        GstBuffer* buffer = gst_sample_get_buffer(sample.get());
        GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer, "GpumapResult");
        gdouble figure = -1;
        ASSERT_TRUE(meta != nullptr &&
                    gst_structure_get_double(gst_custom_meta_get_structure(meta), "sharpness", &figure));
        const double expected = variance_of_laplacian(data, info);
        EXPECT_NEAR(figure, expected, expected * 1e-6);
        float out = -1;
        ASSERT_EQ(gst_buffer_extract(buffer, 0, &out, 4), 4U);
        EXPECT_EQ(double{out}, figure);
        figures.push_back(figure);
      }
      EXPECT_EQ(figures[1], 0.0);
      EXPECT_EQ(figures[0], figures[2]);
    }
  }
}

// Black and white pixels in turns have no neighbour alike: as sharp as it gets, and of 4K more than 32 bits hold.
TEST_P(Focus, HoldsTheLargestSums) {
  const Caps caps = video_caps("GRAY8", 3840, 2160);
  Pipeline pipeline(through("focus", "", "application/x-focus"));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Data data(std::size_t{3840} * 2160);
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = std::byte{(i / 3840 + i) % 2 == 0 ? std::uint8_t{0} : std::uint8_t{255}};
  push(pipeline.appsrc(), new_buffer(data));
  const Sample sample = pull(pipeline.appsink());
  ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
  float figure = 0;
  ASSERT_EQ(gst_buffer_extract(gst_sample_get_buffer(sample.get()), 0, &figure, 4), 4U);
  EXPECT_EQ(figure, 1020.0F * 1020.0F);
}

// In focus at half a period; out of it a point is a disc.
TEST_P(Focus, LensSwings) {
  constexpr int size = 41;
  constexpr std::size_t stride = 44;
  Pipeline pipeline(through("defocus", "params=radius=4,period=2", "video/x-raw,format=GRAY8"));
  gst_app_src_set_caps(pipeline.appsrc(), video_caps("GRAY8", size, size).get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Data point(stride * size);
  point[stride * 20 + 20] = std::byte{255};
  const auto at = [&](GstClockTime pts) {
    push(pipeline.appsrc(), new_buffer(point, pts));
    const Sample sample = pull(pipeline.appsink());
    EXPECT_NE(sample, nullptr) << pipeline.wait(1ms);
    return sample ? data_of(gst_sample_get_buffer(sample.get())) : Data(point.size());
  };
  const Data blurred = at(0);
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) {
      const double distance = std::hypot(x - 20, y - 20);
      const int value =
          std::to_integer<int>(blurred[stride * static_cast<std::size_t>(y) + static_cast<std::size_t>(x)]);
      // The rim counts in part.
      if (distance > 3.5 && distance < 4.5) continue;
      EXPECT_NEAR(value, distance < 4 ? 255 / (std::numbers::pi * 4 * 4) : 0, 1) << x << "," << y;
    }
  }
  EXPECT_EQ(at(GST_SECOND), point);
}

GPUMAP_BOTH_LANGUAGES(Focus);

// examples/waterfall: a colour for each number, whatever it is.

class Waterfall : public Example {};

TEST_P(Waterfall, GivesEachLevelItsColour) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time caps=application/octet-stream ! gpumapsink $CHANNEL gpumapsrc "
                     "$CHANNEL ! gpumapkernel params=\"floor=-60,ceiling=-20\" location=" +
                     kernel("waterfall/colour") + " ! application/x-rgba-rows ! appsink name=out sync=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  constexpr double fire[5][3] = {{0, 0, 0}, {0.3, 0, 0.45}, {0.85, 0.2, 0.3}, {1, 0.7, 0.1}, {1, 1, 1}};
  std::vector<float> levels;
  for (int i = 0; i <= 1000; ++i) levels.push_back(-70.0F + 0.06F * static_cast<float>(i));
  levels.push_back(-std::numeric_limits<float>::infinity());  // of a power of 0
  levels.push_back(std::numeric_limits<float>::infinity());
  Data data(levels.size() * sizeof(float));
  std::memcpy(data.data(), levels.data(), data.size());
  push(pipeline.appsrc(), new_buffer(data));
  const Sample sample = pull(pipeline.appsink());
  ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
  const Data pixels = data_of(gst_sample_get_buffer(sample.get()));
  ASSERT_EQ(pixels.size(), data.size());
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const double height = std::clamp((levels[i] + 60.0) / 40, 0.0, 1.0) * 4;
    const auto below = std::min<std::size_t>(static_cast<std::size_t>(height), 3);
    for (std::size_t c = 0; c < 3; ++c) {
      const double value = std::lerp(fire[below][c], fire[below + 1][c], height - static_cast<double>(below));
      ASSERT_NEAR(std::to_integer<int>(pixels[4 * i + c]), value * 255, 0.51) << levels[i];
    }
    ASSERT_EQ(pixels[4 * i + 3], std::byte{255});
  }
}

// More frames than the picture has lines, of one row and of several, of which the last one shows.
TEST_P(Waterfall, Scrolls) {
  constexpr std::size_t width = 37, height = 11;
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time caps=application/x-rgba-rows ! gpumapsink $CHANNEL gpumapsrc "
                     "$CHANNEL ! gpumapkernel params=\"width=37,height=11\" location=" +
                     kernel("waterfall/scroll") + " ! video/x-raw,format=RGBA ! appsink name=out sync=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<Data> lines;
  for (std::size_t n = 0; n < 30; ++n) {
    const Data rows = random_data(4 * width * (1 + n % 3), n);
    lines.emplace_back(rows.end() - 4 * width, rows.end());
    for (std::size_t x = 0; x < width; ++x) lines.back()[4 * x + 3] = std::byte{255};
    push(pipeline.appsrc(), new_buffer(rows));
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
    Data black(4 * width);
    for (std::size_t x = 0; x < width; ++x) black[4 * x + 3] = std::byte{255};
    Data expected;
    for (std::size_t y = 0; y < height; ++y) {
      const Data& line = y <= n ? lines[n - y] : black;
      expected.insert(expected.end(), line.begin(), line.end());
    }
    ASSERT_EQ(data_of(gst_sample_get_buffer(sample.get())), expected) << n;
  }
}

GPUMAP_BOTH_LANGUAGES(Waterfall);

// examples/tensor: what kernel=convert makes of a picture is that picture again.

class Tensor : public Example {};

// Halves tell all 256 values apart, also after normalising.
TEST_P(Tensor, IsThePictureThatItWasMadeOf) {
  const std::string normalise = "params=\"mean=[0.485,0.456,0.406],scale=[4.367,4.464,4.444]\"";
  for (const auto& [type, width, height] :
       {std::tuple("float16", 224, 224), {"float16", 333, 17}, {"float32", 333, 17}, {"float16", 1, 1}}) {
    SCOPED_TRACE(testing::Message() << type << ", " << width << "x" << height);
    Pipeline pipeline(
        on_new_channel(fmt::format("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                                   "gpumapkernel kernel=convert {0} ! "
                                   "application/x-tensor(memory:GPUMap),type={1},layout=chw,channels=3 ! "
                                   "gpumapkernel location={2} {0} ! appsink name=out sync=false",
                                   normalise, type, kernel("tensor/from_tensor"))));
    gst_app_src_set_caps(pipeline.appsrc(), video_caps("RGBA", width, height).get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    Data picture = random_data(std::size_t{4} * static_cast<unsigned>(width) * static_cast<unsigned>(height), 5);
    for (std::size_t alpha = 3; alpha < picture.size(); alpha += 4) picture[alpha] = std::byte{255};
    push(pipeline.appsrc(), new_buffer(picture));
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
    GstVideoInfo info;
    ASSERT_TRUE(gst_video_info_from_caps(&info, gst_sample_get_caps(sample.get())));
    EXPECT_EQ(GST_VIDEO_INFO_FORMAT(&info), GST_VIDEO_FORMAT_RGBA);
    EXPECT_EQ(GST_VIDEO_INFO_WIDTH(&info), width);
    EXPECT_EQ(GST_VIDEO_INFO_HEIGHT(&info), height);
    EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), picture);
  }
}

GPUMAP_BOTH_LANGUAGES(Tensor);

}  // namespace
}  // namespace gpumap::gst::test
