// SPDX-License-Identifier: MIT
#include "gst/kernel/radio_caps.hpp"

#include <algorithm>
#include <array>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap::gst {

namespace {

constexpr std::array<std::string_view, 4> names{"magnitude", "ddc", "spectrum", "channelizer"};

/// The parameter's first number. What is wrong with the text is said where the kernel starts.
int number_of(const Builtin& builtin, const std::string& params, std::string_view name) {
  std::array<double, GPUMAP_MAX_PARAMS> values{};
  try {
    apply_parameters(builtin, params, values);
  } catch (const Error&) {
    apply_parameters(builtin, {}, values);
  }
  const auto found = std::find_if(builtin.parameters.begin(), builtin.parameters.end(),
                                  [&](const Parameter& parameter) { return parameter.name == name; });
  const double value = found != builtin.parameters.end() ? values[found->first] : 0.0;
  return static_cast<int>(std::clamp(value, 0.0, double{G_MAXINT}));
}

void copy_rate(GstStructure* to, const GstStructure* from) {
  const GValue* rate = from != nullptr ? gst_structure_get_value(from, "rate") : nullptr;
  if (rate != nullptr) gst_structure_set_value(to, "rate", rate);
}

GstStructure* new_iq(bool any_format) {
  GstStructure* made =
      gst_structure_new("audio/x-raw", "layout", G_TYPE_STRING, "interleaved", "channels", G_TYPE_INT, 2, nullptr);
  if (!any_format) {
    gst_structure_set(made, "format", G_TYPE_STRING, "F32LE", nullptr);
    return made;
  }
  GValue formats = G_VALUE_INIT;
  g_value_init(&formats, GST_TYPE_LIST);
  if (gst_value_deserialize(&formats, "{ U8, S8, S16LE, F32LE }")) {
    gst_structure_take_value(made, "format", &formats);
  }
  return made;
}

GstStructure* ddc_output(const Builtin& builtin, const std::string& params) {
  GstStructure* made = new_iq(false);
  const int rate = number_of(builtin, params, "rate");
  if (rate != 0) {
    gst_structure_set(made, "rate", G_TYPE_INT, rate, nullptr);
  } else {
    gst_structure_set(made, "rate", GST_TYPE_INT_RANGE, 1, G_MAXINT, nullptr);
  }
  return made;
}

GstStructure* spectrum_output(const Builtin& builtin, const std::string& params, const GstStructure* from) {
  GstStructure* made = gst_structure_new(spectrum_name, "format", G_TYPE_STRING, "F32LE", "bins", G_TYPE_INT,
                                         number_of(builtin, params, "size"), "unit", G_TYPE_STRING,
                                         number_of(builtin, params, "db") != 0 ? "decibel" : "power", nullptr);
  copy_rate(made, from);
  return made;
}

/// A channel's rate need not be whole.
GstStructure* channelizer_output(const Builtin& builtin, const std::string& params, const GstStructure* from) {
  const int channels = number_of(builtin, params, "channels");
  GstStructure* made =
      gst_structure_new(channels_name, "format", G_TYPE_STRING, "F32LE", "channels", G_TYPE_INT, channels, nullptr);
  const int oversample = number_of(builtin, params, "oversample");
  gint rate = 0;
  if (from != nullptr && gst_structure_get_int(from, "rate", &rate) && channels > 0 && oversample > 0 &&
      rate <= G_MAXINT / oversample) {
    gst_structure_set(made, "rate", GST_TYPE_FRACTION, rate * oversample, channels, nullptr);
  }
  return made;
}

}  // namespace

bool is_radio_kernel(std::string_view kernel) noexcept {
  return std::find(names.begin(), names.end(), kernel) != names.end();
}

GstStructure* transform_radio_caps(std::string_view kernel, const std::string& params, GstPadDirection direction,
                                   const GstStructure* from) {
  const Builtin& builtin = *find_builtin(kernel);
  const bool spectrum = kernel == "spectrum", channelizer = kernel == "channelizer";
  if (direction == GST_PAD_SRC) {
    const char* given = spectrum ? spectrum_name : channelizer ? channels_name : "audio/x-raw";
    if (from != nullptr && !gst_structure_has_name(from, given)) return nullptr;
    GstStructure* made = new_iq(true);
    if (spectrum || kernel == "magnitude") copy_rate(made, from);
    return made;
  }
  if (from != nullptr && !gst_structure_has_name(from, "audio/x-raw")) return nullptr;
  if (spectrum) return spectrum_output(builtin, params, from);
  if (channelizer) return channelizer_output(builtin, params, from);
  if (kernel == "ddc") return ddc_output(builtin, params);
  GstStructure* made = new_iq(false);
  gst_structure_set(made, "channels", G_TYPE_INT, 1, nullptr);
  copy_rate(made, from);
  return made;
}

void fixate_rate(GstCaps* others, const GstCaps* in) {
  gint rate = 0;
  if (!gst_structure_get_int(gst_caps_get_structure(in, 0), "rate", &rate)) return;
  for (guint i = 0; i < gst_caps_get_size(others); ++i) {
    GstStructure* structure = gst_caps_get_structure(others, i);
    if (gst_structure_has_name(structure, "audio/x-raw")) {
      gst_structure_fixate_field_nearest_int(structure, "rate", rate);
    }
  }
}

}  // namespace gpumap::gst
