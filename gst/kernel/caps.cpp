// SPDX-License-Identifier: MIT
#include "gst/kernel/caps.hpp"

#include <gst/video/video.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "gst/kernel/declared_caps.hpp"
#include "gst/kernel/radio_caps.hpp"
#include "gst/memory/caps.hpp"
#include "gst/memory/frame_format.hpp"

namespace gpumap::gst {

namespace {

constexpr const char* convert_inputs =
    "{ NV12, I420, YUY2, UYVY, RGB, BGR, RGBA, BGRA, P010_10LE, v210, Y210, GRAY8, GRAY16_LE }";
constexpr const char* bayer_inputs =
    "{ bggr, gbrg, grbg, rggb, bggr10le, gbrg10le, grbg10le, rggb10le, bggr12le, gbrg12le, grbg12le, rggb12le, "
    "bggr14le, gbrg14le, grbg14le, rggb14le, bggr16le, gbrg16le, grbg16le, rggb16le }";
constexpr const char* convert_outputs = "{ RGBA, BGRA, RGB, GRAY8 }";
constexpr const char* sample_inputs = "{ U8, S8, S16LE, F32LE }";

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

/// How the sizes of convert's two sides go together.
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

/// A picture by another name and with other formats: what belongs to the old ones goes.
GstStructure* as_picture(const GstStructure* from, const char* name, const char* formats, const Resizing& resizing) {
  GstStructure* made = gst_structure_new_empty(name);
  set_size(made, from, "width", resizing.crop.width, resizing.width, resizing.to_output);
  set_size(made, from, "height", resizing.crop.height, resizing.height, resizing.to_output);
  copy_fields(made, from, {"framerate"});
  if (formats != nullptr) set_from_string(made, "format", GST_TYPE_LIST, formats);
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

GstStructure* as_audio(const GstStructure* from, const char* formats, int channels) {
  GstStructure* made = gst_structure_new("audio/x-raw", "layout", G_TYPE_STRING, "interleaved", nullptr);
  copy_fields(made, from, {"rate"});
  set_from_string(made, "format", formats[0] == '{' ? GST_TYPE_LIST : G_TYPE_STRING, formats);
  if (channels != 0) {
    gst_structure_set(made, "channels", G_TYPE_INT, channels, nullptr);
  } else {
    copy_fields(made, from, {"channels", "channel-mask"});
  }
  return made;
}

/// Fields of two pictures share a frame: it cannot be resized as a whole.
bool is_interlaced(const GstStructure* structure) {
  const gchar* mode = gst_structure_get_string(structure, "interlace-mode");
  return mode != nullptr && g_strcmp0(mode, "progressive") != 0;
}

/// What is shown pixel for pixel first. Where downstream asks for a width or a height alone, the other one stays so.
void append_convert(GstCaps* made, const GstStructure* from, bool to_output, const Crop& crop) {
  const bool tensor = gst_structure_has_name(from, tensor_name);
  const bool video = gst_structure_has_name(from, "video/x-raw");
  if (to_output ? !video && !gst_structure_has_name(from, bayer_name) : !video && !tensor) return;
  for (const auto& [width, height] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
    if ((width || height) && is_interlaced(from)) break;
    const Resizing resizing{.crop = crop, .width = width, .height = height, .to_output = to_output};
    if (to_output) {
      gst_caps_append_structure(made, as_video(from, convert_outputs, resizing));
      gst_caps_append_structure(made, as_tensor(from, resizing));
    } else {
      gst_caps_append_structure(made, as_video(from, convert_inputs, resizing));
      gst_caps_append_structure(made, as_picture(from, bayer_name, bayer_inputs, resizing));
    }
  }
}

struct Size {
  gint width = 0, height = 0;
};

/// What `structure` allows that is nearest to `size`, a width, and the height that goes with it by `ratio`, width to
/// height; or the other way around.
Size nearest_size(const GstStructure* structure, Size size, double ratio, bool by_width) {
  const auto rounded = [](double length) {
    return static_cast<gint>(std::clamp(std::lround(length), 1L, long{G_MAXINT}));
  };
  const auto nearest = [&](const char* name, gint wanted) {
    GstStructure* copy = gst_structure_copy(structure);
    gst_structure_fixate_field_nearest_int(copy, name, wanted);
    gint found = wanted;
    gst_structure_get_int(copy, name, &found);
    gst_structure_free(copy);
    return found;
  };
  if (by_width) {
    size.width = nearest("width", size.width);
    size.height = nearest("height", rounded(size.width / ratio));
  } else {
    size.height = nearest("height", size.height);
    size.width = nearest("width", rounded(size.height * ratio));
  }
  return size;
}

/// The shape of pixels that `structure` says it has.
double pixel_ratio(const GstStructure* structure) {
  gint width = 1, height = 1;
  gst_structure_get_fraction(structure, "pixel-aspect-ratio", &width, &height);
  return width > 0 && height > 0 ? double(width) / height : 1.0;
}

bool has_fixed_size(const GstStructure* structure) {
  gint ignored = 0;
  return gst_structure_get_int(structure, "width", &ignored) != 0 &&
         gst_structure_get_int(structure, "height", &ignored) != 0;
}

}  // namespace

Crop crop_of(const std::string& params) {
  try {
    for (const auto& [name, values] : parse_parameters(params)) {
      const auto is_size = [](const Number& number) { return number.value() >= 0.0 && number.value() < 1e6; };
      if (name != "crop" || values.size() != 4 || !std::all_of(values.begin(), values.end(), is_size)) continue;
      const auto axis = [&values = values](std::size_t which) -> CropAxis {
        return {static_cast<gint>(values[which].value()), static_cast<gint>(values[which + 2].value())};
      };
      return {axis(0), axis(1)};
    }
  } catch (const Error&) {
    return {};
  }
  return {};
}

GstCaps* fixate_size(std::string_view kernel, const std::string& params, const GstCaps* in, GstCaps* others) {
  const GstStructure* from = gst_caps_get_structure(in, 0);
  const GstStructure* first = gst_caps_get_structure(others, 0);
  Size size;
  if (!gst_structure_get_int(from, "width", &size.width) || !gst_structure_get_int(from, "height", &size.height) ||
      !gst_structure_has_field(first, "width") || !gst_structure_has_field(first, "height") || has_fixed_size(first)) {
    return others;
  }
  if (kernel == "convert") {
    const Crop crop = crop_of(params);
    size = {crop.width.shown_of(size.width), crop.height.shown_of(size.height)};
  }
  // The last of its kind leaves most open: those before it hold on to a width or to a height.
  guint chosen = 0;
  for (guint i = 1; i < gst_caps_get_size(others); ++i) {
    if (gst_structure_has_name(gst_caps_get_structure(others, i), gst_structure_get_name(first))) chosen = i;
  }
  GstCaps* one = gst_caps_copy_nth(others, chosen);
  gst_caps_unref(others);
  GstStructure* structure = gst_caps_get_structure(one, 0);
  if (gst_structure_has_field(structure, "pixel-aspect-ratio")) {
    gst_structure_fixate_field_nearest_fraction(structure, "pixel-aspect-ratio", 1, 1);
  }
  const double ratio = size.width * pixel_ratio(from) / (size.height * pixel_ratio(structure));
  const auto distortion = [&](const Size& of) { return std::abs(std::log(of.width / (of.height * ratio))); };
  const Size by_height = nearest_size(structure, size, ratio, false);
  const Size by_width = nearest_size(structure, size, ratio, true);
  size = distortion(by_width) < distortion(by_height) ? by_width : by_height;
  gst_structure_set(structure, "width", G_TYPE_INT, size.width, "height", G_TYPE_INT, size.height, nullptr);
  return one;
}

void add_colorimetry(const GstCaps* in, GstCaps* out) {
  const gchar* text = gst_structure_get_string(gst_caps_get_structure(in, 0), "colorimetry");
  GstStructure* given = gst_caps_get_structure(out, 0);
  GstVideoColorimetry colorimetry;
  if (text == nullptr || !gst_video_colorimetry_from_string(&colorimetry, text) ||
      !gst_structure_has_name(given, "video/x-raw") || gst_structure_has_field(given, "colorimetry")) {
    return;
  }
  const bool gray = g_strcmp0(gst_structure_get_string(given, "format"), "GRAY8") == 0;
  colorimetry.range = GST_VIDEO_COLOR_RANGE_0_255;
  colorimetry.matrix = gray ? GST_VIDEO_COLOR_MATRIX_BT601 : GST_VIDEO_COLOR_MATRIX_RGB;
  gchar* made = gst_video_colorimetry_to_string(&colorimetry);
  gst_structure_set(given, "colorimetry", G_TYPE_STRING, made, nullptr);
  g_free(made);
}

GstCaps* transform_kernel_caps(std::string_view kernel, const std::string& params, const DeclaredCaps& declared,
                               GstPadDirection direction, GstCaps* caps) {
  if (!declared.empty()) return transform_declared_caps(declared, direction, caps);
  const bool to_output = direction == GST_PAD_SINK;
  const bool convert = kernel == "convert";
  const bool to_f32 = kernel == "iq-to-f32";
  const bool power = kernel == "iq-power";
  const bool radio = is_radio_kernel(kernel);
  GstCaps* from = gst_caps_ref(caps);
  if (gst_caps_is_any(caps)) {
    if (!convert && !to_f32 && !power && !radio) return from;
    gst_caps_unref(from);
    from = radio ? gst_caps_new_empty() : gst_caps_new_empty_simple(convert ? "video/x-raw" : "audio/x-raw");
  }
  const Crop crop = convert ? crop_of(params) : Crop{};
  GstCaps* made = gst_caps_new_empty();
  if (radio && gst_caps_is_any(caps)) {
    gst_caps_append_structure(made, transform_radio_caps(kernel, params, direction, nullptr));
  }
  for (guint i = 0; i < gst_caps_get_size(from); ++i) {
    const GstStructure* structure = gst_caps_get_structure(from, i);
    if (radio) {
      GstStructure* other = transform_radio_caps(kernel, params, direction, structure);
      if (other != nullptr) gst_caps_append_structure(made, other);
    } else if (convert) {
      append_convert(made, structure, to_output, crop);
    } else if (to_f32 || power) {
      if (!gst_structure_has_name(structure, "audio/x-raw")) continue;
      const int channels = power ? (to_output ? 1 : 2) : 0;
      gst_caps_append_structure(made, as_audio(structure, to_output ? "F32LE" : sample_inputs, channels));
    } else {
      gst_caps_append_structure(made, gst_structure_copy(structure));
    }
  }
  gst_caps_unref(from);
  // System memory at the input, too: a tee may leave only that of frames that lie in GPU memory. Of others the first
  // frame can say what is missing, a link that fails cannot.
  GstCaps* result = in_either_memory(made);
  gst_caps_unref(made);
  return result;
}

}  // namespace gpumap::gst
