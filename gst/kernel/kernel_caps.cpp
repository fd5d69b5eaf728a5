// SPDX-License-Identifier: MIT
#include "gst/kernel/kernel_caps.hpp"

#include <fmt/format.h>
#include <gst/audio/audio.h>
#include <gst/video/video.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"
#include "gst/radio/radio_metas.hpp"

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
  constexpr std::string_view blanks = " \t\r\n\f\v";
  const std::size_t first = text.find_first_not_of(blanks);
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// A field of the output.
struct Field {
  std::string name;
  std::string of;  ///< the field of the input that it is, as in rate={rate}; empty where it is none
};

/// The output's caps, taken apart.
struct Output {
  std::vector<std::string> items;
  std::vector<Field> fields;  ///< of all items but the first

  explicit Output(const std::string& declared) : items(items_of(declared)) {
    for (std::size_t i = 1; i < items.size(); ++i) {
      const std::string_view item = items[i];
      const std::size_t equals = std::min(item.find('='), item.size());
      const std::string_view value = equals == item.size() ? std::string_view() : trimmed(item.substr(equals + 1));
      Field field{std::string(trimmed(item.substr(0, equals))), {}};
      for (const char* name : variable_names) {
        if (value.starts_with('{') && value.ends_with('}') && trimmed(value.substr(1, value.size() - 2)) == name) {
          field.of = name;
        }
      }
      fields.push_back(std::move(field));
    }
  }
};

/// The output's caps where some variables are known.
struct Made {
  Ptr<GstStructure> structure;  ///< null: no caps
  std::vector<Field> open;      ///< those that need others, or are a choice of nothing

  [[nodiscard]] const Field* find_open(std::string_view name) const {
    const auto found = std::find_if(open.begin(), open.end(), [&](const Field& field) { return field.name == name; });
    return found != open.end() ? &*found : nullptr;
  }
  [[nodiscard]] bool has(const char* name) const {
    return gst_structure_has_field(structure.get(), name) || find_open(name) != nullptr;
  }
  [[nodiscard]] bool is_of_type(const GstStructure* other) const {
    return g_strcmp0(gst_structure_get_name(structure.get()), gst_structure_get_name(other)) == 0;
  }
  /// Whether field `name` of `in`, of the same media type, is the output's too.
  [[nodiscard]] bool inherits(const GstStructure* in, const char* name) const {
    const std::string_view field(name);
    if (has(name)) return false;
    // These describe the input's format and size.
    if (field == "colorimetry" || field == "chroma-site") return !has("format");
    // A tensor has one shape: by its dimensions, or as a picture.
    if (field == "width" || field == "height" || field == "channels" || field == "layout") return !has("dims");
    if (field == "dims") return !has("width");
    if (field != "channel-mask" || !has("channels")) return true;
    // It names as many channels as there are.
    if (const Field* left = find_open("channels")) return left->of == "channels";
    const GValue* before = gst_structure_get_value(in, "channels");
    const GValue* after = gst_structure_get_value(structure.get(), "channels");
    return before != nullptr && gst_value_compare(before, after) == GST_VALUE_EQUAL;
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

/// Throws Error(invalid) for an expression without a value.
Made parsed(const Output& output, const Values& known) {
  Made made;
  std::string text;
  for (std::size_t i = 0; i < output.items.size(); ++i) {
    const std::string& item = output.items[i];
    const std::string expanded = mentions_unknown(item, known) ? std::string() : expand(item, known);
    if (expanded.empty() || trimmed(expanded).ends_with('=')) {
      if (i == 0) return made;  // of no media type
      made.open.push_back(output.fields[i - 1]);
      continue;
    }
    text += (text.empty() ? "" : ",") + expanded;
  }
  if (!g_ascii_isalpha(text[0])) return made;  // GStreamer asserts
  gchar* end = nullptr;
  made.structure.reset(gst_structure_from_string(text.c_str(), &end));
  // It stops where a ';' ends the structure.
  const std::string_view rest = trimmed(made.structure && end != nullptr ? end : "");
  if (!rest.empty()) {
    throw Error(ErrorCode::invalid, fmt::format("there is more behind the ';': \"{}\"; an output has one kind of caps: "
                                                "leave the rest out, or choose by a parameter, as in "
                                                "format={{params.gray ? GRAY8 : NV12}}",
                                                rest));
  }
  return made;
}

Values variables_of(const ParameterValues& params) {
  return {params.begin(), params.end()};
}

/// What is known for an input as `in`.
Values known_of(const GstStructure* in, const ParameterValues& params) {
  Values known;
  for (const char* name : variable_names) {
    gint value = 0;
    if (gst_structure_get_int(in, name, &value) && value >= 0) known.emplace_back(name, value);
  }
  const Values of_params = variables_of(params);
  known.insert(known.end(), of_params.begin(), of_params.end());
  return known;
}

/// What the output is for an input as `in`; null where an expression has no value for it.
GstStructure* output_structure(const Output& output, const ParameterValues& params, const GstStructure* in) {
  Made made;
  try {
    made = parsed(output, known_of(in, params));
  } catch (const Error&) {
    return nullptr;
  }
  if (!made.structure) return nullptr;
  GstStructure* structure = gst_structure_copy(made.structure.get());
  for (const Field& field : output.fields) {
    // A range is the same range.
    const GValue* value = field.of.empty() ? nullptr : gst_structure_get_value(in, field.of.c_str());
    if (value != nullptr) gst_structure_set_value(structure, field.name.c_str(), value);
  }
  for (gint i = 0; i < gst_structure_n_fields(in); ++i) {
    const gchar* name = gst_structure_nth_field_name(in, static_cast<guint>(i));
    const bool goes_on =
        made.is_of_type(in) || g_strcmp0(name, "framerate") == 0 || g_strcmp0(name, center_frequency_field) == 0;
    if (goes_on && made.inherits(in, name)) {
      gst_structure_set_value(structure, name, gst_structure_get_value(in, name));
    }
  }
  return structure;
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
GstStructure* input_structure(const Output& output, const ParameterValues& params, const GstStructure* taken,
                              const GstStructure* wanted) {
  Made made;
  try {
    made = parsed(output, variables_of(params));
  } catch (const Error&) {
    return nullptr;
  }
  if (!made.structure || !made.is_of_type(wanted)) return nullptr;
  Ptr<GstStructure> structure(gst_structure_copy(taken));
  for (gint i = 0; i < gst_structure_n_fields(wanted); ++i) {
    const gchar* name = gst_structure_nth_field_name(wanted, static_cast<guint>(i));
    if (g_strcmp0(name, center_frequency_field) == 0) continue;  // any is taken: the band may move
    const Field* open = made.find_open(name);
    const bool inherited = made.is_of_type(taken) && made.inherits(taken, name);
    const GValue* value = gst_structure_get_value(wanted, name);
    const GValue* given = gst_structure_get_value(made.structure.get(), name);
    if (given != nullptr && !gst_value_intersect(nullptr, given, value)) return nullptr;
    if (!inherited && (open == nullptr || open->of.empty())) continue;
    if (!restrict_field(structure.get(), inherited ? name : open->of.c_str(), value)) return nullptr;
  }
  return structure.release();
}

ParameterValues values_of(const DeclaredCaps& declared, const std::string& params) {
  return parameter_variables(declared.params, numbers_of(declared, params), G_MAXINT);
}

/// What `structure_of` gives for each structure of `one` (transfer full), where it gives any.
template <typename StructureOf>
GstCaps* of_each(const GstCaps* one, StructureOf structure_of) {
  return of_each_structure(one, [&](GstCaps* made, const GstStructure* structure, const auto*) {
    if (GstStructure* given = structure_of(structure)) gst_caps_append_structure(made, given);
  });
}

}  // namespace

DeclaredCaps caps_of(const Declaration& declaration, bool builtin) {
  DeclaredCaps caps{.input = declaration.input,
                    .output = declaration.output,
                    .converted = declaration.converted,
                    .builtin = builtin,
                    .tuning = declaration.tuning,
                    .tensors = declaration.output_tensors,
                    .tensor_group = declaration.tensor_group};
  const std::vector<std::string_view> mentioned = variables_in(caps.output);
  const bool mentions = std::any_of(mentioned.begin(), mentioned.end(),
                                    [](std::string_view name) { return name.starts_with("params."); });
  if (mentions || caps.converted || caps.tuning) caps.params = declaration.params;
  return caps;
}

bool DeclaredCaps::operator==(const DeclaredCaps& other) const {
  const std::vector<std::string_view> mentioned = variables_in(output);
  const auto counts = [&](const std::string& name) {
    return (converted && name == "crop") ||
           std::any_of(mentioned.begin(), mentioned.end(), [whole = "params." + name](std::string_view variable) {
             return variable == whole || variable.starts_with(whole + '[');
           });
  };
  const auto same = [&](const DeclaredParameter& one, const DeclaredParameter& two) {
    return one.name == two.name && one.values.size() == two.values.size() && (!counts(one.name) || one == two);
  };
  return input == other.input && output == other.output && converted == other.converted && tensors == other.tensors &&
         tensor_group == other.tensor_group && tuning == other.tuning &&
         std::equal(params.begin(), params.end(), other.params.begin(), other.params.end(), same);
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

Tuning tuning_of(const DeclaredCaps& declared, const std::string& params) {
  if (!declared.tuning) return {};
  const std::vector<Number> numbers = numbers_of(declared, params);
  const auto value_of = [&](const std::string& name) {
    std::size_t at = 0;
    for (const DeclaredParameter& one : declared.params) {
      if (one.name == name) return numbers[at].value();
      at += one.values.size();
    }
    return 0.0;
  };
  return {.shift = value_of(declared.tuning->shift), .sky = value_of(declared.tuning->sky)};
}

DeclaredCaps declared_caps(const KernelSettings& settings) {
  try {
    DeclaredCaps declared = caps_of(declaration_of(settings), settings.location.empty());
    if (!settings.location.empty()) check_declared_caps(declared, settings.params);
    return declared;
  } catch (const Error&) {
    return {};
  }
}

namespace {

/// What is wrong with raw video or audio in a format that GStreamer does not know, else empty: no element gives or
/// takes it, and none could say why.
std::string format_problem(const GstStructure* declared) {
  const gchar* format = gst_structure_get_string(declared, "format");
  const bool video = gst_structure_has_name(declared, "video/x-raw") != 0;
  const bool audio = gst_structure_has_name(declared, "audio/x-raw") != 0;
  if (format == nullptr || (!video && !audio)) return {};
  const bool known = video ? gst_video_format_from_string(format) != GST_VIDEO_FORMAT_UNKNOWN
                           : gst_audio_format_from_string(format) != GST_AUDIO_FORMAT_UNKNOWN;
  if (known) return {};
  return fmt::format("{} has no format {}: write one that it has, as in format={}", gst_structure_get_name(declared),
                     format, video ? "RGBA" : "F32LE");
}

constexpr int deepest_bracket = 32;

/// Throws Error(invalid) for brackets that nest deeper: GStreamer's parser calls itself for each, and the stack ends.
/// What is in quotes it may parse as caps.
void check_brackets(const char* of, std::string_view caps) {
  int depth = 0, outside = 0;  // and before the quote
  bool quoted = false;
  for (std::size_t i = 0; i < caps.size(); ++i) {
    const char c = caps[i];
    if (const std::string_view rest = caps.substr(i); rest.starts_with("\\\"") || rest.starts_with("\\\\")) {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
      (quoted ? outside : depth) = quoted ? depth : outside;
    } else if (c == '(' || c == '{' || c == '[' || c == '<') {
      ++depth;
    } else if (c == ')' || c == '}' || c == ']' || c == '>') {
      depth = std::max(depth - 1, quoted ? outside : 0);
    }
    if (depth <= deepest_bracket) continue;
    throw Error(ErrorCode::invalid,
                fmt::format("{} caps: they have brackets in brackets, more than {} deep", of, deepest_bracket));
  }
}

/// The memory that the last of `caps` names, where all of them name one; else empty. Caps of frames are compared
/// without their memory.
std::string memory_of_all(const GstCaps* caps) {
  std::string memory;
  for (guint i = 0; i < gst_caps_get_size(caps); ++i) {
    const GstCapsFeatures* features = gst_caps_get_features(caps, i);
    if (is_system_memory(features) || gst_caps_features_is_any(features) != 0) return {};
    for (guint j = 0; j < gst_caps_features_get_size(features); ++j) {
      const std::string_view feature = gst_caps_features_get_nth(features, j);
      if (feature.starts_with("memory:")) memory = feature;
    }
  }
  return memory;
}

}  // namespace

void check_declared_caps(const DeclaredCaps& declared, const std::string& params) {
  check_brackets("input", declared.input);
  check_brackets("output", declared.output);
  if (!declared.input.empty()) {
    const bool is_named = g_ascii_isalpha(declared.input[0]) != 0;
    const Ptr<GstCaps> input(is_named ? gst_caps_from_string(declared.input.c_str()) : nullptr);
    if (!input) {
      throw Error(ErrorCode::invalid, fmt::format("input caps \"{}\" cannot be read: write them as in "
                                                  "video/x-raw,format={{NV12,GRAY8}}",
                                                  declared.input));
    }
    if (const std::string memory = memory_of_all(input.get()); !memory.empty()) {
      throw Error(ErrorCode::invalid, fmt::format("input caps \"{}\" are of one memory: write them without ({}), as in "
                                                  "video/x-raw,format={{NV12,GRAY8}}: frames are taken from any memory",
                                                  declared.input, memory));
    }
    // Of several kinds one may be of another GStreamer.
    const bool single = gst_caps_get_size(input.get()) == 1;
    const std::string problem = single ? format_problem(gst_caps_get_structure(input.get(), 0)) : std::string();
    if (!problem.empty()) {
      throw Error(ErrorCode::invalid, fmt::format("input caps \"{}\": {}", declared.input, problem));
    }
  }
  if (declared.output.empty()) return;
  Values some;
  for (const char* name : variable_names) some.emplace_back(name, 1 << 20);
  const ParameterValues values = values_of(declared, params);
  const Values of_params = variables_of(values);
  some.insert(some.end(), of_params.begin(), of_params.end());
  Made made;
  try {
    // Also in what a choice leaves aside today.
    for (const std::string_view name : variables_in(declared.output)) {
      if (name.starts_with("params.")) (void)evaluate(name, some);
    }
    made = parsed(Output(declared.output), some);
    const std::string problem = made.structure ? format_problem(made.structure.get()) : std::string();
    if (!problem.empty()) throw Error(ErrorCode::invalid, problem);
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid, fmt::format("output caps \"{}\": {}", declared.output, error.what()));
  }
  if (!made.structure) {
    throw Error(ErrorCode::invalid, fmt::format("output caps \"{}\" cannot be read: write them as in "
                                                "video/x-raw,format=GRAY8,width={{width/2}},height={{height/2}}",
                                                declared.output));
  }
}

GstCaps* transform_declared_caps(const DeclaredCaps& declared, const std::string& params, GstPadDirection direction,
                                 const GstCaps* caps) {
  const bool to_output = direction == GST_PAD_SINK;
  const bool changes = !declared.output.empty();
  Ptr<GstCaps> taken(declared.input.empty() ? gst_caps_new_any() : gst_caps_from_string(declared.input.c_str()));
  const Ptr<GstCaps> plain(with_feature(caps, false));
  if (to_output || !changes) {
    taken.reset(gst_caps_intersect_full(plain.get(), taken.get(), GST_CAPS_INTERSECT_FIRST));
  }
  if (changes && !gst_caps_is_any(taken.get())) {
    const Output output(declared.output);
    const ParameterValues values = values_of(declared, params);
    if (to_output) {
      taken.reset(of_each(taken.get(), [&](const GstStructure* in) {
        GstStructure* made = output_structure(output, values, in);
        if (made != nullptr && declared.tuning) {
          set_center_frequency(made, tuning_of(declared, params).behind(center_frequency_of(in)));
        }
        return made;
      }));
    } else if (!gst_caps_is_any(plain.get())) {
      const auto append_input = [&](GstCaps* made, const GstStructure* wanted, const auto*) {
        gst_caps_append(made, of_each(taken.get(), [&](const GstStructure* input) {
                          return input_structure(output, values, input, wanted);
                        }));
      };
      taken.reset(of_each_structure(plain.get(), append_input));
    }
  }
  return gst_caps_is_any(taken.get()) ? taken.release() : in_either_memory(taken.get());
}

std::string output_problem(const DeclaredCaps& declared, const std::string& params, const GstCaps* in) {
  if (declared.output.empty() || gst_caps_is_any(in)) return {};
  const Output output(declared.output);
  const ParameterValues values = values_of(declared, params);
  for (guint i = 0; i < gst_caps_get_size(in); ++i) {
    try {
      static_cast<void>(parsed(output, known_of(gst_caps_get_structure(in, i), values)));
    } catch (const Error& error) {
      return fmt::format("output caps \"{}\": {}", declared.output, error.what());
    }
  }
  return {};
}

namespace {

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
    const Ptr<GstStructure> copy(gst_structure_copy(structure));
    gst_structure_fixate_field_nearest_int(copy.get(), name, wanted);
    gint found = wanted;
    gst_structure_get_int(copy.get(), name, &found);
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

GstCaps* fixate_size(const DeclaredCaps& declared, const std::string& params, const GstCaps* in, GstCaps* others) {
  const GstStructure* from = gst_caps_get_structure(in, 0);
  const GstStructure* first = gst_caps_get_structure(others, 0);
  Size size;
  if (!gst_structure_get_int(from, "width", &size.width) || !gst_structure_get_int(from, "height", &size.height) ||
      !gst_structure_has_field(first, "width") || !gst_structure_has_field(first, "height") || has_fixed_size(first)) {
    return others;
  }
  if (const auto crop = crop_of(declared, params)) {
    size = {crop->width.shown_of(size.width), crop->height.shown_of(size.height)};
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

namespace {

/// Tensors that go with the frames apart.
GstCaps* transform_frame_caps(const DeclaredCaps& declared, const std::string& params, GstPadDirection direction,
                              GstCaps* of_memories) {
  // What comes in several memories counts once: else each kernel of a row would multiply it.
  const Ptr<GstCaps> once(gst_caps_is_any(of_memories)
                              ? gst_caps_ref(of_memories)
                              : gst_caps_merge(gst_caps_new_empty(), with_feature(of_memories, false)));
  GstCaps* const caps = once.get();
  if (declared.converted) return transform_converted_caps(declared, params, direction, caps);
  if (!declared.empty()) return transform_declared_caps(declared, params, direction, caps);
  if (gst_caps_is_any(caps)) return gst_caps_ref(caps);
  // System memory at the input, too: a tee may leave only that of frames that lie in GPU memory. Of others the first
  // frame can say what is missing, a link that fails cannot.
  return in_either_memory(caps);
}

}  // namespace

GstCaps* transform_kernel_caps(const DeclaredCaps& declared, const std::string& params, GstPadDirection direction,
                               GstCaps* caps) {
  if (direction == GST_PAD_SINK) {
    return with_tensors(declared, caps, transform_frame_caps(declared, params, direction, caps));
  }
  const Ptr<GstCaps> asked(without_tensors(declared, gst_caps_ref(caps)));
  return transform_frame_caps(declared, params, direction, asked.get());
}
namespace {

constexpr const char* field_name = "tensors";

bool has_tensor_caps() {
  guint major = 0, minor = 0, micro = 0, nano = 0;
  ::gst_version(&major, &minor, &micro, &nano);
  return major > 1 || minor >= 28;
}

const std::string& group_of(const DeclaredCaps& declared) {
  return declared.tensor_group.empty() ? declared.tensors.front().id : declared.tensor_group;
}

using Values = std::vector<std::pair<std::string_view, std::uint64_t>>;

/// What all structures of `in` agree on.
Values values_of(const GstCaps* in) {
  Values known;
  for (const char* name : {"width", "height", "rate", "channels"}) {
    gint value = -1;
    for (guint i = 0; !gst_caps_is_any(in) && i < gst_caps_get_size(in); ++i) {
      gint one = 0;
      if (!gst_structure_get_int(gst_caps_get_structure(in, i), name, &one) || (i != 0 && one != value)) one = -1;
      value = one;
      if (one < 0) break;
    }
    if (value >= 0) known.emplace_back(name, value);
  }
  return known;
}

std::string dims_of(const DeclaredTensor& tensor, const Values& known) {
  std::string text;
  for (const DeclaredDimension& dimension : tensor.dims) {
    std::string size = "0";  // of any size
    try {
      if (!dimension.open) size = std::to_string(evaluate(dimension.size, known));
    } catch (const Error&) {
      size = "[1, max]";
    }
    text += (text.empty() ? "" : ",") + size;
  }
  return text;
}

/// A structure of groups, of which there is this one (transfer full). Null: GStreamer does not read it.
GstStructure* groups_of(const DeclaredCaps& declared, const Values& known) {
  std::string tensors;
  for (const DeclaredTensor& tensor : declared.tensors) {
    // "u8" is "uint8" there, "f32" "float32".
    std::string type(to_string(tensor.type));
    type.replace(0, 1, type[0] == 'f' ? "float" : type[0] == 'u' ? "uint" : "int");
    tensors += fmt::format(
        "{}(GstCaps)[tensor/strided,tensor-id=(string){},dims=(int)<{}>,dims-order=(string)row-major,type=(string){};]",
        tensors.empty() ? "" : ",", tensor.id, dims_of(tensor, known), type);
  }
  const std::string text = fmt::format("tensorgroups,{}=(/uniquelist){{{}}}", group_of(declared), tensors);
  return gst_structure_from_string(text.c_str(), nullptr);
}

GstStructure* tensors_in(const GstStructure* structure) {
  const GValue* value = gst_structure_get_value(structure, field_name);
  return value != nullptr && GST_VALUE_HOLDS_STRUCTURE(value) ? gst_structure_copy(gst_value_get_structure(value))
                                                              : nullptr;
}

}  // namespace

GstCaps* with_tensors(const DeclaredCaps& declared, const GstCaps* in, GstCaps* made) {
  if (declared.tensors.empty() || gst_caps_is_any(made) || !has_tensor_caps()) return made;
  GstStructure* ours = groups_of(declared, values_of(in));
  if (ours == nullptr) return made;
  const gchar* group = group_of(declared).c_str();
  made = gst_caps_make_writable(made);
  for (guint i = 0; i < gst_caps_get_size(made); ++i) {
    GstStructure* structure = gst_caps_get_structure(made, i);
    GstStructure* all = tensors_in(structure);
    if (all == nullptr) all = gst_structure_new_empty("tensorgroups");
    gst_structure_set_value(all, group, gst_structure_get_value(ours, group));
    gst_structure_set(structure, field_name, GST_TYPE_STRUCTURE, all, nullptr);
    gst_structure_free(all);
  }
  gst_structure_free(ours);
  return made;
}

GstCaps* without_tensors(const DeclaredCaps& declared, GstCaps* caps) {
  if (declared.tensors.empty() || gst_caps_is_any(caps) || !has_tensor_caps()) return caps;
  GstStructure* ours = groups_of(declared, {});
  if (ours == nullptr) return caps;
  const gchar* group = group_of(declared).c_str();
  caps = gst_caps_make_writable(caps);
  for (guint i = gst_caps_get_size(caps); i > 0; --i) {
    GstStructure* structure = gst_caps_get_structure(caps, i - 1);
    GstStructure* asked = tensors_in(structure);
    if (asked == nullptr) continue;
    const GValue* wanted = gst_structure_get_value(asked, group);
    const bool fits = wanted == nullptr || gst_value_can_intersect(wanted, gst_structure_get_value(ours, group)) != 0;
    gst_structure_remove_field(asked, group);
    if (gst_structure_n_fields(asked) == 0) {
      gst_structure_remove_field(structure, field_name);
    } else {
      gst_structure_set(structure, field_name, GST_TYPE_STRUCTURE, asked, nullptr);
    }
    gst_structure_free(asked);
    if (!fits) gst_caps_remove_structure(caps, i - 1);
  }
  gst_structure_free(ours);
  return caps;
}

}  // namespace gpumap::gst
