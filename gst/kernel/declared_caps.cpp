// SPDX-License-Identifier: MIT
#include "gst/kernel/declared_caps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/memory/caps.hpp"

namespace gpumap::gst {

namespace {

constexpr const char* variable_names[] = {"width", "height", "rate", "channels"};
using Values = std::vector<std::pair<std::string_view, std::uint64_t>>;
using ParameterValues = std::vector<std::pair<std::string, std::uint64_t>>;

/// What commas separate in `declared` outside quotes and brackets: its media type and its fields.
std::vector<std::string> items_of(const std::string& declared) {
  std::vector<std::string> items(1);
  int depth = 0;
  bool quoted = false;
  for (const char c : declared) {
    if (c == '"') quoted = !quoted;
    if (c == '(' || c == '{' || c == '[' || c == '<') ++depth;
    if (c == ')' || c == '}' || c == ']' || c == '>') --depth;
    if (c == ',' && depth == 0 && !quoted) {
      items.emplace_back();
    } else {
      items.back() += c;
    }
  }
  return items;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// A field of the output.
struct Field {
  std::string name;
  std::string value;  ///< as written
  std::string of;     ///< the field of the input that it is, as in rate={rate}; empty where it is none
};

/// The output's caps, taken apart.
struct Output {
  std::vector<std::string> items;
  std::vector<Field> fields;

  explicit Output(const std::string& declared) : items(items_of(declared)) {
    for (std::size_t i = 1; i < items.size(); ++i) {
      const std::string_view item = items[i];
      const std::size_t equals = std::min(item.find('='), item.size());
      const std::string_view value = equals == item.size() ? std::string_view() : trimmed(item.substr(equals + 1));
      Field field{std::string(trimmed(item.substr(0, equals))), std::string(value), {}};
      for (const char* name : variable_names) {
        if (value == fmt::format("{{{}}}", name)) field.of = name;
      }
      fields.push_back(std::move(field));
    }
  }

  [[nodiscard]] std::string media_type() const { return std::string(trimmed(items[0])); }
  [[nodiscard]] const Field* find(std::string_view name) const {
    const auto found =
        std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.name == name; });
    return found != fields.end() ? &*found : nullptr;
  }
  /// Whether field `name` of `in` is the output's too.
  [[nodiscard]] bool inherits(const GstStructure* in, std::string_view name) const {
    if (find(name) != nullptr) return false;
    if (name == "framerate") return true;
    if (media_type() != gst_structure_get_name(in)) return false;
    // These describe the input's format and size.
    if (name == "colorimetry" || name == "chroma-site") return find("format") == nullptr;
    // It names as many channels as there are.
    const Field* channels = name == "channel-mask" ? find("channels") : nullptr;
    gint count = 0;
    return channels == nullptr || channels->of == "channels" ||
           (gst_structure_get_int(in, "channels", &count) && channels->value == std::to_string(count));
  }
};

bool mentions_unknown(const std::string& item, const Values& known) {
  const std::vector<std::string_view> mentioned = variables_in(item);
  return std::any_of(std::begin(variable_names), std::end(variable_names), [&](std::string_view name) {
    const bool is_known =
        std::any_of(known.begin(), known.end(), [&](const auto& value) { return value.first == name; });
    return !is_known && std::find(mentioned.begin(), mentioned.end(), name) != mentioned.end();
  });
}

GstStructure* parsed(const Output& output, const Values& known) {
  std::string text;
  for (const std::string& item : output.items) {
    if (mentions_unknown(item, known)) continue;
    const std::string made = expand(item, known);
    if (trimmed(made).ends_with('=')) continue;  // a choice of nothing
    text += (text.empty() ? "" : ",") + made;
  }
  // Anything else GStreamer asserts.
  return g_ascii_isalpha(text[0]) ? gst_structure_from_string(text.c_str(), nullptr) : nullptr;
}

Values variables_of(const ParameterValues& params) {
  return {params.begin(), params.end()};
}

/// What the output is for an input as `in`; null where an expression has no value for it.
GstStructure* output_structure(const Output& output, const ParameterValues& params, const GstStructure* in) {
  Values known;
  for (const char* name : variable_names) {
    gint value = 0;
    if (gst_structure_get_int(in, name, &value) && value >= 0) known.emplace_back(name, value);
  }
  const Values of_params = variables_of(params);
  known.insert(known.end(), of_params.begin(), of_params.end());
  GstStructure* made = nullptr;
  try {
    made = parsed(output, known);
  } catch (const Error&) {
    return nullptr;
  }
  if (made == nullptr) return nullptr;
  for (const Field& field : output.fields) {
    // A range is the same range.
    const GValue* value = field.of.empty() ? nullptr : gst_structure_get_value(in, field.of.c_str());
    if (value != nullptr) gst_structure_set_value(made, field.name.c_str(), value);
  }
  for (gint i = 0; i < gst_structure_n_fields(in); ++i) {
    const gchar* name = gst_structure_nth_field_name(in, static_cast<guint>(i));
    if (!output.inherits(in, name)) continue;
    gst_structure_set_value(made, name, gst_structure_get_value(in, name));
  }
  return made;
}

/// False where `structure` has a field `name` that is never `value`; else it is that from here on.
bool restrict_field(GstStructure* structure, const char* name, const GValue* value) {
  const GValue* has = gst_structure_get_value(structure, name);
  if (has == nullptr) {
    gst_structure_set_value(structure, name, value);
    return true;
  }
  GValue both = G_VALUE_INIT;
  if (!gst_value_intersect(&both, has, value)) return false;
  gst_structure_take_value(structure, name, &both);
  return true;
}

/// What of `taken`, an input that is declared, an output as `wanted` is made of; null: nothing.
GstStructure* input_structure(const Output& output, const GstStructure* taken, const GstStructure* wanted) {
  if (output.media_type() != gst_structure_get_name(wanted)) return nullptr;
  GstStructure* made = gst_structure_copy(taken);
  for (gint i = 0; i < gst_structure_n_fields(wanted); ++i) {
    const gchar* name = gst_structure_nth_field_name(wanted, static_cast<guint>(i));
    const Field* field = output.find(name);
    const bool inherited = output.inherits(taken, name);
    if (!inherited && (field == nullptr || field->of.empty())) continue;
    if (restrict_field(made, inherited ? name : field->of.c_str(), gst_structure_get_value(wanted, name))) continue;
    gst_structure_free(made);
    return nullptr;
  }
  return made;
}

ParameterValues values_of(const DeclaredCaps& declared, const std::string& params) {
  return parameter_variables(declared.params, numbers_of(declared, params), G_MAXINT);
}

/// What `structure_of` gives for each structure of `one` (transfer full, both), where it gives any.
template <typename StructureOf>
GstCaps* of_each(GstCaps* one, StructureOf structure_of) {
  GstCaps* made = gst_caps_new_empty();
  for (guint i = 0; i < gst_caps_get_size(one); ++i) {
    GstStructure* structure = structure_of(gst_caps_get_structure(one, i));
    if (structure != nullptr) gst_caps_append_structure(made, structure);
  }
  gst_caps_unref(one);
  return made;
}

}  // namespace

DeclaredCaps caps_of(const Declaration& declaration) {
  DeclaredCaps caps{declaration.input, declaration.output, declaration.converted, {}};
  const std::vector<std::string_view> mentioned = variables_in(caps.output);
  const bool mentions = std::any_of(mentioned.begin(), mentioned.end(),
                                    [](std::string_view name) { return name.starts_with("params."); });
  if (mentions || caps.converted) caps.params = declaration.params;
  return caps;
}

std::vector<Number> numbers_of(const DeclaredCaps& declared, const std::string& params) {
  Declaration declaration;
  declaration.params = declared.params;
  declaration.takes_none = true;
  try {
    return gpumap::numbers_of(declaration, {}, params);
  } catch (const Error&) {
    return gpumap::numbers_of(declaration, {}, {});
  }
}

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
  const ParameterValues params = values_of(declared, {});
  const Values of_params = variables_of(params);
  some.insert(some.end(), of_params.begin(), of_params.end());
  GstStructure* structure = nullptr;
  try {
    structure = parsed(Output(declared.output), some);
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

GstCaps* transform_declared_caps(const DeclaredCaps& declared, const std::string& params, GstPadDirection direction,
                                 const GstCaps* caps) {
  const bool to_output = direction == GST_PAD_SINK;
  const bool changes = !declared.output.empty();
  GstCaps* taken = declared.input.empty() ? gst_caps_new_any() : gst_caps_from_string(declared.input.c_str());
  GstCaps* plain = gst_caps_is_any(caps) ? gst_caps_new_any() : with_feature(caps, false);
  if (to_output || !changes) {
    GstCaps* both = gst_caps_intersect_full(plain, taken, GST_CAPS_INTERSECT_FIRST);
    gst_caps_replace(&taken, both);
    gst_caps_unref(both);
  }
  if (changes && !gst_caps_is_any(taken)) {
    const Output output(declared.output);
    if (to_output) {
      taken = of_each(taken, [&, values = values_of(declared, params)](const GstStructure* in) {
        return output_structure(output, values, in);
      });
    } else if (!gst_caps_is_any(plain)) {
      GstCaps* given = gst_caps_new_empty();
      for (guint i = 0; i < gst_caps_get_size(plain); ++i) {
        const GstStructure* wanted = gst_caps_get_structure(plain, i);
        gst_caps_append(given, of_each(gst_caps_ref(taken), [&](const GstStructure* input) {
                          return input_structure(output, input, wanted);
                        }));
      }
      gst_caps_replace(&taken, given);
      gst_caps_unref(given);
    }
  }
  gst_caps_unref(plain);
  if (gst_caps_is_any(taken)) return taken;
  GstCaps* result = in_either_memory(taken);
  gst_caps_unref(taken);
  return result;
}

}  // namespace gpumap::gst
