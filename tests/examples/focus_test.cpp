// SPDX-License-Identifier: MIT
// examples/focus: the figure against the CPU's, and the lens at its ends.
#include <gmock/gmock.h>

#include <cmath>
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

}  // namespace
}  // namespace gpumap::gst::test
