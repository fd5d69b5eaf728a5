// SPDX-License-Identifier: MIT
// Padded rows: a downstream that reads GstVideoMeta gets the slot as it is, one that does not gets default strides.
#include <cstring>

#include "pipeline.hpp"

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
                         testing::Values("", "gpumapkernel kernel=checksum ! ", "gpumapkernel kernel=identity ! "),
                         [](const auto& test) {
                           const std::string_view text(test.param);
                           return text.empty() ? "Src" : text.find("sum") != text.npos ? "Checksum" : "Identity";
                         });

}  // namespace
}  // namespace gpumap::gst::test
