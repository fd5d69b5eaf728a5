// SPDX-License-Identifier: MIT
#include "gst/memory/video_layout.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "gpumap/error.hpp"

namespace gpumap::gst {

bool peer_reads_video_meta(GstPad* pad, GstCaps* caps) {
  GstQuery* query = gst_query_new_allocation(caps, FALSE);
  const bool reads = gst_pad_peer_query(pad, query) != 0 &&
                     gst_query_find_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr) != 0;
  gst_query_unref(query);
  return reads;
}

GstBuffer* in_default_layout(GstBuffer* buffer, const GstVideoInfo& info) {
  const GstVideoMeta* meta = gst_buffer_get_video_meta(buffer);
  if (meta == nullptr) return buffer;
  bool same = true;
  for (guint plane = 0; plane < meta->n_planes; ++plane) {
    same = same && meta->offset[plane] == info.offset[plane] && meta->stride[plane] == info.stride[plane];
  }
  if (same) return buffer;

  GstBuffer* packed = gst_buffer_new_allocate(nullptr, info.size, nullptr);
  GstVideoInfo mutable_info = info;  // GStreamer 1.22 takes it without const
  GstVideoFrame from;
  GstVideoFrame to;
  bool copied = false;
  if (gst_video_frame_map(&from, &mutable_info, buffer, GST_MAP_READ)) {
    if (gst_video_frame_map(&to, &mutable_info, packed, GST_MAP_WRITE)) {
      copied = gst_video_frame_copy(&to, &from) != 0;
      gst_video_frame_unmap(&to);
    }
    gst_video_frame_unmap(&from);
  }
  if (!copied) {
    const gsize bytes = gst_buffer_get_size(buffer);
    gst_buffer_unref(buffer);
    gst_buffer_unref(packed);
    throw Error(ErrorCode::io,
                fmt::format("cannot read a frame of {} bytes as its GstVideoMeta describes it, to give it to a "
                            "downstream that knows no such meta: see what upstream sends (GST_DEBUG=gpumapmemory:4 "
                            "tells of memory that cannot be mapped)",
                            bytes));
  }
  gst_buffer_copy_into(
      packed, buffer,
      static_cast<GstBufferCopyFlags>(static_cast<unsigned>(GST_BUFFER_COPY_FLAGS) | GST_BUFFER_COPY_TIMESTAMPS |
                                      GST_BUFFER_COPY_META | GST_BUFFER_COPY_DEEP),
      0, static_cast<gsize>(-1));
  gst_buffer_unref(buffer);
  return packed;
}

PlaneExtent plane_extent(const GstVideoInfo& info, guint plane) noexcept {
  if (plane == 1 && GST_VIDEO_FORMAT_INFO_HAS_PALETTE(info.finfo)) return {.row_bytes = palette_bytes, .rows = 1};
  PlaneExtent extent;
  for (guint component = 0; component < GST_VIDEO_INFO_N_COMPONENTS(&info); ++component) {
    if (static_cast<guint>(GST_VIDEO_INFO_COMP_PLANE(&info, component)) != plane) continue;
    const auto pixels = static_cast<std::size_t>(GST_VIDEO_INFO_COMP_WIDTH(&info, component));
    const auto bytes = static_cast<std::size_t>(GST_VIDEO_INFO_COMP_PSTRIDE(&info, component));
    extent.row_bytes = std::max(extent.row_bytes, pixels * bytes);
    extent.rows = std::max(extent.rows, static_cast<std::size_t>(GST_VIDEO_INFO_COMP_HEIGHT(&info, component)));
  }
  return extent;
}

}  // namespace gpumap::gst
