// SPDX-License-Identifier: MIT
#include "c/stream_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "c/c_status.hpp"
#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"
#include "gpumap/sample_format.hpp"

namespace gpumap::c {
namespace {

struct VideoFormat {
  std::uint32_t format;  ///< enum gpumap_format
  std::uint32_t gst;     ///< GstVideoFormat
  std::string_view name;
};
constexpr std::array video_formats{
    VideoFormat{GPUMAP_FORMAT_NV12, 23, "NV12"},         VideoFormat{GPUMAP_FORMAT_I420, 2, "I420"},
    VideoFormat{GPUMAP_FORMAT_YUY2, 4, "YUY2"},          VideoFormat{GPUMAP_FORMAT_UYVY, 5, "UYVY"},
    VideoFormat{GPUMAP_FORMAT_RGB, 15, "RGB"},           VideoFormat{GPUMAP_FORMAT_BGR, 16, "BGR"},
    VideoFormat{GPUMAP_FORMAT_RGBA, 11, "RGBA"},         VideoFormat{GPUMAP_FORMAT_BGRA, 12, "BGRA"},
    VideoFormat{GPUMAP_FORMAT_P010, 62, "P010_10LE"},    VideoFormat{GPUMAP_FORMAT_V210, 21, "v210"},
    VideoFormat{GPUMAP_FORMAT_Y210, 82, "Y210"},         VideoFormat{GPUMAP_FORMAT_GRAY8, 25, "GRAY8"},
    VideoFormat{GPUMAP_FORMAT_GRAY16, 27, "GRAY16_LE"},  VideoFormat{GPUMAP_FORMAT_Y42B, 18, "Y42B"},
    VideoFormat{GPUMAP_FORMAT_Y444, 20, "Y444"},         VideoFormat{GPUMAP_FORMAT_I420_10, 43, "I420_10LE"},
    VideoFormat{GPUMAP_FORMAT_Y444_10, 47, "Y444_10LE"}, VideoFormat{GPUMAP_FORMAT_P016, 90, "P016_LE"},
};

template <typename Table, typename Is>
const typename Table::value_type* find_in(const Table& table, Is is) {
  const auto* const found = std::find_if(table.begin(), table.end(), is);
  return found != table.end() ? found : nullptr;
}

constexpr std::uint64_t round_up(std::uint64_t count, std::uint64_t to) {
  return (count + to - 1) / to * to;
}

/// A plane: bytes of a row with its padding, rows up to the next plane, and what of a row is pixels.
struct Plane {
  std::uint64_t stride, rows, row_bytes;
};

bool has_half_the_rows(std::uint32_t format) {
  constexpr std::array formats{GPUMAP_FORMAT_NV12, GPUMAP_FORMAT_I420, GPUMAP_FORMAT_P010, GPUMAP_FORMAT_P016,
                               GPUMAP_FORMAT_I420_10};
  return std::ranges::any_of(formats, [&](auto one) { return one == format; });
}

/// As gst_video_info_set_format() has them; no planes: it is no such format.
std::array<Plane, 3> planes_of(std::uint32_t format, std::uint64_t width, std::uint64_t height) {
  constexpr std::uint64_t align = 4;
  const std::uint64_t even_width = round_up(width, 2), even_rows = round_up(height, 2);
  const auto padded = [](std::uint64_t row, std::uint64_t rows) { return Plane{round_up(row, align), rows, row}; };
  const auto three = [](Plane luma, Plane chroma) { return std::array<Plane, 3>{luma, chroma, chroma}; };
  switch (format) {
    case GPUMAP_FORMAT_NV12:
      return {padded(width, even_rows), padded(even_width, even_rows / 2)};
    case GPUMAP_FORMAT_P010:
    case GPUMAP_FORMAT_P016:
      return {padded(width * 2, even_rows), padded(even_width * 2, even_rows / 2)};
    case GPUMAP_FORMAT_I420:
      return three(padded(width, even_rows), padded(even_width / 2, even_rows / 2));
    case GPUMAP_FORMAT_I420_10:
      return three(padded(width * 2, even_rows), padded(even_width, even_rows / 2));
    case GPUMAP_FORMAT_Y42B:
      return three(padded(width, height), padded(even_width / 2, height));
    case GPUMAP_FORMAT_Y444:
      return three(padded(width, height), padded(width, height));
    case GPUMAP_FORMAT_Y444_10:
      return three(padded(width * 2, height), padded(width * 2, height));
    case GPUMAP_FORMAT_YUY2:
    case GPUMAP_FORMAT_UYVY:
      return {padded(even_width * 2, height)};
    case GPUMAP_FORMAT_GRAY16:
      return {padded(width * 2, height)};
    case GPUMAP_FORMAT_RGB:
    case GPUMAP_FORMAT_BGR:
      return {padded(width * 3, height)};
    case GPUMAP_FORMAT_RGBA:
    case GPUMAP_FORMAT_BGRA:
      return {padded(width * 4, height)};
    case GPUMAP_FORMAT_Y210:
      return {padded(even_width * 4, height)};
    case GPUMAP_FORMAT_GRAY8:
      return {padded(width, height)};
    case GPUMAP_FORMAT_V210: {
      // Six pixels lie in 16 bytes.
      constexpr std::uint64_t pixels = 48, bytes = 128;
      return {Plane{(width + pixels - 1) / pixels * bytes, height, (width + 5) / 6 * 16}};
    }
    default:
      break;
  }
  if (format >= GPUMAP_FORMAT_BAYER8_BGGR && format <= GPUMAP_FORMAT_BAYER16_RGGB) {
    const std::uint64_t bytes = format >= GPUMAP_FORMAT_BAYER16_BGGR ? 2 : 1;
    return {Plane{round_up(width, align) * bytes, height, width * bytes}};
  }
  if (format >= GPUMAP_FORMAT_RGB_F32_PLANAR && format <= GPUMAP_FORMAT_RGB_U8) {
    const bool planar = format <= GPUMAP_FORMAT_RGB_U8_PLANAR;
    const std::uint32_t first = planar ? GPUMAP_FORMAT_RGB_F32_PLANAR : GPUMAP_FORMAT_RGB_F32;
    const std::uint64_t row = width * (sizeof(float) >> (format - first)) * (planar ? 1 : 3);
    const Plane plane{row, height, row};
    return planar ? three(plane, plane) : std::array<Plane, 3>{plane};
  }
  return {};
}

}  // namespace

bool is_gray(std::uint32_t format) noexcept {
  return format == GPUMAP_FORMAT_GRAY8 || format == GPUMAP_FORMAT_GRAY16;
}

bool is_yuv(std::uint32_t format) noexcept {
  constexpr std::array others{GPUMAP_FORMAT_RGB, GPUMAP_FORMAT_BGR, GPUMAP_FORMAT_RGBA, GPUMAP_FORMAT_BGRA};
  return gst_number_of(format) != 0 && !is_gray(format) &&
         std::ranges::none_of(others, [&](auto one) { return one == format; });
}

std::optional<gpumap_layout> usual_layout(std::uint32_t format, std::int64_t width, std::int64_t height,
                                          std::uint32_t interlace) {
  constexpr std::int64_t most = 65536;
  if (width <= 0 || height <= 0 || width > most || height > most) return {};
  gpumap_layout made{};
  made.struct_size = sizeof made;
  made.format = format;
  made.width = static_cast<std::uint32_t>(width);
  made.height = static_cast<std::uint32_t>(height);
  made.interlace = interlace;
  for (Plane plane : planes_of(format, static_cast<std::uint64_t>(width), static_cast<std::uint64_t>(height))) {
    if (plane.stride == 0) break;
    // Each field has chroma of its own, for which GStreamer does not always leave room.
    const bool makes_room = has_half_the_rows(format) && format != GPUMAP_FORMAT_P010 && format != GPUMAP_FORMAT_P016;
    if (interlace != 0 && made.planes > 0 && makes_room) plane.rows = round_up(plane.rows, 2);
    made.offset[made.planes] = made.bytes;
    made.stride[made.planes] = static_cast<std::int32_t>(plane.stride);
    made.bytes += plane.stride * plane.rows;
    ++made.planes;
  }
  if (made.planes == 0) return {};
  return made;
}

namespace {

std::optional<gpumap_layout> samples(std::uint32_t format, std::int64_t channels, std::int64_t rate) {
  constexpr std::int64_t most = std::int64_t{1} << 31U;
  if (channels <= 0 || rate < 0 || channels > most || rate > most) return {};
  gpumap_layout made{};
  made.struct_size = sizeof made;
  made.format = format;
  made.channels = static_cast<std::uint32_t>(channels);
  made.rate = static_cast<std::uint32_t>(rate);
  return made;
}

// As gpumap_format has them.
constexpr std::array<std::string_view, 4> bayer_orders{"bggr", "gbrg", "grbg", "rggb"};
constexpr std::array<std::string_view, 3> tensor_types{"float32", "float16", "uint8"};

std::uint32_t bayer_format(std::string_view name) {
  constexpr std::array<std::string_view, 4> deep{"10le", "12le", "14le", "16le"};
  constexpr std::size_t letters = 4;
  const auto* const order = std::ranges::find(bayer_orders, name.substr(0, letters));
  if (order == bayer_orders.end()) return 0;
  const std::string_view depth = name.substr(letters);
  const auto index = static_cast<std::uint32_t>(order - bayer_orders.begin());
  if (depth.empty()) return GPUMAP_FORMAT_BAYER8_BGGR + index;
  return std::find(deep.begin(), deep.end(), depth) != deep.end()
             ? static_cast<std::uint32_t>(GPUMAP_FORMAT_BAYER16_BGGR) + index
             : 0;
}

std::uint32_t tensor_format(const Caps& caps) {
  const std::string_view type = caps.text("type");
  const auto* const found = std::ranges::find(tensor_types, type.empty() ? tensor_types[0] : type);
  if (found == tensor_types.end()) return 0;
  const std::uint32_t planar = GPUMAP_FORMAT_RGB_F32_PLANAR, interleaved = GPUMAP_FORMAT_RGB_F32;
  const std::uint32_t first = caps.text("layout") == "hwc" ? interleaved : planar;
  return first + static_cast<std::uint32_t>(found - tensor_types.begin());
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t first = std::min(text.find_first_not_of(blanks), text.size());
  text.remove_prefix(first);
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

/// The parts between `separator`, but not where it stands in brackets or quotes.
std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  bool is_quoted = false;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const char one = at < text.size() ? text[at] : separator;
    if (one == '"') is_quoted = !is_quoted;
    if (!is_quoted && std::string_view("{[(<").find(one) != std::string_view::npos) ++depth;
    if (!is_quoted && std::string_view("}])>").find(one) != std::string_view::npos) --depth;
    if (at < text.size() && (one != separator || is_quoted || depth > 0)) continue;
    parts.push_back(without_blanks(text.substr(begin, at - begin)));
    begin = at + 1;
  }
  return parts;
}

/// Behind its type, as in "(int)7".
std::string_view without_type(std::string_view value) {
  if (!value.starts_with('(')) return value;
  return without_blanks(value.substr(std::min(value.find(')'), value.size() - 1) + 1));
}

/// A value of a field of caps: one, a list {a,b} or a range [a,b], with or without its type before it.
bool has_value(std::string_view values, std::string_view wanted) {
  values = without_type(values);
  if (values.size() < 2) return values == wanted;
  const std::string_view inside = values.substr(1, values.size() - 2);
  if (values.front() == '"') return inside == wanted;
  if (values.front() != '{' && values.front() != '[') return values == wanted;
  const auto members = parts_of(inside, ',');
  if (values.front() == '{') {
    return std::ranges::any_of(members, [&](std::string_view one) { return has_value(one, wanted); });
  }
  const auto number = [](std::string_view text, std::uint64_t otherwise) {
    std::uint64_t read = 0;
    return std::from_chars(text.data(), text.data() + text.size(), read).ec == std::errc() ? read : otherwise;
  };
  const std::uint64_t value = number(wanted, 0);
  return members.size() < 2 || (value >= number(members[0], 0) && value <= number(members[1], ~std::uint64_t{0}));
}

/// What a layout says of caps.
struct CapsOfLayout {
  std::string_view media_type;
  std::vector<std::pair<std::string_view, std::string>> fields;
};

CapsOfLayout caps_of(const gpumap_layout& layout) {
  const auto has_format = [&](const auto& one) { return one.format == layout.format; };
  if (const auto* const samples = find_in(sample_formats, has_format)) {
    CapsOfLayout made{layout.format == GPUMAP_FORMAT_S12 ? "application/x-iq" : "audio/x-raw", {}};
    made.fields = {{"format", std::string(samples->name)}, {"channels", std::to_string(layout.channels)}};
    if (layout.rate != 0) made.fields.emplace_back("rate", std::to_string(layout.rate));
    return made;
  }
  CapsOfLayout made{"video/x-bayer",
                    {{"width", std::to_string(layout.width)}, {"height", std::to_string(layout.height)}}};
  if (const auto* const video = find_in(video_formats, has_format)) {
    made.media_type = "video/x-raw";
    made.fields.emplace_back("format", video->name);
  } else if (layout.format >= GPUMAP_FORMAT_RGB_F32_PLANAR && layout.format <= GPUMAP_FORMAT_RGB_U8) {
    made.media_type = "application/x-tensor";
  }
  return made;
}

bool is_of_layouts(std::string_view media_type) {
  constexpr std::array<std::string_view, 5> types{"video/x-raw", "audio/x-raw", "application/x-iq", "video/x-bayer",
                                                  "application/x-tensor"};
  return std::ranges::find(types, media_type) != types.end();
}

}  // namespace

bool takes(std::string_view caps, const gpumap_layout& layout) {
  const CapsOfLayout of_layout = caps_of(layout);
  return std::ranges::any_of(parts_of(caps, ';'), [&](std::string_view structure) {
    const auto parts = parts_of(structure, ',');
    const std::string_view type = without_blanks(parts[0].substr(0, parts[0].find('(')));
    if (!is_of_layouts(type)) return true;
    return type == of_layout.media_type && std::ranges::all_of(parts, [&](std::string_view part) {
             const std::size_t sign = std::min(part.find('='), part.size() - 1);
             return std::ranges::all_of(of_layout.fields, [&](const auto& field) {
               return without_blanks(part.substr(0, sign)) != field.first ||
                      has_value(without_blanks(part.substr(sign + 1)), field.second);
             });
           });
  });
}

namespace {

constexpr std::uint32_t limited_range = 2, most_matrix = 6;

// As GstVideoInterlaceMode has them. Of the others a frame is no whole picture.
constexpr std::array<std::string_view, 3> interlace_modes{"progressive", "interleaved", "mixed"};

/// As GStreamer reads them: what does not go with the format is as if it were not there.
void set_colours(gpumap_layout& layout, std::string_view colorimetry) {
  constexpr std::uint32_t full = 1, limited = limited_range;                                   // GstVideoColorRange
  constexpr std::uint32_t rgb = 1, bt709 = 3, bt601 = 4, smpte240m = 5, bt2020 = most_matrix;  // GstVideoColorMatrix
  struct Named {
    std::string_view name;
    std::uint32_t range, matrix;
  };
  constexpr std::array known{Named{"bt601", limited, bt601},         Named{"bt709", limited, bt709},
                             Named{"smpte240m", limited, smpte240m}, Named{"sRGB", full, rgb},
                             Named{"bt2020", limited, bt2020},       Named{"bt2020-10", limited, bt2020},
                             Named{"bt2100-pq", limited, bt2020},    Named{"bt2100-hlg", limited, bt2020}};
  std::uint32_t range = 0, matrix = 0;
  if (const auto* const named = find_in(known, [&](const Named& one) { return one.name == colorimetry; })) {
    range = named->range;
    matrix = named->matrix;
  } else {
    // Numbers: range:matrix:transfer:primaries.
    const char* const end = colorimetry.data() + colorimetry.size();
    const auto [behind, error] = std::from_chars(colorimetry.data(), end, range);
    if (error != std::errc() || behind == end || *behind != ':') return;
    if (std::from_chars(behind + 1, end, matrix).ec != std::errc() || range > limited || matrix > bt2020) return;
  }
  const bool has_luma = is_yuv(layout.format) || is_gray(layout.format);
  if (has_luma && matrix <= rgb) return;
  layout.matrix = has_luma ? matrix : rgb;
  layout.range = range;
}

/// 0: as many as there is room for.
std::uint32_t bits_of_bayer(std::string_view format) {
  std::uint32_t bits = 0;
  constexpr std::size_t letters = 4;
  format.remove_prefix(std::min(letters, format.size()));
  std::from_chars(format.data(), format.data() + format.size(), bits);
  return bits < 16 ? bits : 0;
}

/// 0: none that gpumap knows.
std::uint32_t format_of(const Caps& caps) {
  const std::string_view format = caps.text("format");
  if (caps.media_type == "video/x-raw") {
    const auto* const known = find_in(video_formats, [&](const VideoFormat& one) { return one.name == format; });
    return known != nullptr ? known->format : 0;
  }
  if (caps.media_type == "audio/x-raw" || caps.media_type == "application/x-iq") {
    const SampleFormat* const known = find_sample_format(format);
    const bool is_known =
        known != nullptr && (known->format == GPUMAP_FORMAT_S12) == (caps.media_type == "application/x-iq");
    return is_known ? known->format : 0;
  }
  if (caps.media_type == "video/x-bayer") return bayer_format(format);
  return caps.media_type == "application/x-tensor" ? tensor_format(caps) : 0;
}

}  // namespace

std::optional<gpumap_layout> layout_of(const Caps& caps) {
  const std::uint32_t format = format_of(caps);
  if (sample_bits(format) != 0) {
    const std::int64_t channels = caps.number("channels");
    if (channels > 1 && caps.text("layout") == "non-interleaved") return {};
    return samples(format, channels, caps.number("rate"));
  }
  const std::string_view mode = caps.text("interlace-mode");
  const auto* const interlace = std::ranges::find(interlace_modes, mode.empty() ? interlace_modes[0] : mode);
  if (interlace == interlace_modes.end()) return {};
  auto made = usual_layout(format, caps.number("width"), caps.number("height"),
                           static_cast<std::uint32_t>(interlace - interlace_modes.begin()));
  if (!made) return {};
  set_colours(*made, caps.text("colorimetry"));
  if (caps.media_type == "video/x-bayer") made->bits = bits_of_bayer(caps.text("format"));
  return made;
}

bool is_by_field(const gpumap_layout& layout, std::uint32_t flags) noexcept {
  constexpr std::uint32_t interleaved = 1, mixed = 2;
  constexpr std::uint32_t frame_is_interlaced = 1U << 20U;  // GST_VIDEO_BUFFER_FLAG_INTERLACED
  if (!has_half_the_rows(layout.format)) return false;
  return layout.interlace == interleaved || (layout.interlace == mixed && (flags & frame_is_interlaced) != 0);
}

bool has_room_by_field(const gpumap_layout& layout, std::uint64_t bytes) noexcept {
  if (!has_half_the_rows(layout.format)) return true;
  const std::uint64_t height = layout.height, upper = ((height + 1) / 2 + 1) / 2, lower = (height / 2 + 1) / 2;
  const std::uint64_t rows = std::max(2 * upper - 1, 2 * lower);
  for (std::uint32_t plane = 1; plane < layout.planes; ++plane) {
    const bool is_before_next = plane + 1 < layout.planes && layout.offset[plane + 1] > layout.offset[plane];
    const std::uint64_t begin = layout.offset[plane], end = is_before_next ? layout.offset[plane + 1] : bytes;
    if (end < begin || end - begin < rows * static_cast<std::uint64_t>(layout.stride[plane])) return false;
  }
  return true;
}

namespace {

/// A part of a structure of caps. Its media type has a name and no value.
struct Part {
  std::string_view name, value;
};
Part part_of(std::string_view text) {
  const std::size_t sign = std::min(text.find('='), text.size());
  return {without_blanks(text.substr(0, sign)), without_blanks(text.substr(std::min(sign + 1, text.size())))};
}

CapsField text_field(std::string_view name, std::string_view text) {
  CapsField made{std::string(name), {}};
  made.value.kind = StreamValue::string;
  made.value.text = text;
  return made;
}

/// All that a layout says of caps.
Caps whole_caps_of(const gpumap_layout& layout) {
  const CapsOfLayout known = caps_of(layout);
  Caps caps;
  if (layout.format == GPUMAP_FORMAT_BYTES) return caps;
  caps.media_type = known.media_type;
  for (const auto& [name, value] : known.fields) {
    CapsField field = text_field(name, value);
    const auto* const end = value.data() + value.size();
    if (std::from_chars(value.data(), end, field.value.number).ptr == end) field.value.kind = StreamValue::integer;
    caps.fields.push_back(std::move(field));
  }
  if (layout.format >= GPUMAP_FORMAT_BAYER8_BGGR && layout.format <= GPUMAP_FORMAT_BAYER16_RGGB) {
    const bool is_deep = layout.format >= GPUMAP_FORMAT_BAYER16_BGGR;
    const std::uint32_t order = layout.format - (is_deep ? GPUMAP_FORMAT_BAYER16_BGGR : GPUMAP_FORMAT_BAYER8_BGGR);
    caps.fields.push_back(text_field("format", fmt::format("{}{}", bayer_orders[order], is_deep ? "16le" : "")));
  } else if (layout.format >= GPUMAP_FORMAT_RGB_F32_PLANAR && layout.format <= GPUMAP_FORMAT_RGB_U8) {
    const bool is_planar = layout.format <= GPUMAP_FORMAT_RGB_U8_PLANAR;
    const std::uint32_t type = layout.format - (is_planar ? GPUMAP_FORMAT_RGB_F32_PLANAR : GPUMAP_FORMAT_RGB_F32);
    caps.fields.push_back(text_field("type", tensor_types[type]));
    caps.fields.push_back(text_field("layout", is_planar ? "chw" : "hwc"));
  }
  return caps;
}

bool mentions(std::string_view text, std::string_view variable) {
  const auto mentioned = variables_in(text);
  return std::ranges::find(mentioned, variable) != mentioned.end();
}

/// Of a tensor whose caps tell by `dims` and `type`. Throws Error(invalid).
std::uint64_t bytes_of_dims(const Caps& caps) {
  const std::string_view type = caps.text("type");
  std::uint64_t bytes = bytes_of(type.empty() ? NumberType::f32 : parse_number_type(type));
  const CapsValue* const dims = caps.find("dims");
  if (dims == nullptr || dims->kind != StreamValue::array) {
    throw Error(ErrorCode::invalid, "dims are sizes, as in dims=(int)<1,1000>");
  }
  constexpr std::uint64_t most = std::uint64_t{1} << 62U;
  for (const CapsValue& one : dims->members) {
    const std::uint64_t size = one.kind == StreamValue::integer && one.number > 0 ? one.number : 0;
    if (size == 0 || bytes > most / size) {
      throw Error(ErrorCode::invalid, fmt::format("a size of {} in dims: each is from 1 on, and a tensor has at most "
                                                  "2^62 bytes",
                                                  one.number));
    }
    bytes *= size;
  }
  return bytes;
}

/// Of an output whose caps are these. Empty: they leave open what its size hangs on. Throws Error(invalid).
std::optional<gpumap_layout> layout_of_made(const Caps& caps) {
  const auto has = [&](std::string_view name) { return caps.find(name) != nullptr; };
  const auto is = [&](std::string_view media_type) { return caps.media_type == media_type; };
  const bool has_size = has("width") && has("height");
  gpumap_layout bytes{};
  bytes.struct_size = sizeof bytes;
  std::optional<gpumap_layout> made;
  if (is("application/x-spectrum") || is("application/x-iq-channels")) {
    // Each is a sample of so many floats.
    const bool is_spectrum = is("application/x-spectrum");
    if (!has(is_spectrum ? "bins" : "channels")) return {};
    made = samples(GPUMAP_FORMAT_F32, is_spectrum ? caps.number("bins") : 2 * caps.number("channels"), 0);
  } else if (is("application/x-tensor") && !has_size) {
    if (!has("dims")) return {};
    made = bytes;
    made->bytes = bytes_of_dims(caps);
  } else if (!is_of_layouts(caps.media_type)) {
    return bytes;
  } else {
    const bool is_of_samples = is("audio/x-raw") || is("application/x-iq");
    if (!has(is("application/x-tensor") ? "width" : "format") || !(is_of_samples ? has("channels") : has_size)) {
      return {};
    }
    made = layout_of(caps);
  }
  if (made) return made;
  throw Error(ErrorCode::invalid, fmt::format("gpumap knows no layout of {}", text_of(caps)));
}

}  // namespace

std::optional<gpumap_layout> layout_of_output(std::string_view declared, const gpumap_layout& in, Variables params) {
  const Caps of_input = whole_caps_of(in);
  std::vector<std::pair<std::string_view, std::uint64_t>> known(params.begin(), params.end());
  std::vector<std::string_view> unknown;
  for (const std::string_view name : {"width", "height", "rate", "channels"}) {
    if (of_input.find(name) != nullptr) {
      known.emplace_back(name, of_input.number(name));
    } else {
      unknown.push_back(name);
    }
  }
  // One structure: it ends with a ';' at most.
  declared = without_blanks(declared);
  if (declared.ends_with(';')) declared.remove_suffix(1);
  std::string text;
  std::vector<std::string> removed, inherited;
  for (const std::string_view part : parts_of(declared, ',')) {
    const bool is_known = std::ranges::none_of(unknown, [&](std::string_view name) { return mentions(part, name); });
    const std::string expanded(without_blanks(is_known ? expand(part, known) : std::string()));
    const auto [name, value] = part_of(expanded);
    if (text.empty()) {
      if (expanded.empty()) return {};
      text = expanded;
    } else if (expanded.empty() || expanded.ends_with('=')) {
      removed.emplace_back(part_of(part).name);
    } else if (const std::string_view range = without_type(value); range.starts_with('[')) {
      // One of several: the input's, if it is among them.
      const CapsValue* const same = of_input.find(name);
      const bool fits = same != nullptr && has_value(range, std::to_string(same->number));
      if (same != nullptr && !fits && name != "rate") {  // of a rate no size depends
        throw Error(ErrorCode::invalid, fmt::format("the input's {} of {} is not in {}", name, same->number, range));
      }
      (fits ? inherited : removed).emplace_back(name);
    } else {
      text += fmt::format(",{}{}{}", name, value.empty() ? "" : "=", value);
    }
  }
  Caps caps = parse_caps(text);
  const auto is_in = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  for (const CapsField& field : of_input.fields) {
    // A tensor has one shape.
    const bool is_of_shape = caps.find("dims") != nullptr && (field.name == "width" || field.name == "height");
    const bool goes_on = caps.media_type == of_input.media_type && !is_of_shape && !is_in(removed, field.name);
    if (caps.find(field.name) == nullptr && (goes_on || is_in(inherited, field.name))) caps.fields.push_back(field);
  }
  return layout_of_made(caps);
}

std::uint32_t gst_number_of(std::uint32_t format) noexcept {
  const auto* const known = find_in(video_formats, [&](const VideoFormat& one) { return one.format == format; });
  return known != nullptr ? known->gst : 0;
}

std::uint32_t format_of_gst(std::uint32_t number) noexcept {
  const auto* const known = find_in(video_formats, [&](const VideoFormat& one) { return one.gst == number; });
  return known != nullptr ? known->format : std::uint32_t{GPUMAP_FORMAT_VIDEO_OTHER};
}

bool is_picture(std::uint32_t format) noexcept {
  return planes_of(format, 1, 1)[0].stride != 0;
}

void check_layout(const gpumap_layout& layout, std::uint64_t bytes) {
  if (layout.matrix > most_matrix || layout.range > limited_range || layout.bits > 16 ||
      layout.interlace >= interlace_modes.size()) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("a layout of matrix {}, range {}, {} bits and interlace mode {}: leave 0 what is not known; "
                    "the largest are {}, {}, 16 and {}",
                    layout.matrix, layout.range, layout.bits, layout.interlace, most_matrix, limited_range,
                    interlace_modes.size() - 1));
  }
  if (!is_picture(layout.format)) {
    // Where the first one begins would be believed.
    if (layout.planes != 0 && (layout.format == GPUMAP_FORMAT_BYTES || sample_bits(layout.format) != 0)) {
      throw Error(
          ErrorCode::invalid,
          fmt::format("a layout of format {} in {} planes: bytes and samples have none: leave planes 0, and say "
                      "where a kernel's input begins by offset of gpumap_run_options",
                      layout.format, layout.planes));
    }
    if (layout.format == GPUMAP_FORMAT_BYTES) return;
    if (std::uint64_t{sample_bits(layout.format)} * layout.channels % CHAR_BIT == 0 &&
        sample_bits(layout.format) != 0 && layout.channels != 0) {
      return;
    }
    throw Error(ErrorCode::invalid, fmt::format("a layout of format {} with {} channels: take one of gpumap_format "
                                                "or sample_format.h, and samples of 1 channel or more, S12 of an even "
                                                "number",
                                                layout.format, layout.channels));
  }
  const auto usual = usual_layout(layout.format, layout.width, layout.height);
  if (!usual || layout.planes != usual->planes) {
    throw Error(ErrorCode::invalid,
                fmt::format("a layout of {}x{} in {} planes: pictures have 1 to 65536 pixels a side, and format {} has "
                            "{} planes",
                            layout.width, layout.height, layout.planes, layout.format, usual ? usual->planes : 0));
  }
  for (std::uint32_t plane = 0; plane < layout.planes; ++plane) {
    const auto [usual_stride, rows, row_bytes] = planes_of(layout.format, layout.width, layout.height)[plane];
    const std::uint64_t offset = layout.offset[plane];
    const auto stride = static_cast<std::uint64_t>(std::max(layout.stride[plane], 0));
    // The last row may end with its pixels.
    if (stride < row_bytes || offset > bytes || (rows - 1) * stride + row_bytes > bytes - offset) {
      throw Error(
          ErrorCode::invalid,
          fmt::format("plane {} of a layout, {} rows of {} bytes, {} bytes apart from byte {} on, leaves a frame of {} "
                      "bytes or lies in itself",
                      plane, rows, row_bytes, layout.stride[plane], offset, bytes));
    }
  }
}

}  // namespace gpumap::c

using namespace gpumap;     // NOLINT: definitions of the C interface
using namespace gpumap::c;  // NOLINT

gpumap_status gpumap_layout_of_picture(uint32_t format, uint32_t width, uint32_t height, gpumap_layout* layout) {
  return guarded([&] {
    const auto made = usual_layout(format, width, height);
    if (!made) {
      throw Error(
          ErrorCode::invalid,
          fmt::format("a picture of {}x{} in format {}: take a format of pictures, and 1 to 65536 pixels a side", width,
                      height, format));
    }
    tell(*made, layout, "gpumap_layout");
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_layout_of_caps(const char* caps, gpumap_layout* layout) {
  return guarded([&] {
    need(caps, "caps");
    const auto made = layout_of(parse_caps(caps));
    if (!made) {
      throw Error(ErrorCode::not_supported,
                  fmt::format("caps \"{}\" say no layout that gpumap knows: give a gpumap_layout", caps));
    }
    tell(*made, layout, "gpumap_layout");
    return GPUMAP_OK;
  });
}
