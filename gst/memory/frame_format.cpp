// SPDX-License-Identifier: MIT
#include "gst/memory/frame_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/sample_format.hpp"
#include "gst/analytics/analytics_metas.hpp"
#include "gst/ptr.hpp"

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
    case GST_VIDEO_FORMAT_P010_10LE:
      return GPUMAP_FORMAT_P010;
    case GST_VIDEO_FORMAT_v210:
      return GPUMAP_FORMAT_V210;
    case GST_VIDEO_FORMAT_Y210:
      return GPUMAP_FORMAT_Y210;
    case GST_VIDEO_FORMAT_GRAY8:
      return GPUMAP_FORMAT_GRAY8;
    case GST_VIDEO_FORMAT_GRAY16_LE:
      return GPUMAP_FORMAT_GRAY16;
    case GST_VIDEO_FORMAT_Y42B:
      return GPUMAP_FORMAT_Y42B;
    case GST_VIDEO_FORMAT_Y444:
      return GPUMAP_FORMAT_Y444;
    case GST_VIDEO_FORMAT_I420_10LE:
      return GPUMAP_FORMAT_I420_10;
    case GST_VIDEO_FORMAT_Y444_10LE:
      return GPUMAP_FORMAT_Y444_10;
    case GST_VIDEO_FORMAT_P016_LE:
      return GPUMAP_FORMAT_P016;
    default:
      return GPUMAP_FORMAT_VIDEO_OTHER;
  }
}

/// Up to the last row of chroma, in a picture of `height` rows each of whose fields has its own, in turns.
std::size_t chroma_rows_by_field(std::size_t height) {
  const std::size_t upper = ((height + 1) / 2 + 1) / 2, lower = (height / 2 + 1) / 2;
  return std::max(2 * upper - 1, 2 * lower);
}

std::size_t round_up_4(std::size_t count) {
  return (count + 3) / 4 * 4;
}

}  // namespace

FrameFormat FrameFormat::from_caps(const GstCaps* caps) {
  FrameFormat made;
  const GstStructure* structure = gst_caps_get_structure(caps, 0);
  if (gst_structure_has_name(structure, "video/x-raw")) {
    made.read_video(caps);
  } else if (gst_structure_has_name(structure, "audio/x-raw")) {
    made.read_audio(caps);
  } else if (gst_structure_has_name(structure, packed_iq_name)) {
    made.read_packed_iq(structure);
  } else if (gst_structure_has_name(structure, bayer_name)) {
    made.read_bayer(structure);
  } else if (gst_structure_has_name(structure, spectrum_name) || gst_structure_has_name(structure, channels_name)) {
    // A spectrum, or a step of channels, is a sample of so many floats.
    const bool spectrum = gst_structure_has_name(structure, spectrum_name);
    gint count = 0;
    gst_structure_get_int(structure, spectrum ? "bins" : "channels", &count);
    if (count <= 0) return made;
    made.format_ = GPUMAP_FORMAT_F32;
    made.channels_ = static_cast<gpumap_u32>(count) * (spectrum ? 1 : 2);
    made.bytes_per_sample_ = made.channels_ * sizeof(float);
  } else if (gst_structure_has_name(structure, tensor_name)) {
    made.read_tensor(structure);
  }
  return made;
}

void FrameFormat::read_video(const GstCaps* caps) {
  if (!gst_video_info_from_caps(&video_info_, caps)) return;
  video_ = true;
  format_ = video_format(GST_VIDEO_INFO_FORMAT(&video_info_));
  width_ = static_cast<gpumap_u32>(GST_VIDEO_INFO_WIDTH(&video_info_));
  height_ = static_cast<gpumap_u32>(GST_VIDEO_INFO_FIELD_HEIGHT(&video_info_));
  bits_ = format_ != GPUMAP_FORMAT_VIDEO_OTHER ? GST_VIDEO_INFO_COMP_DEPTH(&video_info_, 0) : 8;
  image_bytes_ = video_info_.size;
  bytes_per_sample_ = 0;
}

void FrameFormat::read_audio(const GstCaps* caps) {
  GstAudioInfo info;
  if (!gst_audio_info_from_caps(&info, caps)) return;
  if (GST_AUDIO_INFO_BPF(&info) <= 0) return;  // GStreamer counts them in 31 bits
  const SampleFormat* const known = find_sample_format(gst_audio_format_to_string(GST_AUDIO_INFO_FORMAT(&info)));
  format_ = known != nullptr ? known->format : std::uint32_t{GPUMAP_FORMAT_AUDIO_OTHER};
  channels_ = static_cast<gpumap_u32>(GST_AUDIO_INFO_CHANNELS(&info));
  rate_ = static_cast<gpumap_u32>(GST_AUDIO_INFO_RATE(&info));
  bytes_per_sample_ = static_cast<std::size_t>(GST_AUDIO_INFO_BPF(&info));
}

void FrameFormat::read_packed_iq(const GstStructure* structure) {
  const gchar* name = gst_structure_get_string(structure, "format");
  const SampleFormat* const known = find_sample_format(name != nullptr ? name : "");
  gint channels = 0, rate = 0;
  gst_structure_get_int(structure, "channels", &channels);
  gst_structure_get_int(structure, "rate", &rate);
  if (known == nullptr || known->format != GPUMAP_FORMAT_S12 || channels <= 0 || channels % 2 != 0 || rate < 0) return;
  format_ = known->format;
  channels_ = static_cast<gpumap_u32>(channels);
  rate_ = static_cast<gpumap_u32>(rate);
  bytes_per_sample_ = std::size_t{channels_} * known->bits / CHAR_BIT;
}

void FrameFormat::read_bayer(const GstStructure* structure) {
  constexpr std::array<std::string_view, 4> orders{"bggr", "gbrg", "grbg", "rggb"};  // as gpumap_format has them
  constexpr std::array<std::pair<std::string_view, unsigned>, 5> depths{
      {{"", 8}, {"10le", 10}, {"12le", 12}, {"14le", 14}, {"16le", 16}}};
  const gchar* format = gst_structure_get_string(structure, "format");
  const std::string_view name = format != nullptr ? format : "";
  const auto order = std::find(orders.begin(), orders.end(), name.substr(0, 4));
  const auto depth = std::find_if(depths.begin(), depths.end(),
                                  [&](const auto& known) { return name.size() >= 4 && known.first == name.substr(4); });
  if (order == orders.end() || depth == depths.end()) return;
  bits_ = depth->second;
  const std::size_t bytes = bits_ > 8 ? 2 : 1;
  const gpumap_u32 first = bytes == 2 ? GPUMAP_FORMAT_BAYER16_BGGR : GPUMAP_FORMAT_BAYER8_BGGR;
  planes_ = 1;
  set_picture(first + static_cast<gpumap_u32>(order - orders.begin()), structure, bytes);
  stride_ = static_cast<gpumap_u32>(round_up_4(width_) * bytes);  // as bayer2rgb and v4l2src have it
  image_bytes_ = std::size_t{stride_} * height_;
}

std::size_t TensorShape::bytes() const noexcept {
  std::size_t bytes = gpumap::bytes_of(type);
  for (const std::uint64_t size : dims) bytes *= size;
  return bytes;
}

namespace {

/// Of a tensor whose caps tell by `dims` and `type`.
std::optional<TensorShape> shape_of_dims(const GstStructure* structure) {
  const GValue* dims = gst_structure_get_value(structure, "dims");
  if (dims == nullptr || !GST_VALUE_HOLDS_ARRAY(dims)) return {};
  constexpr std::uint64_t most = std::uint64_t{1} << 62U;
  TensorShape shape;
  try {
    const gchar* type = gst_structure_get_string(structure, "type");
    if (type != nullptr) shape.type = parse_number_type(type);
  } catch (const Error&) {
    return {};
  }
  for (guint i = 0; i < gst_value_array_get_size(dims); ++i) {
    const GValue* one = gst_value_array_get_value(dims, i);
    const gint size = G_VALUE_HOLDS_INT(one) ? g_value_get_int(one) : 0;
    if (size <= 0 || shape.bytes() > most / static_cast<std::uint64_t>(size)) return {};
    shape.dims.push_back(static_cast<std::uint64_t>(size));
  }
  return shape;
}

}  // namespace

void FrameFormat::read_tensor(const GstStructure* structure) {
  constexpr std::array<std::string_view, 3> types{"float32", "float16", "uint8"};  // as gpumap_format has them
  const gchar* type = gst_structure_get_string(structure, "type");
  const auto found = std::find(types.begin(), types.end(), type != nullptr ? type : types[0]);
  const bool planar = g_strcmp0(gst_structure_get_string(structure, "layout"), "hwc") != 0;
  gint channels = 3;
  gst_structure_get_int(structure, "channels", &channels);
  const bool picture = channels == 3 && gst_structure_has_field(structure, "width") != 0 &&
                       gst_structure_has_field(structure, "height") != 0;
  if (found == types.end() || !picture) {
    tensor_ = shape_of_dims(structure);
    image_bytes_ = tensor_ ? tensor_->bytes() : 0;
    return;
  }
  const auto index = static_cast<gpumap_u32>(found - types.begin());
  planes_ = planar ? 3 : 1;
  set_picture((planar ? GPUMAP_FORMAT_RGB_F32_PLANAR : GPUMAP_FORMAT_RGB_F32) + index, structure,
              (planar ? 1U : 3U) * (sizeof(float) >> index));
  constexpr std::array numbers{NumberType::f32, NumberType::f16, NumberType::u8};
  tensor_ = {.type = numbers[index], .dims = {1, height_, width_, 3}};
  if (planar) tensor_->dims = {1, 3, height_, width_};
}

void FrameFormat::set_picture(gpumap_u32 format, const GstStructure* size_of, std::size_t pixel_bytes) {
  gint width = 0;
  gint height = 0;
  gst_structure_get_int(size_of, "width", &width);
  gst_structure_get_int(size_of, "height", &height);
  format_ = format;
  width_ = static_cast<gpumap_u32>(width);
  height_ = static_cast<gpumap_u32>(height);
  stride_ = static_cast<gpumap_u32>(width_ * pixel_bytes);
  image_bytes_ = std::size_t{planes_} * stride_ * height_;
  bytes_per_sample_ = 0;
}

std::pair<ColorMatrix, ColorRange> FrameFormat::colorimetry() const noexcept {
  const GstVideoColorimetry& colorimetry = video_info_.colorimetry;
  ColorMatrix matrix = ColorMatrix::bt601;
  switch (colorimetry.matrix) {
    case GST_VIDEO_COLOR_MATRIX_BT709:
      matrix = ColorMatrix::bt709;
      break;
    case GST_VIDEO_COLOR_MATRIX_BT2020:
      matrix = ColorMatrix::bt2020;
      break;
    case GST_VIDEO_COLOR_MATRIX_SMPTE240M:
      matrix = ColorMatrix::smpte240m;
      break;
    case GST_VIDEO_COLOR_MATRIX_FCC:
      matrix = ColorMatrix::fcc;
      break;
    case GST_VIDEO_COLOR_MATRIX_RGB:
      matrix = ColorMatrix::rgb;
      break;
    default:
      break;
  }
  const bool is_gray = video_ && GST_VIDEO_INFO_IS_GRAY(&video_info_);
  if (!video_ || GST_VIDEO_INFO_IS_RGB(&video_info_)) matrix = ColorMatrix::rgb;
  if (is_gray && matrix == ColorMatrix::rgb) matrix = ColorMatrix::bt601;
  const bool limited = colorimetry.range == GST_VIDEO_COLOR_RANGE_16_235 ||
                       (colorimetry.range == GST_VIDEO_COLOR_RANGE_UNKNOWN && matrix != ColorMatrix::rgb && !is_gray);
  return {matrix, limited ? ColorRange::limited : ColorRange::full};
}

gpumap_color FrameFormat::color() const noexcept {
  const auto [matrix, range] = colorimetry();
  // Of brightness alone there are three alike.
  return color_matrix(video_ && GST_VIDEO_INFO_IS_GRAY(&video_info_) ? ColorMatrix::rgb : matrix, range, bits_);
}

gpumap_color FrameFormat::color_from_rgb() const noexcept {
  const auto [matrix, range] = colorimetry();
  return gpumap::color_from_rgb(matrix, range, bits_);
}

bool FrameFormat::has_chroma_by_field(const GstBuffer* frame) const noexcept {
  const bool is_known = video_ && format_ != GPUMAP_FORMAT_VIDEO_OTHER;
  if (!is_known || GST_VIDEO_INFO_COMP_HEIGHT(&video_info_, 1) == GST_VIDEO_INFO_HEIGHT(&video_info_)) return false;
  if (!has_room_by_field()) return false;
  const GstVideoInterlaceMode mode = GST_VIDEO_INFO_INTERLACE_MODE(&video_info_);
  if (mode == GST_VIDEO_INTERLACE_MODE_MIXED) return GST_BUFFER_FLAG_IS_SET(frame, GST_VIDEO_BUFFER_FLAG_INTERLACED);
  return mode == GST_VIDEO_INTERLACE_MODE_INTERLEAVED;
}

bool FrameFormat::has_room_by_field() const noexcept {
  if (!video_ || GST_VIDEO_INFO_N_PLANES(&video_info_) < 2) return true;
  const bool is_last = GST_VIDEO_INFO_N_PLANES(&video_info_) == 2;
  const std::size_t end = is_last ? video_info_.size : video_info_.offset[2];
  return end - video_info_.offset[1] >= chroma_rows_by_field(height_) * static_cast<std::size_t>(video_info_.stride[1]);
}

std::optional<std::size_t> FrameFormat::end_of_tiles(const GstVideoMeta& meta, std::size_t bytes) const {
  const guint planes = GST_VIDEO_INFO_N_PLANES(&video_info_);
  if (meta.n_planes < planes) return {};
  std::size_t end = 0;
  for (guint plane = 0; plane < planes; ++plane) {
    // The stride of a tiled plane is two counts, of tiles in a row and of rows of tiles.
    const auto stride = static_cast<guint>(meta.stride[plane]);
    const std::size_t tiles = std::size_t{GST_VIDEO_TILE_X_TILES(stride)} * GST_VIDEO_TILE_Y_TILES(stride);
    const std::size_t length = tiles * GST_VIDEO_FORMAT_INFO_TILE_SIZE(video_info_.finfo, plane);
    if (meta.offset[plane] > bytes || length > bytes - meta.offset[plane]) return {};
    end = std::max(end, meta.offset[plane] + length);
  }
  return end;
}

std::optional<std::size_t> FrameFormat::end_of_rows(const GstVideoMeta& meta, std::size_t bytes) const {
  const guint planes = std::min<guint>(GST_VIDEO_INFO_N_PLANES(&video_info_), GPUMAP_MAX_PLANES);
  if (meta.n_planes < planes) return {};
  std::size_t end = 0;
  for (guint component = 0; component < GST_VIDEO_INFO_N_COMPONENTS(&video_info_); ++component) {
    const auto plane = static_cast<guint>(GST_VIDEO_INFO_COMP_PLANE(&video_info_, component));
    if (plane >= planes) continue;
    std::size_t length = palette_bytes;
    if (plane != 1 || !GST_VIDEO_FORMAT_INFO_HAS_PALETTE(video_info_.finfo)) {
      auto rows = static_cast<std::size_t>(GST_VIDEO_INFO_COMP_HEIGHT(&video_info_, component));
      const bool is_by_field = GST_VIDEO_INFO_IS_INTERLACED(&video_info_) && has_room_by_field();
      if (rows < height_ && is_by_field) rows = chroma_rows_by_field(height_);
      auto row_bytes = static_cast<std::size_t>(GST_VIDEO_INFO_COMP_WIDTH(&video_info_, component)) *
                       static_cast<std::size_t>(GST_VIDEO_INFO_COMP_PSTRIDE(&video_info_, component));
      if (format_ == GPUMAP_FORMAT_V210) row_bytes = (std::size_t{width_} + 5) / 6 * 16;  // no whole bytes a pixel
      const gint stride = meta.stride[plane];
      if (stride < 0 || static_cast<std::size_t>(stride) < row_bytes) return {};
      length = (rows - 1) * static_cast<std::size_t>(stride) + row_bytes;
    }
    if (meta.offset[plane] > bytes || length > bytes - meta.offset[plane]) return {};
    end = std::max(end, meta.offset[plane] + length);
  }
  return end;
}

std::size_t FrameFormat::check(const GstVideoMeta& meta, std::size_t bytes) const {
  const auto end =
      GST_VIDEO_FORMAT_INFO_IS_TILED(video_info_.finfo) ? end_of_tiles(meta, bytes) : end_of_rows(meta, bytes);
  if (end) return *end;
  throw Error(ErrorCode::invalid, fmt::format("a GstVideoMeta describes more than the {} bytes of its buffer: see what "
                                              "upstream sends",
                                              bytes));
}

FrameLayout FrameFormat::layout() const {
  return {.view = view(0, image_bytes_, nullptr), .bytes_per_sample = bytes_per_sample_};
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
  } else {
    for (std::size_t i = 0; i < planes_; ++i) {
      made.stride[i] = stride_;
      made.plane[i] = address + i * stride_ * height_;
    }
  }
  return made;
}

void check_picture_size(const GstCaps* caps) {
  const GstStructure* structure = gst_caps_get_structure(caps, 0);
  const bool is_video = gst_structure_has_name(structure, "video/x-raw") != 0;
  if (!is_video && !gst_structure_has_name(structure, bayer_name) && !gst_structure_has_name(structure, tensor_name)) {
    return;
  }
  // GStreamer's own limit of raw video; else a row of a view, of pixels of 12 bytes at most, is counted in 32 bits.
  const gint most = is_video ? 32767 : G_MAXINT / 12;
  for (const char* side : {"width", "height"}) {
    gint length = 0;
    if (!gst_structure_has_field(structure, side)) continue;
    if (gst_structure_get_int(structure, side, &length) != 0 && length >= 1 && length <= most) continue;
    const Ptr<gchar> shown(gst_caps_to_string(caps));
    throw Error(ErrorCode::invalid, fmt::format("{} are invalid caps of a picture: its {} has to be from 1 to {}",
                                                shown.get(), side, most));
  }
}

namespace {

/// "channels=0" of `structure`, which has a field `name`.
std::string field_text(const GstStructure* structure, const char* name) {
  const Ptr<gchar> shown(gst_value_serialize(gst_structure_get_value(structure, name)));
  return fmt::format("{}={}", name, shown ? shown.get() : "");
}

/// Throws Error(invalid) where field `name` of the output, where it has one, is no number from 1 to `most`.
void check_count(const GstStructure* structure, const char* name, gint most) {
  gint count = 0;
  if (!gst_structure_has_field(structure, name)) return;
  if (gst_structure_get_int(structure, name, &count) != 0 && count >= 1 && count <= most) return;
  throw Error(ErrorCode::invalid, fmt::format("the output's caps have {}: {} has to be a number from 1 to {}; change "
                                              "the kernel's line output",
                                              field_text(structure, name), name, most));
}

}  // namespace

void check_output_shape(const GstCaps* caps) {
  const GstStructure* structure = gst_caps_get_structure(caps, 0);
  const auto is = [structure](const char* name) { return gst_structure_has_name(structure, name) != 0; };
  if (is(spectrum_name)) {
    check_count(structure, "bins", G_MAXINT);
  } else if (is(channels_name) || is(packed_iq_name)) {
    check_count(structure, "channels", G_MAXINT);
  } else if (is("audio/x-raw")) {
    constexpr gint most_bytes = 8;  // of a sample
    check_count(structure, "channels", G_MAXINT / most_bytes);
    gint channels = 0;
    gst_structure_get_int(structure, "channels", &channels);
    if (channels > 2 && !gst_structure_has_field(structure, "channel-mask")) {
      throw Error(
          ErrorCode::invalid,
          fmt::format(
              "the output's caps have {} and no channel-mask, without which GStreamer takes no more "
              "than 2 channels: add channel-mask=(bitmask)0x0 to the caps before the kernel, which go on, or to "
              "its line output",
              field_text(structure, "channels")));
    }
  } else if (is(tensor_name)) {
    check_count(structure, "channels", G_MAXINT);
    const GValue* dims = gst_structure_get_value(structure, "dims");
    const guint count = dims != nullptr && GST_VALUE_HOLDS_ARRAY(dims) ? gst_value_array_get_size(dims) : 0;
    double elements = count;  // of no dimension there are none
    bool counts = true;
    for (guint i = 0; i < count; ++i) {
      const GValue* one = gst_value_array_get_value(dims, i);
      const gint size = G_VALUE_HOLDS_INT(one) ? g_value_get_int(one) : 0;
      counts = counts && size >= 1;
      elements *= size;
    }
    constexpr double most_elements = 1e18;
    if (dims == nullptr || (counts && count != 0 && elements <= most_elements)) return;
    throw Error(ErrorCode::invalid,
                fmt::format("the output's caps have {}: each dimension has to be a number from 1 on, as in "
                            "dims=(int)<1,1000>, and all together no more than memory holds; change the kernel's line "
                            "output",
                            field_text(structure, "dims")));
  }
}

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
  // GStreamer asserts it.
  if (meta->format != GST_VIDEO_INFO_FORMAT(&info) || meta->n_planes != GST_VIDEO_INFO_N_PLANES(&info) ||
      meta->width < static_cast<guint>(GST_VIDEO_INFO_WIDTH(&info)) ||
      meta->height < static_cast<guint>(GST_VIDEO_INFO_HEIGHT(&info))) {
    throw Error(ErrorCode::invalid,
                fmt::format("the GstVideoMeta of a frame says {} of {}x{}, but its caps say {} of {}x{}: see what "
                            "upstream sends",
                            gst_video_format_to_string(meta->format), meta->width, meta->height,
                            GST_VIDEO_INFO_NAME(&info), GST_VIDEO_INFO_WIDTH(&info), GST_VIDEO_INFO_HEIGHT(&info)));
  }

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
