// SPDX-License-Identifier: MIT
#include "gpumap/declaration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/kernel.h"
#include "gpumap/kernel.hpp"
#include "gpumap/tables.hpp"

namespace gpumap {

// The tensors that a kernel takes and gives beside a frame.

namespace {

constexpr std::string_view comment = "//", sign = "gpumap:";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

template <typename Number>
Number parse_number(std::string_view text, std::string_view what, Number least = 0) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least) {
    throw Error(ErrorCode::invalid, fmt::format("\"{}\" is no {}: write a whole number from {} to {}", text, what,
                                                least, std::numeric_limits<Number>::max()));
  }
  return value;
}

/// The next word of `text`, which loses it.
std::string_view take_word(std::string_view& text) {
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  text = trimmed(text.substr(end));
  return word;
}

constexpr std::uint64_t max_dimension = std::numeric_limits<std::int32_t>::max();  // as caps count
constexpr std::uint64_t max_bytes = std::uint64_t{1} << 32U;

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Empty: none.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : 'x';
    if (c == '{') ++depth;
    if (c == '}') --depth;
    if (c != 'x' || (depth != 0 && at < text.size())) continue;  // an `x` of max(a,b)
    parts.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  return parts;
}

DeclaredDimension parse_dimension(std::string_view whole, std::string_view text, bool any) {
  DeclaredDimension made;
  std::string_view size = text;
  if (size.ends_with('?')) {
    made.open = true;
    size.remove_suffix(1);
  }
  if (size.size() > 2 && size.starts_with('{') && size.ends_with('}')) size = size.substr(1, size.size() - 2);
  const bool is_any = any && made.open && size.empty();
  const bool is_size = !size.empty() && (size.size() + (made.open ? 1 : 0) != text.size() || is_number(size));
  if (!is_any && !is_size) {
    throw Error(ErrorCode::invalid, fmt::format("\"{}\" are no dimensions: \"{}\" is no size: write numbers, or "
                                                "expressions in braces, as in 1x3x{{height}}x{{width}}{}",
                                                whole, text, any ? ", and ? for any" : ""));
  }
  made.size = size;
  return made;
}

/// Throws Error(invalid) for what caps could not name.
std::string parse_tensor_id(std::string_view text) {
  const bool is_id = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
  if (is_id) return std::string(text);
  throw Error(ErrorCode::invalid,
              fmt::format("\"{}\" is no name for a tensor: write letters, digits, '-', '_' and '.'", text));
}

/// What a line `input-tensor` or `output-tensor` says, as in "boxes float32 1x100x4". `any`: a dimension may be left
/// open. Throws Error(invalid).
DeclaredTensor parse_declared_tensor(std::string_view text, bool any) {
  std::string_view rest = trimmed(text);
  DeclaredTensor made;
  const std::string_view id = take_word(rest);
  const std::string_view type = take_word(rest);
  if (type.empty() || rest.empty()) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("\"{}\" is no tensor: write an id, a type and dimensions, as in boxes float32 1x100x4", text));
  }
  made.id = parse_tensor_id(id);
  made.type = parse_number_type(type);
  for (const std::string_view part : split(rest)) made.dims.push_back(parse_dimension(rest, part, any));
  if (made.dims.size() > GPUMAP_MAX_TENSOR_DIMS) {
    throw Error(ErrorCode::invalid, fmt::format("tensor \"{}\" has {} dimensions: {} are the most", made.id,
                                                made.dims.size(), GPUMAP_MAX_TENSOR_DIMS));
  }
  return made;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

/// What stands between commas; `end_of(at)` is where the one that begins at `at` ends.
template <typename EndOf>
std::vector<std::string> parse_list(std::string_view text, EndOf end_of) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = end_of(at);
    const std::string_view name = trimmed(text.substr(at, end - at));
    if (name.empty()) throw Error(ErrorCode::invalid, fmt::format("\"{}\": a name is missing: write one,other", text));
    names.emplace_back(name);
    at = end + 1;
  }
  return names;
}

/// The next comma that is not between the arguments of a template.
std::size_t end_of_function(std::string_view text, std::size_t at) {
  int depth = 0;
  for (; at < text.size() && (text[at] != ',' || depth > 0); ++at) {
    if (text[at] == '<' || text[at] == '(') ++depth;
    if (text[at] == '>' || text[at] == ')') --depth;
  }
  return at;
}

ResultType parse_result_type(std::string_view text) {
  if (text == "u64") return ResultType::u64;
  if (text == "i64") return ResultType::i64;
  if (text == "f32") return ResultType::f32;
  if (text == "f64") return ResultType::f64;
  throw Error(ErrorCode::invalid, fmt::format("no result type \"{}\": choose u64, i64, f32 or f64", text));
}

std::vector<std::pair<std::string, ResultType>> parse_results(std::string_view text) {
  std::vector<std::pair<std::string, ResultType>> results;
  for (const std::string& item : parse_names(text)) {
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string name(trimmed(std::string_view(item).substr(0, equals)));
    // Taken by what every message says.
    for (const std::string_view taken : {"kernel", "bytes", "sequence", "pts", "offset"}) {
      if (name != taken) continue;
      throw Error(ErrorCode::invalid,
                  fmt::format("a result cannot be named \"{}\", which is taken: choose another name", name));
    }
    if (!is_name(name) || equals == item.size()) {
      throw Error(ErrorCode::invalid, fmt::format("\"{}\" is no result: write name=f32,other=u64", item));
    }
    if (std::any_of(results.begin(), results.end(), [&](const auto& result) { return result.first == name; })) {
      throw Error(ErrorCode::invalid,
                  fmt::format("result \"{}\" is named twice: give one of the two another name", name));
    }
    results.emplace_back(name, parse_result_type(trimmed(std::string_view(item).substr(equals + 1))));
  }
  return results;
}

Work parse_work(std::string_view text) {
  if (text == "item") return Work::item;
  if (text == "quad") return Work::quad;
  if (text == "chunk") return Work::chunk;
  throw Error(ErrorCode::invalid, fmt::format("no work \"{}\": choose item, quad or chunk", text));
}

/// "65536" or "16 self-clearing".
void declare_state(Declaration& declaration, std::string_view value) {
  const std::string_view bytes = take_word(value);
  if (!value.empty() && value != "self-clearing") {
    throw Error(ErrorCode::invalid, fmt::format("no state \"{}\": write self-clearing, or the bytes alone", value));
  }
  declaration.state_bytes = parse_number<std::uint64_t>(bytes, "number of bytes");
  declaration.self_clearing = !value.empty();
}

/// "classification", or "detections" and what may be the names of classes.
DeclaredAnalytics parse_analytics(std::string_view text) {
  std::string_view labels = text;
  const std::string_view kind = take_word(labels);
  DeclaredAnalytics made;
  if (kind == "classification" && labels.empty()) {
    made.kind = DeclaredAnalytics::Kind::classification;
  } else if (kind == "detections") {
    made.kind = DeclaredAnalytics::Kind::detections;
    if (!labels.empty()) made.labels = parse_names(labels);
  } else {
    throw Error(ErrorCode::invalid,
                fmt::format("no analytics \"{}\": write classification, or detections, behind which names of classes "
                            "may stand, as in detections person,car",
                            text));
  }
  return made;
}

DeclaredTuning parse_tuning(std::string_view text) {
  const std::vector<std::string> names = parse_names(text);
  if (names.size() == 3) return {.shift = names[0], .sky = names[1], .center = names[2]};
  throw Error(ErrorCode::invalid,
              fmt::format("\"{}\" has {} names: write those of three parameters, as in frequency,sky,center", text,
                          names.size()));
}

/// One of two words; true for `yes`.
bool parse_choice(std::string_view key, std::string_view value, std::string_view no, std::string_view yes) {
  if (value == no || value == yes) return value == yes;
  throw Error(ErrorCode::invalid, fmt::format("no {} \"{}\": choose {} or {}", key, value, no, yes));
}

std::array<std::uint32_t, 3> parse_dimensions(std::string_view text) {
  std::array<std::uint32_t, 3> made{1, 1, 1};
  std::string_view rest = text;
  for (std::size_t axis = 0;; ++axis) {
    const std::size_t end = std::min(rest.find('x'), rest.size());
    if (axis == made.size()) {
      throw Error(ErrorCode::invalid,
                  fmt::format("\"{}\" has more than three dimensions: write one to three, as in 32x8", text));
    }
    made[axis] = parse_number<std::uint32_t>(rest.substr(0, end), "dimension, as in 32x8", 1);
    if (end == rest.size()) return made;
    rest.remove_prefix(end + 1);
  }
}

void declare_output(Declaration& declaration, std::string_view value) {
  declaration.unchanged = value == "unchanged";
  declaration.converted = value == "converted";
  declaration.output = declaration.unchanged || declaration.converted ? std::string() : std::string(value);
}

void declare_history(Declaration& declaration, std::string_view value) {
  declaration.history = parse_number<std::uint32_t>(value, "number of frames");
  if (declaration.history <= GPUMAP_MAX_HISTORY) return;
  throw Error(ErrorCode::invalid, fmt::format("a history of {} frames: a kernel sees at most {}; keep what it needs of "
                                              "more in its state",
                                              declaration.history, GPUMAP_MAX_HISTORY));
}

OutputMay parse_output_may(std::string_view text) {
  OutputMay may;
  for (const std::string& word : parse_names(text)) {
    bool OutputMay::*const one = word == "drop" ? &OutputMay::drop : &OutputMay::shorten;
    if (word != "drop" && word != "shorten") {
      throw Error(ErrorCode::invalid,
                  fmt::format("an output may not \"{}\": choose drop, shorten or drop,shorten", word));
    }
    if (may.*one) throw Error(ErrorCode::invalid, fmt::format("\"{}\": {} is there twice: write it once", text, word));
    may.*one = true;
  }
  return may;
}

void declare_result_words(Declaration& declaration, std::string_view value) {
  const auto words = parse_number<std::uint32_t>(value, "number of words");
  if (words < GPUMAP_RESULT_WORDS || words > GPUMAP_MAX_RESULT_WORDS) {
    throw Error(ErrorCode::invalid, fmt::format("a result block of {} words: choose from {} to {}", words,
                                                GPUMAP_RESULT_WORDS, GPUMAP_MAX_RESULT_WORDS));
  }
  declaration.result_words = words;
}

std::string parse_message_name(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const bool is_name = !text.empty() && is_letter(text.front()) && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
  if (is_name) return std::string(text);
  throw Error(
      ErrorCode::invalid,
      fmt::format("\"{}\" is no name for a message: write letters, digits, '-', '_' and '.', a letter first", text));
}

/// "weights float32 256", "weights float32 256=/path/of/file" or "weights=/path/of/file".
DeclaredTable parse_table(std::string_view text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  std::string_view rest = trimmed(text.substr(0, equals));
  DeclaredTable made;
  made.name = std::string(take_word(rest));
  const std::string_view type = take_word(rest);
  const std::string_view count = take_word(rest);
  if (equals != text.size()) made.path = std::string(trimmed(text.substr(equals + 1)));
  const bool says_path = !made.path.empty();
  if (!is_name(made.name) || !rest.empty() || says_path != (equals != text.size()) || (type.empty() && !says_path)) {
    throw Error(ErrorCode::invalid,
                fmt::format("\"{}\" is no table: write a name, a type and, where it is fixed, the number of elements, "
                            "as in weights float32 256, and behind a '=' the path of its file",
                            text));
  }
  if (!type.empty()) made.type = parse_number_type(type);
  if (!count.empty()) {
    std::uint64_t elements = 0;
    const std::uint64_t most = Tables::max_bytes / bytes_of(made.type);
    const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), elements);
    if (error != std::errc{} || end != count.data() + count.size() || elements == 0 || elements > most) {
      throw Error(ErrorCode::invalid,
                  fmt::format("\"{}\" is no number of elements: write a whole number from 1 to {}", count, most));
    }
    made.count = elements;
  }
  return made;
}

template <typename One>
void append(std::vector<One>& all, One one, std::size_t most, std::string_view what) {
  all.push_back(std::move(one));
  if (all.size() <= most) return;
  throw Error(ErrorCode::invalid, fmt::format("{} {}: a kernel has at most {}", all.size(), what, most));
}

void declare_params(Declaration& declaration, std::string_view value) {
  declaration.takes_none = value == "none";
  if (!declaration.takes_none) declaration.params = parse_declared_parameters(value);
}

void declare_input_tensor(Declaration& declaration, std::string_view value) {
  append(declaration.input_tensors, parse_declared_tensor(value, true), GPUMAP_MAX_TENSORS, "input tensors");
}

void declare_output_tensor(Declaration& declaration, std::string_view value) {
  append(declaration.output_tensors, parse_declared_tensor(value, false), GPUMAP_MAX_TENSORS, "output tensors");
}

void declare_table(Declaration& declaration, std::string_view value) {
  append(declaration.tables, parse_table(value), GPUMAP_MAX_TABLES, "tables");
}

/// What a line's word means: put what stands behind it into a declaration.
struct Meaning {
  std::string_view word;
  void (*put)(Declaration& declaration, std::string_view value);
  bool may_repeat = false;  ///< with another name behind the word
};

constexpr Meaning meanings[] = {
    {"params", declare_params},
    {"functions", [](auto& made, auto value) { made.functions = parse_functions(value); }},
    {"block", [](auto& made, auto value) { made.block = parse_dimensions(value); }},
    {"grid", [](auto& made, auto value) { made.grid = parse_dimensions(value); }},
    {"work", [](auto& made, auto value) { made.work = parse_work(value); }},
    {"shared",
     [](auto& made, auto value) { made.shared_bytes = parse_number<std::uint32_t>(value, "number of bytes"); }},
    {"state", declare_state},
    {"view", [](auto& made, auto value) { made.on_bytes = parse_choice("view", value, "format", "bytes"); }},
    {"input", [](auto& made, auto value) { made.input = value; }},
    {"output", declare_output},
    {"output-may", [](auto& made, auto value) { made.output_may = parse_output_may(value); }},
    {"launch",
     [](auto& made, auto value) { made.per_field = parse_choice("launch", value, "per-frame", "per-field"); }},
    {"bytes", [](auto& made, auto value) { made.output_bytes = value; }},
    {"input-tensor", declare_input_tensor, true},
    {"output-tensor", declare_output_tensor, true},
    {"tensor-group", [](auto& made, auto value) { made.tensor_group = parse_tensor_id(value); }},
    {"results", [](auto& made, auto value) { made.results = parse_results(value); }},
    {"result-words", declare_result_words},
    {"analytics", [](auto& made, auto value) { made.analytics = parse_analytics(value); }},
    {"tune", [](auto& made, auto value) { made.tuning = parse_tuning(value); }},
    {"message", [](auto& made, auto value) { made.message = parse_message_name(value); }},
    {"table", declare_table, true},
    {"history", declare_history},
};

/// Null: there is no such word.
const Meaning* meaning_of(std::string_view word) {
  const Meaning* found =
      std::find_if(std::begin(meanings), std::end(meanings), [&](const Meaning& one) { return one.word == word; });
  return found != std::end(meanings) ? found : nullptr;
}

struct Line {
  std::string where;  ///< for messages, as in "line 3: // gpumap:"
  std::string_view word;
  std::string value;

  Line(std::string place, std::string_view text) : where(std::move(place)) {
    word = take_word(text);
    value = text;
  }
  /// Of what it declares, where its word may repeat.
  [[nodiscard]] std::string_view name() const {
    const Meaning* meaning = meaning_of(word);
    if (meaning == nullptr || !meaning->may_repeat) return {};
    return std::string_view(value).substr(0, value.find_first_of(" \t="));
  }
  [[nodiscard]] bool declares_same(const Line& other) const { return word == other.word && name() == other.name(); }
  [[nodiscard]] Error error(std::string_view what) const {
    return Error(ErrorCode::invalid, fmt::format("{} {}", where, what));
  }

  void put(Declaration& declaration) const {
    const Meaning* meaning = meaning_of(word);
    if (meaning == nullptr) {
      std::string known;
      for (const Meaning& one : meanings) known += fmt::format("{}{}", known.empty() ? "" : ", ", one.word);
      throw error(fmt::format("no declaration \"{}\": write one of {}", word, known));
    }
    if (value.empty()) throw error(fmt::format("{} without a value: write it behind the word", word));
    try {
      meaning->put(declaration, value);
    } catch (const Error& problem) {
      throw error(fmt::format("{}: {}", word, problem.what()));
    }
  }
};

/// The next of `text`, which loses it, up to a line's end.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = trimmed(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

/// What a file declares.
std::vector<Line> lines_of_file(std::string_view code) {
  std::vector<Line> lines;
  for (std::size_t number = 1; !code.empty(); ++number) {
    // With any blanks in the marker, or none: a line that is taken for prose declares nothing, without a word.
    std::string_view line = take_line(code);
    if (!line.starts_with(comment)) continue;
    line = trimmed(line.substr(comment.size()));
    if (!line.starts_with(sign)) continue;
    lines.emplace_back(fmt::format("line {}: {} {}", number, comment, sign), trimmed(line.substr(sign.size())));
  }
  return lines;
}

/// Whether what is behind a ';' is another line: a word of letters and '-', then a blank or the end. Of caps it is
/// none, for a media type has a '/'.
bool begins_line(std::string_view rest) {
  rest = trimmed(rest);
  const auto is_word = [](char c) { return c == '-' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto end = std::find_if_not(rest.begin(), rest.end(), is_word);
  return end == rest.end() || *end == ' ' || *end == '\t' || rest.front() == ';';
}

/// What the property `declare` says: lines as in a file, behind their marker, or several in one line.
std::vector<Line> lines_of_property(std::string_view text) {
  std::vector<Line> lines;
  const auto add = [&](std::string_view line) {
    line = trimmed(line);
    if (!line.empty()) lines.emplace_back("declare:", line);
  };
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    bool quoted = false;
    std::size_t begin = 0;
    for (std::size_t at = 0; at < line.size(); ++at) {
      if (line[at] == '"') quoted = !quoted;
      if (line[at] != ';' || quoted || !begins_line(line.substr(at + 1))) continue;
      add(line.substr(begin, at - begin));
      begin = at + 1;
    }
    add(line.substr(begin));
  }
  return lines;
}

void check_once(const std::vector<Line>& lines) {
  for (auto line = lines.begin(); line != lines.end(); ++line) {
    const auto same = [&](const Line& before) { return line->declares_same(before); };
    if (std::none_of(lines.begin(), line, same)) continue;
    const std::string name = line->name().empty() ? std::string() : fmt::format(" \"{}\"", line->name());
    throw line->error(fmt::format("{}{} is declared twice: leave one of the lines out", line->word, name));
  }
}

/// Give `line`, of the property, the type of its table from those of the file, where it says the path alone.
void complete_table(Line& line, const std::vector<Line>& lines) {
  const std::size_t path = line.value.find_first_not_of(" \t", line.name().size());
  if (line.word != "table" || path == std::string::npos || line.value[path] != '=') return;
  std::string names;
  for (const Line& one : lines) {
    if (one.word != "table") continue;
    if (one.name() == line.name()) {
      line.value = one.value.substr(0, one.value.find('=')) + line.value.substr(path);
      return;
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name());
  }
  if (names.empty()) return;
  throw line.error(fmt::format("the kernel has no table \"{}\": name one of {}", line.name(), names));
}

/// Throws Error(invalid) where results and the block do not go together.
void check_results(const Declaration& declaration) {
  using Kind = DeclaredAnalytics::Kind;
  const Kind analytics = declaration.analytics.kind;
  if (analytics == Kind::classification && declaration.results.empty()) {
    throw Error(ErrorCode::invalid,
                "analytics classification takes the levels of classes from results that have their names: declare them "
                "with the line results, as in results cat=f32,dog=f32");
  }
  if (analytics == Kind::detections && !declaration.results.empty()) {
    throw Error(ErrorCode::invalid,
                "analytics detections says itself what the words of the result block are: leave the line results out");
  }
  if (declaration.results.size() <= declaration.result_words) return;
  throw Error(ErrorCode::invalid,
              fmt::format("{} results named: the block has {} words: declare more with the line result-words, up to {}",
                          declaration.results.size(), declaration.result_words, GPUMAP_MAX_RESULT_WORDS));
}

/// Throws Error(invalid) where a tuning names what is no parameter of one number.
void check_tuning(const Declaration& declaration) {
  if (!declaration.tuning) return;
  const DeclaredTuning& tuning = *declaration.tuning;
  for (const std::string& name : {tuning.shift, tuning.sky, tuning.center}) {
    const auto is_it = [&](const DeclaredParameter& one) { return one.name == name && one.values.size() == 1; };
    if (std::any_of(declaration.params.begin(), declaration.params.end(), is_it)) continue;
    throw Error(ErrorCode::invalid,
                fmt::format("tune names \"{}\", and the kernel has no parameter of one number that is called so: "
                            "declare it with the line params, as in params {}:f64=0",
                            name, name));
  }
}

/// Throws Error(invalid) for what is for pictures, of a kernel that sees bytes alone.
void check_view(const Declaration& declaration) {
  if (!declaration.on_bytes || (!declaration.per_field && !declaration.converted)) return;
  throw Error(ErrorCode::invalid, fmt::format("\"{}\" is for a kernel that sees pictures, and this one declares \"view "
                                              "bytes\": leave one of the two out",
                                              declaration.converted ? "output converted" : "launch per-field"));
}

}  // namespace

std::optional<std::size_t> bytes_given(const OutputMay& may, std::string_view kernel, std::uint64_t said,
                                       std::size_t bytes) {
  if (said == 0 && may.drop) return std::nullopt;
  if (!may.shorten) return bytes;
  if (said > bytes) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("kernel {}: gives {} bytes of an output that has {}: have it write fewer to frame.given, or "
                    "declare more with the line bytes",
                    kernel, said, bytes));
  }
  if (said == 0 && bytes != 0) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: gives 0 bytes of an output of {}, which is to drop the frame, and does not "
                            "declare that it may: write the line output-may drop,shorten",
                            kernel, bytes));
  }
  return static_cast<std::size_t>(said);
}

std::vector<std::string> parse_names(std::string_view text) {
  return parse_list(text, [&](std::size_t at) { return std::min(text.find(',', at), text.size()); });
}

std::vector<std::string> parse_functions(std::string_view text) {
  return parse_list(text, [&](std::size_t at) { return end_of_function(text, at); });
}

Declaration parse_declaration(std::string_view code, std::string_view declare) {
  std::vector<Line> lines = lines_of_file(code);
  check_once(lines);
  std::vector<Line> overriding = lines_of_property(declare);
  check_once(overriding);
  for (Line& line : overriding) complete_table(line, lines);
  for (Line& line : overriding) {
    const auto same = [&](const Line& one) { return line.declares_same(one); };
    const auto found = std::find_if(lines.begin(), lines.end(), same);
    if (found != lines.end()) {
      *found = std::move(line);
    } else {
      lines.push_back(std::move(line));
    }
  }
  Declaration declaration;
  for (const Line& line : lines) line.put(declaration);
  check_results(declaration);
  check_tuning(declaration);
  if (!declaration.tensor_group.empty() && declaration.output_tensors.empty()) {
    throw Error(ErrorCode::invalid,
                "tensor-group names the group of tensors that go out, and there is none: declare one with the line "
                "output-tensor, or leave tensor-group out");
  }
  check_view(declaration);
  return declaration;
}

std::vector<std::uint64_t> dims_of(const DeclaredTensor& tensor, Variables variables) {
  std::vector<std::uint64_t> dims;
  std::uint64_t bytes = bytes_of(tensor.type);
  for (const DeclaredDimension& dimension : tensor.dims) {
    if (dimension.size.empty()) {
      dims.push_back(0);
      continue;
    }
    std::uint64_t size = 0;
    try {
      size = evaluate(dimension.size, variables);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("tensor \"{}\": {}", tensor.id, error.what()));
    }
    if (size == 0 || size > max_dimension) {
      throw Error(ErrorCode::invalid, fmt::format("tensor \"{}\": its dimension {} is {}: it has to be from 1 to {}",
                                                  tensor.id, dims.size(), size, max_dimension));
    }
    if (bytes > max_bytes / size) {
      throw Error(ErrorCode::invalid, fmt::format("tensor \"{}\" has more than {} bytes: declare smaller dimensions",
                                                  tensor.id, max_bytes));
    }
    bytes *= size;
    dims.push_back(size);
  }
  return dims;
}

std::string dims_text(std::span<const std::uint64_t> dims) {
  std::string text;
  for (const std::uint64_t size : dims) {
    text += fmt::format("{}{}", text.empty() ? "" : "x", size != 0 ? std::to_string(size) : "?");
  }
  return text;
}

}  // namespace gpumap
