// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <cstddef>
#include <optional>

namespace gpumap::gst {

/// The layout of the part that a GstVideoCropMeta leaves of the picture in `frame`. That meta counts where its part has
/// the size of the caps, of which `info` is, and the GstVideoMeta describes the picture around it, as GStreamer has it.
/// The part begins at a whole pixel of chroma and, of an interlaced picture, at its first field. Empty: nothing is cut
/// off. Throws Error(invalid) for a part that lies outside; Error(not_supported) for formats without rows of pixels.
[[nodiscard]] std::optional<GstVideoMeta> cut_out(GstBuffer* frame, const GstVideoInfo& info);
void remove_crop_meta(GstBuffer* frame);

/// For a downstream that knows no GstVideoMeta: `buffer` (taken) itself where its planes and strides are those of
/// `info`, else a copy (transfer full) in system memory where they are, of the part that a GstVideoCropMeta leaves.
/// Throws Error(io) for one that cannot be read, and as cut_out().
[[nodiscard]] GstBuffer* in_default_layout(GstBuffer* buffer, const GstVideoInfo& info);

/// True when downstream of `pad`, at these caps, reads GstVideoMeta.
[[nodiscard]] bool peer_reads_video_meta(GstPad* pad, GstCaps* caps);

/// The second plane of a format with a palette (RGB8P): four bytes for each of 256 values, in one row.
inline constexpr std::size_t palette_bytes = 1024;

/// What a plane of raw video holds, padding left out.
struct PlaneExtent {
  std::size_t row_bytes = 0;
  std::size_t rows = 0;
};
/// For formats whose pixels are whole bytes (not v210) and not tiled.
[[nodiscard]] PlaneExtent plane_extent(const GstVideoInfo& info, guint plane) noexcept;

/// What gst_buffer_copy_into() takes over of a buffer whose memory stays behind.
inline constexpr auto copy_flags_and_times =
    static_cast<GstBufferCopyFlags>(static_cast<unsigned>(GST_BUFFER_COPY_FLAGS) | GST_BUFFER_COPY_TIMESTAMPS);
/// The same and its metas, none of them shared.
inline constexpr auto copy_all_but_memory = static_cast<GstBufferCopyFlags>(
    static_cast<unsigned>(copy_flags_and_times) | GST_BUFFER_COPY_META | GST_BUFFER_COPY_DEEP);

}  // namespace gpumap::gst
