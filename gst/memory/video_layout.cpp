// SPDX-License-Identifier: MIT
#include "gst/memory/video_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "gpumap/error.hpp"
#include "gst/analytics/analytics_metas.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

bool peer_reads_video_meta(GstPad* pad, GstCaps* caps) {
  const Ptr<GstQuery> query(gst_query_new_allocation(caps, FALSE));
  return gst_pad_peer_query(pad, query.get()) != 0 &&
         gst_query_find_allocation_meta(query.get(), GST_VIDEO_META_API_TYPE, nullptr) != 0;
}

namespace {

bool has_rows_of_pixels(const GstVideoInfo& info) {
  return !GST_VIDEO_FORMAT_INFO_IS_COMPLEX(info.finfo) && !GST_VIDEO_FORMAT_INFO_IS_TILED(info.finfo);
}

}  // namespace

std::optional<GstVideoMeta> cut_out(GstBuffer* frame, const GstVideoInfo& info) {
  const GstVideoCropMeta* crop = gst_buffer_get_video_crop_meta(frame);
  const GstVideoMeta* meta = gst_buffer_get_video_meta(frame);
  const auto width = static_cast<guint>(GST_VIDEO_INFO_WIDTH(&info));
  const auto height = static_cast<guint>(GST_VIDEO_INFO_HEIGHT(&info));
  if (crop == nullptr || meta == nullptr || crop->width != width || crop->height != height) return {};
  if (meta->width == width && meta->height == height) return {};
  if (guint64{crop->x} + width > meta->width || guint64{crop->y} + height > meta->height) {
    throw Error(ErrorCode::invalid, fmt::format("a GstVideoCropMeta leaves {}x{} from ({},{}) on of a picture of "
                                                "{}x{}: see what upstream sends",
                                                width, height, crop->x, crop->y, meta->width, meta->height));
  }
  const GstVideoFormatInfo* format = info.finfo;
  const bool has_rows = has_rows_of_pixels(info);
  if (!has_rows && (crop->x != 0 || crop->y != 0)) {
    throw Error(ErrorCode::not_supported, fmt::format("a GstVideoCropMeta for a picture of format {}: put videoconvert "
                                                      "before gpumapsink",
                                                      GST_VIDEO_FORMAT_INFO_NAME(format)));
  }
  guint across = 0;
  guint down = 0;
  for (guint i = 0; i < GST_VIDEO_FORMAT_INFO_N_COMPONENTS(format); ++i) {
    across = std::max(across, GST_VIDEO_FORMAT_INFO_W_SUB(format, i));
    down = std::max(down, GST_VIDEO_FORMAT_INFO_H_SUB(format, i));
  }
  if (GST_VIDEO_INFO_IS_INTERLACED(&info)) ++down;
  const guint x = crop->x >> across << across;
  const guint y = crop->y >> down << down;
  GstVideoMeta part = *meta;
  part.width = width;
  part.height = height;
  for (guint plane = 0; plane < meta->n_planes && has_rows; ++plane) {
    for (guint i = 0; i < GST_VIDEO_FORMAT_INFO_N_COMPONENTS(format); ++i) {
      if (GST_VIDEO_FORMAT_INFO_PLANE(format, i) != plane) continue;
      const gsize row = y >> GST_VIDEO_FORMAT_INFO_H_SUB(format, i);
      const gsize pixel = x >> GST_VIDEO_FORMAT_INFO_W_SUB(format, i);
      part.offset[plane] += row * static_cast<gsize>(meta->stride[plane]) +
                            pixel * static_cast<gsize>(GST_VIDEO_FORMAT_INFO_PSTRIDE(format, i));
      break;  // the components of a plane begin at the same pixel
    }
  }
  return part;
}

void remove_crop_meta(GstBuffer* frame) {
  while (GstVideoCropMeta* crop = gst_buffer_get_video_crop_meta(frame)) {
    gst_buffer_remove_meta(frame, reinterpret_cast<GstMeta*>(crop));
  }
}

namespace {

/// `buffer` with a GstVideoMeta that describes no more than the caps.
Ptr<GstBuffer> without_surroundings(Ptr<GstBuffer> buffer, const GstVideoInfo& info) {
  const std::optional<GstVideoMeta> part = cut_out(buffer.get(), info);
  if (!part) return buffer;
  buffer.reset(gst_buffer_make_writable(buffer.release()));
  GstVideoMeta* meta = gst_buffer_get_video_meta(buffer.get());
  meta->width = part->width;
  meta->height = part->height;
  std::copy(std::begin(part->offset), std::end(part->offset), std::begin(meta->offset));
  remove_crop_meta(buffer.get());
  return buffer;
}

/// From 1.24 on GStreamer copies whole strides, and so, of a part at the lower right, bytes behind the picture.
bool copy_rows(GstVideoFrame& to, const GstVideoFrame& from) {
  for (guint plane = 0; plane < GST_VIDEO_FRAME_N_PLANES(&to); ++plane) {
    const PlaneExtent extent = plane_extent(to.info, plane);
    for (std::size_t row = 0; row < extent.rows; ++row) {
      const auto at = [row, plane](const GstVideoFrame& frame) {
        return static_cast<std::byte*>(GST_VIDEO_FRAME_PLANE_DATA(&frame, plane)) +
               row * static_cast<std::size_t>(GST_VIDEO_FRAME_PLANE_STRIDE(&frame, plane));
      };
      std::memcpy(at(to), at(from), extent.row_bytes);
    }
  }
  return true;
}

}  // namespace

GstBuffer* in_default_layout(GstBuffer* buffer, const GstVideoInfo& info) {
  Ptr<GstBuffer> owned = without_surroundings(Ptr<GstBuffer>(buffer), info);
  buffer = owned.get();
  const GstVideoMeta* meta = gst_buffer_get_video_meta(buffer);
  if (meta == nullptr) return owned.release();
  bool same = true;
  for (guint plane = 0; plane < meta->n_planes; ++plane) {
    same = same && meta->offset[plane] == info.offset[plane] && meta->stride[plane] == info.stride[plane];
  }
  if (same) return owned.release();

  Ptr<GstBuffer> packed(gst_buffer_new_allocate(nullptr, info.size, nullptr));
  GstVideoInfo mutable_info = info;  // GStreamer 1.22 takes it without const
  GstVideoFrame from;
  GstVideoFrame to;
  bool copied = false;
  if (gst_video_frame_map(&from, &mutable_info, buffer, GST_MAP_READ)) {
    if (gst_video_frame_map(&to, &mutable_info, packed.get(), GST_MAP_WRITE)) {
      copied = has_rows_of_pixels(info) ? copy_rows(to, from) : gst_video_frame_copy(&to, &from) != 0;
      gst_video_frame_unmap(&to);
    }
    gst_video_frame_unmap(&from);
  }
  if (!copied) {
    throw Error(ErrorCode::io,
                fmt::format("cannot read a frame of {} bytes as its GstVideoMeta describes it, to give it to a "
                            "downstream that knows no such meta: see what upstream sends (GST_DEBUG=gpumapmemory:4 "
                            "tells of memory that cannot be mapped)",
                            gst_buffer_get_size(buffer)));
  }
  gst_buffer_copy_into(packed.get(), buffer, copy_all_but_memory, 0, static_cast<gsize>(-1));
  copy_tensors(packed.get(), buffer);
  return packed.release();
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
