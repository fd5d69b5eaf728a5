// SPDX-License-Identifier: MIT
#include "gst/kernel/kernel_caps.hpp"

#include <fmt/format.h>
#include <gst/video/video.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

namespace {

constexpr const char* loaded_formats =
    "NV12, I420, Y42B, Y444, YUY2, UYVY, RGB, BGR, RGBA, BGRA, P010_10LE, P016_LE, I420_10LE, Y444_10LE, v210, Y210, "
    "GRAY8, GRAY16_LE";
constexpr const char* bayer_formats =
    "bggr, gbrg, grbg, rggb, bggr10le, gbrg10le, grbg10le, rggb10le, bggr12le, gbrg12le, grbg12le, rggb12le, "
    "bggr14le, gbrg14le, grbg14le, rggb14le, bggr16le, gbrg16le, grbg16le, rggb16le";
// In order of preference; of a kernel of the user's the first three and the last.
constexpr std::array stored_formats{"RGBA", "BGRA", "RGB", "NV12", "I420", "P010_10LE", "YUY2", "Y444", "GRAY8"};

bool stores(const DeclaredCaps& declared, const char* format) {
  GstVideoInfo info;
  gst_video_info_set_format(&info, gst_video_format_from_string(format), 16, 16);
  return declared.builtin || !GST_VIDEO_INFO_IS_YUV(&info);
}

void set_from_string(GstStructure* structure, const char* field, GType type, const char* text) {
  GValue value = G_VALUE_INIT;
  g_value_init(&value, type);
  if (gst_value_deserialize(&value, text)) gst_structure_take_value(structure, field, &value);
}

void copy_fields(GstStructure* to, const GstStructure* from, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const GValue* value = gst_structure_get_value(from, name)) gst_structure_set_value(to, name, value);
  }
}

std::optional<GstVideoColorimetry> colorimetry_of(const GstStructure* structure) {
  const gchar* text = gst_structure_get_string(structure, "colorimetry");
  GstVideoColorimetry colorimetry;
  if (text == nullptr || !gst_video_colorimetry_from_string(&colorimetry, text)) return {};
  return colorimetry;
}

/// How the sizes of the two sides go together.
struct Resizing {
  Crop crop;
  bool width = false, height = false;  ///< any, instead of what is shown pixel for pixel
  bool to_output = false;
};

void set_size(GstStructure* made, const GstStructure* from, const char* name, const CropAxis& crop, bool any,
              bool to_output) {
  gint size = 0;
  const bool fixed = gst_structure_get_int(from, name, &size) != 0;
  if (!any && crop.is_all()) {
    copy_fields(made, from, {name});
  } else if (!any && to_output && crop.length != 0) {
    gst_structure_set(made, name, G_TYPE_INT, crop.length, nullptr);
  } else if (!any && to_output && fixed && size > crop.start) {
    gst_structure_set(made, name, G_TYPE_INT, size - crop.start, nullptr);
  } else {
    gst_structure_set(made, name, GST_TYPE_INT_RANGE, 1, G_MAXINT, nullptr);
  }
}

std::string stored_by(const DeclaredCaps& declared) {
  std::string formats;
  for (const char* format : stored_formats) {
    if (stores(declared, format)) formats += (formats.empty() ? "" : ", ") + std::string(format);
  }
  return formats;
}

/// A picture by another name and with other formats: what belongs to the old ones goes.
GstStructure* as_picture(const GstStructure* from, const char* name, const char* formats, const Resizing& resizing) {
  GstStructure* made = gst_structure_new_empty(name);
  set_size(made, from, "width", resizing.crop.width, resizing.width, resizing.to_output);
  set_size(made, from, "height", resizing.crop.height, resizing.height, resizing.to_output);
  copy_fields(made, from, {"framerate"});
  if (formats != nullptr) set_from_string(made, "format", GST_TYPE_LIST, fmt::format("{{ {} }}", formats).c_str());
  return made;
}

GstStructure* as_video(const GstStructure* from, const char* formats, const Resizing& resizing) {
  GstStructure* made = as_picture(from, "video/x-raw", formats, resizing);
  copy_fields(made, from, {"interlace-mode", "field-order", "multiview-mode", "multiview-flags"});
  // Resized, a picture is stretched to what is asked for, which has the shape of pixels that it says it has.
  if (!resizing.width && !resizing.height) copy_fields(made, from, {"pixel-aspect-ratio"});
  return made;
}

GstStructure* as_tensor(const GstStructure* from, const Resizing& resizing) {
  GstStructure* made = as_picture(from, tensor_name, nullptr, resizing);
  set_from_string(made, "type", GST_TYPE_LIST, "{ float32, float16, uint8 }");
  set_from_string(made, "layout", GST_TYPE_LIST, "{ chw, hwc }");
  gst_structure_set(made, "channels", G_TYPE_INT, 3, nullptr);
  return made;
}

/// Fields of two pictures share a frame: it cannot be resized as a whole.
bool is_interlaced(const GstStructure* structure) {
  const gchar* mode = gst_structure_get_string(structure, "interlace-mode");
  return mode != nullptr && g_strcmp0(mode, "progressive") != 0;
}

/// Whether `wanted`, a picture or a tensor, comes out of any input.
bool is_made(const GstStructure* wanted, const char* stored) {
  const Resizing any{.crop = {}, .width = true, .height = true};
  const Ptr<GstStructure> nothing(gst_structure_new_empty("video/x-raw"));
  const bool tensor = gst_structure_has_name(wanted, tensor_name);
  const Ptr<GstStructure> made(tensor ? as_tensor(nothing.get(), any) : as_video(nothing.get(), stored, any));
  return gst_structure_can_intersect(wanted, made.get()) != 0;
}

/// What is shown pixel for pixel first. Where downstream asks for a width or a height alone, the other one stays so.
void append_converted(GstCaps* made, const GstStructure* from, const char* stored, bool to_output, const Crop& crop) {
  const bool video = gst_structure_has_name(from, "video/x-raw");
  if (to_output ? !video && !gst_structure_has_name(from, bayer_name) : !is_made(from, stored)) return;
  for (const auto& [width, height] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
    if ((width || height) && is_interlaced(from)) break;
    const Resizing resizing{.crop = crop, .width = width, .height = height, .to_output = to_output};
    if (to_output) {
      gst_caps_append_structure(made, as_video(from, stored, resizing));
      gst_caps_append_structure(made, as_tensor(from, resizing));
    } else {
      gst_caps_append_structure(made, as_video(from, loaded_formats, resizing));
      gst_caps_append_structure(made, as_picture(from, bayer_name, bayer_formats, resizing));
    }
  }
}

/// What of `caps` the kernel takes.
Ptr<GstCaps> only_declared(const DeclaredCaps& declared, Ptr<GstCaps> caps) {
  if (declared.input.empty()) return caps;
  const Ptr<GstCaps> input(gst_caps_from_string(declared.input.c_str()));
  return Ptr<GstCaps>(gst_caps_intersect_full(caps.get(), input.get(), GST_CAPS_INTERSECT_FIRST));
}

}  // namespace

std::string formats_of_convert() {
  return fmt::format("takes {} and Bayer, gives {} and tensors", loaded_formats, stored_by({.builtin = true}));
}

std::optional<Crop> crop_of(const DeclaredCaps& declared, const std::string& params) {
  if (!declared.converted) return std::nullopt;
  const std::vector<Number> numbers = numbers_of(declared, params);
  std::size_t first = 0;
  for (const DeclaredParameter& parameter : declared.params) {
    if (parameter.name == "crop" && parameter.values.size() == 4) {
      const std::span<const Number> crop = std::span(numbers).subspan(first, 4);
      const auto is_size = [](const Number& number) { return number.value() >= 0.0 && number.value() < 1e6; };
      if (!std::all_of(crop.begin(), crop.end(), is_size)) break;
      const auto axis = [crop](std::size_t which) -> CropAxis {
        return {static_cast<gint>(crop[which].value()), static_cast<gint>(crop[which + 2].value())};
      };
      return Crop{axis(0), axis(1)};
    }
    first += parameter.values.size();
  }
  return Crop{};
}

GstCaps* transform_converted_caps(const DeclaredCaps& declared, const std::string& params, GstPadDirection direction,
                                  const GstCaps* caps) {
  const bool to_output = direction == GST_PAD_SINK;
  const Crop crop = crop_of(declared, params).value_or(Crop{});
  const std::string stored = stored_by(declared);
  Ptr<GstCaps> from;
  if (!gst_caps_is_any(caps)) {
    from.reset(with_feature(caps, false));
  } else if (to_output && !declared.input.empty()) {
    from.reset(gst_caps_from_string(declared.input.c_str()));
  } else {
    from.reset(gst_caps_new_empty_simple("video/x-raw"));
  }
  if (to_output) from = only_declared(declared, std::move(from));
  Ptr<GstCaps> made(of_each_structure(from.get(), [&](GstCaps* all, const GstStructure* structure, const auto*) {
    append_converted(all, structure, stored.c_str(), to_output, crop);
  }));
  if (!to_output) made = only_declared(declared, std::move(made));
  // Several inputs give the same outputs: once, or each kernel of a row would multiply them.
  made.reset(gst_caps_merge(gst_caps_new_empty(), made.release()));
  return in_either_memory(made.get());
}

GstCaps* prefer_format(const DeclaredCaps& declared, GstCaps* others) {
  if (!declared.converted || gst_caps_is_empty(others)) return others;
  if (!gst_structure_has_name(gst_caps_get_structure(others, 0), "video/x-raw")) return others;
  for (const char* format : stored_formats) {
    const Ptr<GstCaps> wanted(gst_caps_new_simple("video/x-raw", "format", G_TYPE_STRING, format, nullptr));
    gst_caps_set_features(wanted.get(), 0, gst_caps_features_copy(gst_caps_get_features(others, 0)));
    Ptr<GstCaps> found(gst_caps_intersect_full(others, wanted.get(), GST_CAPS_INTERSECT_FIRST));
    if (gst_caps_is_empty(found.get())) continue;
    gst_caps_unref(others);
    return found.release();
  }
  return others;
}

namespace {

bool shares_chroma(const GstVideoInfo& info) {
  return GST_VIDEO_INFO_IS_YUV(&info) && GST_VIDEO_FORMAT_INFO_W_SUB(info.finfo, 1) != 0;
}

/// Where chroma lies in `out` that pixels share: where it was in the input if they shared it there, else in their
/// middle. Null: they share none, or the input does not say.
const gchar* chroma_site(const GstCaps* in, const GstCaps* out) {
  GstVideoInfo from;
  GstVideoInfo to;
  const GstStructure* given = gst_caps_get_structure(out, 0);
  const GstStructure* taken = gst_caps_get_structure(in, 0);
  if (!gst_structure_has_name(given, "video/x-raw") || !gst_video_info_from_caps(&to, out) || !shares_chroma(to)) {
    return nullptr;
  }
  const bool was_shared =
      gst_structure_has_name(taken, "video/x-raw") && gst_video_info_from_caps(&from, in) != 0 && shares_chroma(from);
  return was_shared ? gst_structure_get_string(taken, "chroma-site") : "jpeg";
}

/// What is said of the colours of an output, of caps that say what the input's are like.
GstVideoColorimetry converted_colorimetry(const GstVideoInfo& in, const GstVideoInfo& out) {
  GstVideoColorimetry colorimetry = in.colorimetry;
  if (GST_VIDEO_INFO_IS_RGB(&out)) {
    colorimetry.matrix = GST_VIDEO_COLOR_MATRIX_RGB;
    colorimetry.range = GST_VIDEO_COLOR_RANGE_0_255;
  } else if (GST_VIDEO_INFO_IS_GRAY(&out)) {
    colorimetry.matrix = GST_VIDEO_COLOR_MATRIX_BT601;
    colorimetry.range = GST_VIDEO_COLOR_RANGE_0_255;
  } else if (!GST_VIDEO_INFO_IS_YUV(&in)) {
    colorimetry.matrix = out.colorimetry.matrix;
    colorimetry.range = GST_VIDEO_COLOR_RANGE_16_235;
  }
  return colorimetry;
}

}  // namespace

void check_chroma_site(const DeclaredCaps& declared, const GstCaps* in, const GstCaps* out) {
  if (!declared.converted) return;
  const gchar* made = chroma_site(in, out);
  const gchar* asked = gst_structure_get_string(gst_caps_get_structure(out, 0), "chroma-site");
  if (made == nullptr || asked == nullptr || g_strcmp0(made, asked) == 0) return;
  throw Error(ErrorCode::invalid, fmt::format("what follows gpumapkernel asks for chroma-site={}, and of this input it "
                                              "makes chroma-site={}: leave chroma-site out",
                                              asked, made));
}

void add_colorimetry(const DeclaredCaps& declared, const GstCaps* in, GstCaps* out) {
  if (!declared.converted) return;
  const GstStructure* from = gst_caps_get_structure(in, 0);
  GstStructure* given = gst_caps_get_structure(out, 0);
  if (!gst_structure_has_name(given, "video/x-raw")) return;
  if (const gchar* site = chroma_site(in, out); site != nullptr && !gst_structure_has_field(given, "chroma-site")) {
    gst_structure_set(given, "chroma-site", G_TYPE_STRING, site, nullptr);
  }
  GstVideoInfo from_info;
  GstVideoInfo given_info;
  if (!gst_structure_has_name(from, "video/x-raw") || !gst_video_info_from_caps(&from_info, in) ||
      !gst_video_info_from_caps(&given_info, out)) {
    return;
  }
  const std::optional<GstVideoColorimetry> was = colorimetry_of(from);
  if (was && !gst_structure_has_field(given, "colorimetry")) {
    const GstVideoColorimetry colorimetry = converted_colorimetry(from_info, given_info);
    const Ptr<gchar> made(gst_video_colorimetry_to_string(&colorimetry));
    gst_structure_set(given, "colorimetry", G_TYPE_STRING, made.get(), nullptr);
  }
  // What light the numbers stand for is said of these primaries and this transfer function.
  const std::optional<GstVideoColorimetry> is = colorimetry_of(given);
  if (!was || !is || is->primaries != was->primaries || is->transfer != was->transfer) return;
  for (const char* name : {"mastering-display-info", "content-light-level"}) {
    if (!gst_structure_has_field(given, name)) copy_fields(given, from, {name});
  }
}

}  // namespace gpumap::gst
