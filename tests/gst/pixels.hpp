// SPDX-License-Identifier: MIT
//
// The pixels of a picture without its padding, which may hold anything, and which gst_video_frame_copy() copies, too,
// from GStreamer 1.24 on.
#pragma once

#include <array>
#include <cstring>

#include "pipeline.hpp"

namespace gpumap::gst::test {

/// Plane by plane and row by row, each row as wide as the picture.
inline Data pixels_of(GstSample* sample) {
  GstVideoInfo info;
  EXPECT_TRUE(gst_video_info_from_caps(&info, gst_sample_get_caps(sample)));
  GstVideoFrame frame;
  EXPECT_TRUE(gst_video_frame_map(&frame, &info, gst_sample_get_buffer(sample), GST_MAP_READ));
  Data pixels;
  for (guint plane = 0; plane < GST_VIDEO_FRAME_N_PLANES(&frame); ++plane) {
    std::array<gint, GST_VIDEO_MAX_COMPONENTS> components{};
    gst_video_format_info_component(info.finfo, plane, components.data());
    const auto component = static_cast<guint>(components[0]);
    const auto bytes = GST_VIDEO_FRAME_COMP_WIDTH(&frame, component) * GST_VIDEO_FRAME_COMP_PSTRIDE(&frame, component);
    const auto* first = static_cast<const std::byte*>(GST_VIDEO_FRAME_PLANE_DATA(&frame, plane));
    for (std::ptrdiff_t row = 0; row < GST_VIDEO_FRAME_COMP_HEIGHT(&frame, component); ++row) {
      const std::byte* begin = first + row * GST_VIDEO_FRAME_PLANE_STRIDE(&frame, plane);
      pixels.insert(pixels.end(), begin, begin + bytes);
    }
  }
  gst_video_frame_unmap(&frame);
  return pixels;
}

}  // namespace gpumap::gst::test
