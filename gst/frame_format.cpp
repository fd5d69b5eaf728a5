// SPDX-License-Identifier: MIT
#include "frame_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "gpumap/color.hpp"
#include "gpumap/error.hpp"

namespace gpumap::gst {

namespace {

gpumap_u32 video_format(GstVideoFormat format) {
  switch (format) {
    case GST_VIDEO_FORMAT_NV12:
      return GPUMAP_FORMAT_NV12;
    case GST_VIDEO_FORMAT_I420:
      return GPUMAP_FORMAT_I420;
    case GST_VIDEO_FORMAT_YUY2:
      return GPUMAP_FORMAT_YUY2;
    case GST_VIDEO_FORMAT_UYVY:
      return GPUMAP_FORMAT_UYVY;
    case GST_VIDEO_FORMAT_RGB:
      return GPUMAP_FORMAT_RGB;
    case GST_VIDEO_FORMAT_BGR:
      return GPUMAP_FORMAT_BGR;
    case GST_VIDEO_FORMAT_RGBA:
      return GPUMAP_FORMAT_RGBA;
    case GST_VIDEO_FORMAT_BGRA:
      return GPUMAP_FORMAT_BGRA;
    default:
      return GPUMAP_FORMAT_VIDEO_OTHER;
  }
}

gpumap_u32 audio_format(GstAudioFormat format) {
  switch (format) {
    case GST_AUDIO_FORMAT_U8:
      return GPUMAP_FORMAT_U8;
    case GST_AUDIO_FORMAT_S8:
      return GPUMAP_FORMAT_S8;
    case GST_AUDIO_FORMAT_S16LE:
      return GPUMAP_FORMAT_S16;
    case GST_AUDIO_FORMAT_F32LE:
      return GPUMAP_FORMAT_F32;
    default:
      return GPUMAP_FORMAT_AUDIO_OTHER;
  }
}

}  // namespace

FrameFormat FrameFormat::from_caps(const GstCaps* caps) {
  FrameFormat made;
  const GstStructure* structure = gst_caps_get_structure(caps, 0);
  if (gst_structure_has_name(structure, "video/x-raw") && gst_video_info_from_caps(&made.video_info_, caps)) {
    made.video_ = true;
    made.format_ = video_format(GST_VIDEO_INFO_FORMAT(&made.video_info_));
    made.width_ = static_cast<gpumap_u32>(GST_VIDEO_INFO_WIDTH(&made.video_info_));
    made.height_ = static_cast<gpumap_u32>(GST_VIDEO_INFO_FIELD_HEIGHT(&made.video_info_));
    made.image_bytes_ = made.video_info_.size;
    made.bytes_per_sample_ = 0;
  } else if (gst_structure_has_name(structure, "audio/x-raw")) {
    GstAudioInfo info;
    if (gst_audio_info_from_caps(&info, caps)) {
      made.format_ = audio_format(GST_AUDIO_INFO_FORMAT(&info));
      made.channels_ = static_cast<gpumap_u32>(GST_AUDIO_INFO_CHANNELS(&info));
      made.rate_ = static_cast<gpumap_u32>(GST_AUDIO_INFO_RATE(&info));
      made.bytes_per_sample_ = static_cast<std::size_t>(GST_AUDIO_INFO_BPF(&info));
    }
  } else if (gst_structure_has_name(structure, tensor_name)) {
    gint width = 0;
    gint height = 0;
    gst_structure_get_int(structure, "width", &width);
    gst_structure_get_int(structure, "height", &height);
    made.format_ = GPUMAP_FORMAT_RGB_F32_PLANAR;
    made.width_ = static_cast<gpumap_u32>(width);
    made.height_ = static_cast<gpumap_u32>(height);
    made.image_bytes_ = std::size_t{3} * made.width_ * made.height_ * sizeof(float);
    made.bytes_per_sample_ = 0;
  }
  return made;
}

gpumap_color FrameFormat::color() const noexcept {
  const GstVideoColorimetry& colorimetry = video_info_.colorimetry;
  ColorMatrix matrix = ColorMatrix::bt601;
  switch (colorimetry.matrix) {
    case GST_VIDEO_COLOR_MATRIX_BT709:
      matrix = ColorMatrix::bt709;
      break;
    case GST_VIDEO_COLOR_MATRIX_BT2020:
      matrix = ColorMatrix::bt2020;
      break;
    case GST_VIDEO_COLOR_MATRIX_RGB:
      matrix = ColorMatrix::rgb;
      break;
    default:
      break;
  }
  if (!video_ || GST_VIDEO_INFO_IS_RGB(&video_info_)) matrix = ColorMatrix::rgb;
  const bool limited = colorimetry.range == GST_VIDEO_COLOR_RANGE_16_235 ||
                       (colorimetry.range == GST_VIDEO_COLOR_RANGE_UNKNOWN && matrix != ColorMatrix::rgb);
  return color_matrix(matrix, limited ? ColorRange::limited : ColorRange::full);
}

bool FrameFormat::has_chroma_by_field(const GstBuffer* frame) const noexcept {
  if (format_ != GPUMAP_FORMAT_NV12 && format_ != GPUMAP_FORMAT_I420) return false;
  const GstVideoInterlaceMode mode = GST_VIDEO_INFO_INTERLACE_MODE(&video_info_);
  if (mode == GST_VIDEO_INTERLACE_MODE_MIXED) return GST_BUFFER_FLAG_IS_SET(frame, GST_VIDEO_BUFFER_FLAG_INTERLACED);
  return mode == GST_VIDEO_INTERLACE_MODE_INTERLEAVED;
}

bool FrameFormat::tiles_fit(const GstVideoMeta& meta, std::size_t bytes) const {
  const guint planes = GST_VIDEO_INFO_N_PLANES(&video_info_);
  bool fits = meta.n_planes >= planes;
  for (guint plane = 0; fits && plane < planes; ++plane) {
    // The stride of a tiled plane is two counts, of tiles in a row and of rows of tiles.
    const auto stride = static_cast<guint>(meta.stride[plane]);
    const std::size_t tiles = std::size_t{GST_VIDEO_TILE_X_TILES(stride)} * GST_VIDEO_TILE_Y_TILES(stride);
    fits = meta.offset[plane] <= bytes &&
           tiles * GST_VIDEO_FORMAT_INFO_TILE_SIZE(video_info_.finfo, plane) <= bytes - meta.offset[plane];
  }
  return fits;
}

bool FrameFormat::rows_fit(const GstVideoMeta& meta, std::size_t bytes) const {
  const guint planes = std::min<guint>(GST_VIDEO_INFO_N_PLANES(&video_info_), GPUMAP_MAX_PLANES);
  bool fits = meta.n_planes >= planes;
  for (guint component = 0; fits && component < GST_VIDEO_INFO_N_COMPONENTS(&video_info_); ++component) {
    const auto plane = static_cast<guint>(GST_VIDEO_INFO_COMP_PLANE(&video_info_, component));
    if (plane >= planes) continue;
    auto rows = static_cast<std::size_t>(GST_VIDEO_INFO_COMP_HEIGHT(&video_info_, component));
    // Where chroma is kept by field, each field has its own half of the rows: an even number in all.
    if (rows < height_ && GST_VIDEO_INFO_IS_INTERLACED(&video_info_)) rows += rows % 2;
    const auto row_bytes = static_cast<std::size_t>(GST_VIDEO_INFO_COMP_WIDTH(&video_info_, component)) *
                           static_cast<std::size_t>(GST_VIDEO_INFO_COMP_PSTRIDE(&video_info_, component));
    const gint stride = meta.stride[plane];
    fits = stride >= 0 && static_cast<std::size_t>(stride) >= row_bytes && meta.offset[plane] <= bytes &&
           (rows - 1) * static_cast<std::size_t>(stride) + row_bytes <= bytes - meta.offset[plane];
  }
  return fits;
}

void FrameFormat::check(const GstVideoMeta& meta, std::size_t bytes) const {
  if (GST_VIDEO_FORMAT_INFO_IS_TILED(video_info_.finfo) ? tiles_fit(meta, bytes) : rows_fit(meta, bytes)) return;
  throw Error(ErrorCode::invalid, fmt::format("a GstVideoMeta describes more than the {} bytes of its buffer: see what "
                                              "upstream sends",
                                              bytes));
}

gpumap_view FrameFormat::view(std::uint64_t address, std::size_t bytes, const GstVideoMeta* meta) const {
  gpumap_view made{};
  made.format = format_;
  made.width = width_;
  made.height = height_;
  made.channels = channels_;
  made.rate = rate_;
  made.bytes = bytes;
  made.plane[0] = address;
  if (video_) {
    const guint planes = std::min<guint>(GST_VIDEO_INFO_N_PLANES(&video_info_), GPUMAP_MAX_PLANES);
    for (guint i = 0; i < planes; ++i) {
      made.plane[i] = address + (meta != nullptr ? meta->offset[i] : video_info_.offset[i]);
      made.stride[i] = static_cast<gpumap_u32>(meta != nullptr ? meta->stride[i] : video_info_.stride[i]);
    }
    made.bytes -= made.plane[0] - address;
  } else if (format_ == GPUMAP_FORMAT_RGB_F32_PLANAR) {
    for (std::size_t i = 0; i < 3; ++i) {
      made.stride[i] = static_cast<gpumap_u32>(width_ * sizeof(float));
      made.plane[i] = address + i * made.stride[i] * height_;
    }
  }
  return made;
}

gpumap_view field_of(gpumap_view view, gpumap_u32 field) {
  for (std::size_t i = 0; i < GPUMAP_MAX_PLANES; ++i) {
    view.plane[i] += std::uint64_t{field} * view.stride[i];
    if (i == 0) view.bytes -= std::min<std::uint64_t>(view.bytes, std::uint64_t{field} * view.stride[0]);
    view.stride[i] *= 2;
  }
  view.height = (view.height + 1 - field) / 2;
  return view;
}

}  // namespace gpumap::gst
