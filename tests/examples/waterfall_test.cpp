// SPDX-License-Identifier: MIT
// examples/waterfall: a colour for each number, whatever it is.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "example.hpp"

namespace gpumap::gst::test {
namespace {

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

}  // namespace
}  // namespace gpumap::gst::test
