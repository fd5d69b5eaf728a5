// SPDX-License-Identifier: MIT
#include "gst/kernel/declared_caps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"
#include "gst/memory/caps.hpp"

namespace gpumap::gst {

namespace {

constexpr const char* variable_names[] = {"width", "height", "rate", "channels"};
using Values = std::vector<std::pair<std::string_view, std::uint64_t>>;

/// The fields of `declared`, its media type first: what commas separate outside quotes and brackets.
std::vector<std::string> fields_of(const std::string& declared) {
  std::vector<std::string> fields(1);
  int depth = 0;
  bool quoted = false;
  for (const char c : declared) {
    if (c == '"') quoted = !quoted;
    if (c == '(' || c == '{' || c == '[' || c == '<') ++depth;
    if (c == ')' || c == '}' || c == ']' || c == '>') --depth;
    if (c == ',' && depth == 0 && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

bool mentions_unknown(const std::string& field, const Values& known) {
  for (const char* name : variable_names) {
    const bool is_known =
        std::any_of(known.begin(), known.end(), [&](const auto& value) { return value.first == name; });
    const std::size_t open = field.find('{');
    if (!is_known && open != field.npos && field.find(name, open) != field.npos) return true;
  }
  return false;
}

GstStructure* parsed(const std::string& declared, const Values& known) {
  std::string text;
  for (const std::string& field : fields_of(declared)) {
    if (mentions_unknown(field, known)) continue;
    text += (text.empty() ? "" : ",") + expand(field, known);
  }
  // Anything else GStreamer asserts.
  return g_ascii_isalpha(text[0]) ? gst_structure_from_string(text.c_str(), nullptr) : nullptr;
}

/// What `declared` says for an input as `in`; null where an expression has no value for it.
GstStructure* declared_structure(const std::string& declared, const GstStructure* in) {
  Values known;
  for (const char* name : variable_names) {
    gint value = 0;
    if (gst_structure_get_int(in, name, &value) && value >= 0) known.emplace_back(name, value);
  }
  GstStructure* made = nullptr;
  try {
    made = parsed(declared, known);
  } catch (const Error&) {
    return nullptr;
  }
  if (made == nullptr) return nullptr;
  const bool same = g_strcmp0(gst_structure_get_name(made), gst_structure_get_name(in)) == 0;
  const bool other_format = gst_structure_has_field(made, "format");
  for (gint i = 0; i < gst_structure_n_fields(in); ++i) {
    const gchar* name = gst_structure_nth_field_name(in, static_cast<guint>(i));
    const std::string_view field(name);
    if (gst_structure_has_field(made, name)) continue;
    if (!same && field != "framerate") continue;
    // These describe the input's format and size.
    if (other_format && (field == "colorimetry" || field == "chroma-site")) continue;
    if (declared.find(std::string(field) + "=") != declared.npos) continue;  // left open
    gst_structure_set_value(made, name, gst_structure_get_value(in, name));
  }
  return made;
}

}  // namespace

void check_declared_caps(const DeclaredCaps& declared) {
  if (!declared.input.empty()) {
    GstCaps* input = g_ascii_isalpha(declared.input[0]) ? gst_caps_from_string(declared.input.c_str()) : nullptr;
    if (input == nullptr) {
      throw Error(ErrorCode::invalid, fmt::format("input caps \"{}\" are none: write them as in "
                                                  "video/x-raw,format={{NV12,GRAY8}}",
                                                  declared.input));
    }
    gst_caps_unref(input);
  }
  if (declared.output.empty()) return;
  Values some;
  for (const char* name : variable_names) some.emplace_back(name, 1 << 20);
  GstStructure* structure = nullptr;
  try {
    structure = parsed(declared.output, some);
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid, fmt::format("output caps \"{}\": {}", declared.output, error.what()));
  }
  if (structure == nullptr) {
    throw Error(ErrorCode::invalid, fmt::format("output caps \"{}\" are none: write them as in "
                                                "video/x-raw,format=GRAY8,width={{width/2}},height={{height/2}}",
                                                declared.output));
  }
  gst_structure_free(structure);
}

GstCaps* transform_declared_caps(const DeclaredCaps& declared, GstPadDirection direction, const GstCaps* caps) {
  const bool to_output = direction == GST_PAD_SINK;
  GstCaps* taken = declared.input.empty() ? gst_caps_new_any() : gst_caps_from_string(declared.input.c_str());
  // What gives the same output for any input says nothing about that.
  if (to_output || declared.output.empty()) {
    GstCaps* plain = gst_caps_is_any(caps) ? gst_caps_new_any() : with_feature(caps, false);
    GstCaps* both = gst_caps_intersect_full(plain, taken, GST_CAPS_INTERSECT_FIRST);
    gst_caps_unref(plain);
    gst_caps_replace(&taken, both);
    gst_caps_unref(both);
  }
  if (to_output && !declared.output.empty() && !gst_caps_is_any(taken)) {
    GstCaps* given = gst_caps_new_empty();
    for (guint i = 0; i < gst_caps_get_size(taken); ++i) {
      GstStructure* output = declared_structure(declared.output, gst_caps_get_structure(taken, i));
      if (output != nullptr) gst_caps_append_structure(given, output);
    }
    gst_caps_replace(&taken, given);
    gst_caps_unref(given);
  }
  if (gst_caps_is_any(taken)) return taken;
  GstCaps* result = in_either_memory(taken);
  gst_caps_unref(taken);
  return result;
}

}  // namespace gpumap::gst
