// SPDX-License-Identifier: MIT
#include "kernel_caps.hpp"

#include "caps.hpp"
#include "declared_caps.hpp"
#include "frame_format.hpp"

namespace gpumap::gst {

namespace {

constexpr const char* convert_inputs = "{ NV12, I420, YUY2, UYVY, RGB, BGR, RGBA, BGRA }";
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

/// Raw video of one size with other formats: what belongs to the old format goes.
GstStructure* as_video(const GstStructure* from, const char* formats) {
  GstStructure* made = gst_structure_new_empty("video/x-raw");
  copy_fields(made, from, {"width", "height", "framerate", "pixel-aspect-ratio", "interlace-mode"});
  set_from_string(made, "format", formats[0] == '{' ? GST_TYPE_LIST : G_TYPE_STRING, formats);
  return made;
}

GstStructure* as_tensor(const GstStructure* from) {
  GstStructure* made = gst_structure_new(tensor_name, "type", G_TYPE_STRING, "float32", "layout", G_TYPE_STRING, "chw",
                                         "channels", G_TYPE_INT, 3, nullptr);
  copy_fields(made, from, {"width", "height", "framerate"});
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

void append_convert(GstCaps* made, const GstStructure* from, bool to_output) {
  const bool tensor = gst_structure_has_name(from, tensor_name);
  if (!tensor && !gst_structure_has_name(from, "video/x-raw")) return;
  if (to_output) {
    if (tensor) return;
    gst_caps_append_structure(made, as_video(from, "RGBA"));
    gst_caps_append_structure(made, as_tensor(from));
  } else {
    gst_caps_append_structure(made, as_video(from, convert_inputs));
  }
}

}  // namespace

GstCaps* transform_kernel_caps(std::string_view kernel, const std::string& declared, GstPadDirection direction,
                               GstCaps* caps) {
  const bool to_output = direction == GST_PAD_SINK;
  const bool convert = kernel == "convert";
  const bool to_f32 = kernel == "iq-to-f32";
  const bool power = kernel == "iq-power";
  // What gives the same output for any input says nothing about that.
  if (!declared.empty() && (!to_output || gst_caps_is_any(caps))) return gst_caps_new_any();
  GstCaps* from = gst_caps_ref(caps);
  if (gst_caps_is_any(caps)) {
    if (!convert && !to_f32 && !power) return from;
    gst_caps_unref(from);
    from = gst_caps_new_empty_simple(convert ? "video/x-raw" : "audio/x-raw");
  }
  GstCaps* made = gst_caps_new_empty();
  for (guint i = 0; i < gst_caps_get_size(from); ++i) {
    const GstStructure* structure = gst_caps_get_structure(from, i);
    if (!declared.empty()) {
      if (GstStructure* output = declared_structure(declared, structure)) gst_caps_append_structure(made, output);
    } else if (convert) {
      append_convert(made, structure, to_output);
    } else if (to_f32 || power) {
      if (!gst_structure_has_name(structure, "audio/x-raw")) continue;
      const int channels = power ? (to_output ? 1 : 2) : 0;
      gst_caps_append_structure(made, as_audio(structure, to_output ? "F32LE" : sample_inputs, channels));
    } else {
      gst_caps_append_structure(made, gst_structure_copy(structure));
    }
  }
  gst_caps_unref(from);
  // System memory at the input too, though set_caps() refuses it: it can say what is missing, a link that fails cannot.
  GstCaps* result = with_feature(made, true);
  gst_caps_append(result, with_feature(made, false));
  gst_caps_unref(made);
  return result;
}

}  // namespace gpumap::gst
