// SPDX-License-Identifier: MIT
#pragma once

#include <gst/audio/audio.h>
#include <gst/gst.h>
#include <gst/video/video.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/kernel.h"
#include "gpumap/kernel.hpp"
#include "gpumap/kernel_launcher.hpp"

namespace gpumap::gst {

inline constexpr const char* tensor_name = "application/x-tensor";
inline constexpr const char* bayer_name = "video/x-bayer";
/// Samples that GStreamer's raw audio has no format for: S12LE, two of 12 bits in 3 bytes.
inline constexpr const char* packed_iq_name = "application/x-iq";
/// Rows of `bins` float32.
inline constexpr const char* spectrum_name = "application/x-spectrum";
/// Steps of I and Q of `channels` channels, float32.
inline constexpr const char* channels_name = "application/x-iq-channels";

/// A tensor whose elements lie side by side, those of the last dimension next to each other.
struct TensorShape {
  NumberType type = NumberType::f32;
  std::vector<std::uint64_t> dims;  ///< outermost first
  [[nodiscard]] std::size_t bytes() const noexcept;
};

/// What caps say of a buffer's bytes, as a kernel sees them.
class FrameFormat {
 public:
  FrameFormat() = default;
  /// Any caps are fine: what is neither raw video, Bayer, samples nor a tensor of a picture is bytes.
  [[nodiscard]] static FrameFormat from_caps(const GstCaps* caps);

  [[nodiscard]] bool is_video() const noexcept { return video_; }
  [[nodiscard]] const GstVideoInfo& video() const noexcept { return video_info_; }
  [[nodiscard]] gpumap_u32 format() const noexcept { return format_; }
  /// Sample frames a second of audio or IQ; 0 otherwise.
  [[nodiscard]] gpumap_u32 rate() const noexcept { return rate_; }
  /// Bytes of an audio frame (a sample of each channel); 1 for bytes; 0 for images.
  [[nodiscard]] std::size_t bytes_per_sample() const noexcept { return bytes_per_sample_; }
  /// Bytes of an image in the default layout, or of a tensor by its `dims`; 0 for what has no fixed size.
  [[nodiscard]] std::size_t image_bytes() const noexcept { return image_bytes_; }
  /// Of a tensor whose caps tell: a picture is a batch of one, as networks take it. Else empty.
  [[nodiscard]] const std::optional<TensorShape>& tensor() const noexcept { return tensor_; }
  /// For video input: how its components become red, green and blue.
  [[nodiscard]] gpumap_color color() const noexcept;
  /// For video output: how red, green and blue become its components.
  [[nodiscard]] gpumap_color color_from_rgb() const noexcept;

  /// True where `frame` is interlaced and two rows of the same field, not of the same picture, share a row of chroma.
  [[nodiscard]] bool has_chroma_by_field(const GstBuffer* frame) const noexcept;

  /// Whether GStreamer's layout has room for rows of chroma that belong to a field each: of P010 and P016 it leaves the
  /// last one out where those of a field are odd in number.
  [[nodiscard]] bool has_room_by_field() const noexcept;

  /// Where the last row of the picture ends as `meta` lays it out. Throws Error(invalid) where that is beyond `bytes`
  /// bytes: planes and strides come from upstream, and a kernel follows them unchecked.
  [[nodiscard]] std::size_t check(const GstVideoMeta& meta, std::size_t bytes) const;
  [[nodiscard]] FrameLayout layout() const;
  /// The view of `bytes` bytes at `address`; `meta` (may be null, else checked) overrides strides and plane offsets.
  [[nodiscard]] gpumap_view view(std::uint64_t address, std::size_t bytes, const GstVideoMeta* meta) const;

 private:
  /// How video components relate to red, green and blue.
  [[nodiscard]] std::pair<ColorMatrix, ColorRange> colorimetry() const noexcept;
  void read_video(const GstCaps* caps);
  void read_audio(const GstCaps* caps);
  void read_packed_iq(const GstStructure* structure);
  void read_bayer(const GstStructure* structure);
  void read_tensor(const GstStructure* structure);
  void set_picture(gpumap_u32 format, const GstStructure* size_of, std::size_t pixel_bytes);
  /// Empty: beyond `bytes`.
  [[nodiscard]] std::optional<std::size_t> end_of_tiles(const GstVideoMeta& meta, std::size_t bytes) const;
  [[nodiscard]] std::optional<std::size_t> end_of_rows(const GstVideoMeta& meta, std::size_t bytes) const;

  gpumap_u32 format_ = GPUMAP_FORMAT_BYTES;
  bool video_ = false;
  GstVideoInfo video_info_{};
  gpumap_u32 width_ = 0, height_ = 0, channels_ = 0, rate_ = 0;
  gpumap_u32 planes_ = 0, stride_ = 0;  ///< of Bayer and tensors, whose planes are all alike
  unsigned bits_ = 8;                   ///< of a component of video
  std::size_t bytes_per_sample_ = 1;
  std::size_t image_bytes_ = 0;
  std::optional<TensorShape> tensor_;
};

/// Throws Error(invalid) for a picture without pixels, or of a size beyond what GStreamer and gpumap_view can tell.
void check_picture_size(const GstCaps* caps);

/// For caps that a kernel declares. Throws Error(invalid) where a count of channels, bins or elements is none, or
/// beyond counting: from_caps() takes what has such caps for bytes, and an output would then be as large as the input.
void check_output_shape(const GstCaps* caps);

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
