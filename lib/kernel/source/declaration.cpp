// SPDX-License-Identifier: MIT
#include "gpumap/declaration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "kernel/source/declared_parameters.hpp"
#include "kernel/source/declared_tables.hpp"
#include "kernel/source/declared_tensors.hpp"

namespace gpumap {
namespace {

constexpr std::string_view marker = "// gpumap:";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

template <typename Number>
Number parse_number(std::string_view text, Number least, std::string_view what) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least) {
    throw Error(ErrorCode::invalid, fmt::format("\"{}\" is no {}: write a whole number from {} to {}", text, what,
                                                least, std::numeric_limits<Number>::max()));
  }
  return value;
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
    const bool is_name = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    });
    // Taken by what every message says.
    for (const std::string_view taken : {"kernel", "bytes", "sequence", "pts", "offset"}) {
      if (name != taken) continue;
      throw Error(ErrorCode::invalid,
                  fmt::format("a result cannot be named \"{}\", which is taken: choose another name", name));
    }
    if (!is_name || equals == item.size()) {
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
  const std::size_t end = std::min(value.find_first_of(" \t"), value.size());
  const std::string_view kind = trimmed(value.substr(end));
  if (!kind.empty() && kind != "self-clearing") {
    throw Error(ErrorCode::invalid, fmt::format("no state \"{}\": write self-clearing, or the bytes alone", kind));
  }
  declaration.state_bytes = parse_number<std::uint64_t>(value.substr(0, end), 0, "number of bytes");
  declaration.self_clearing = !kind.empty();
}

/// "classification", or "detections" and what may be the names of classes.
DeclaredAnalytics parse_analytics(std::string_view text) {
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view kind = text.substr(0, end);
  const std::string_view labels = trimmed(text.substr(end));
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

/// One of two words; true for `yes`.
bool parse_choice(std::string_view key, std::string_view value, std::string_view no, std::string_view yes) {
  if (value == no || value == yes) return value == yes;
  throw Error(ErrorCode::invalid, fmt::format("no {} \"{}\": choose {} or {}", key, value, no, yes));
}

void declare(Declaration& declaration, std::string_view key, std::string_view value) {
  if (value.empty()) throw Error(ErrorCode::invalid, fmt::format("{} without a value", key));
  if (key == "params") {
    declaration.takes_none = value == "none";
    if (!declaration.takes_none) declaration.params = parse_declared_parameters(value);
  } else if (key == "table") {
    declaration.tables.push_back(parse_declared_table(value, declaration.tables));
  } else if (key == "history") {
    declaration.history = parse_number<std::uint32_t>(value, 0, "number of frames");
    check_history(declaration.history);
  } else if (key == "functions") {
    declaration.functions = parse_functions(value);
  } else if (key == "block") {
    declaration.block = parse_dimensions(value);
  } else if (key == "grid") {
    declaration.grid = parse_dimensions(value);
  } else if (key == "shared") {
    declaration.shared_bytes = parse_number<std::uint32_t>(value, 0, "number of bytes");
  } else if (key == "state") {
    declare_state(declaration, value);
  } else if (key == "work") {
    declaration.work = parse_work(value);
  } else if (key == "view") {
    declaration.on_bytes = parse_choice(key, value, "format", "bytes");
  } else if (key == "output") {
    declare_output(declaration, value);
  } else if (key == "input") {
    declaration.input = value;
  } else if (key == "launch") {
    declaration.per_field = parse_choice(key, value, "per-frame", "per-field");
  } else if (key == "bytes") {
    declaration.output_bytes = value;
  } else if (key == "output-may") {
    declaration.output_may = parse_output_may(value);
  } else if (key == "input-tensor") {
    declaration.input_tensors.push_back(parse_declared_tensor(value, declaration.input_tensors, true));
  } else if (key == "output-tensor") {
    declaration.output_tensors.push_back(parse_declared_tensor(value, declaration.output_tensors, false));
  } else if (key == "tensor-group") {
    declaration.tensor_group = parse_tensor_id(value);
  } else if (key == "results") {
    declaration.results = parse_results(value);
  } else if (key == "analytics") {
    declaration.analytics = parse_analytics(value);
  } else if (key == "message") {
    declaration.message = parse_message_name(value);
  } else if (key == "result-words") {
    declare_result_words(declaration, parse_number<std::uint64_t>(value, 0, "number of words"));
  } else {
    throw Error(
        ErrorCode::invalid,
        fmt::format("no declaration \"{}\": there are params, functions, block, grid, work, shared, state, view, "
                    "input, output, output-may, launch, bytes, input-tensor, output-tensor, tensor-group, results, "
                    "result-words, analytics, message, table and history",
                    key));
  }
}

}  // namespace

void declare_output(Declaration& declaration, std::string_view value) {
  declaration.unchanged = value == "unchanged";
  declaration.converted = value == "converted";
  declaration.output = declaration.unchanged || declaration.converted ? std::string() : std::string(value);
}

void check_history(std::uint32_t frames) {
  if (frames <= GPUMAP_MAX_HISTORY) return;
  throw Error(ErrorCode::invalid, fmt::format("a history of {} frames: a kernel sees at most {}; keep what it needs of "
                                              "more in its state",
                                              frames, GPUMAP_MAX_HISTORY));
}

void check_view(const Declaration& declaration) {
  if (!declaration.on_bytes || (!declaration.per_field && !declaration.converted)) return;
  throw Error(ErrorCode::invalid, fmt::format("\"{}\" is for a kernel that sees pictures, and this one declares \"view "
                                              "bytes\": leave one of the two out",
                                              declaration.converted ? "output converted" : "launch per-field"));
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
    made[axis] = parse_number<std::uint32_t>(rest.substr(0, end), 1, "dimension, as in 32x8");
    if (end == rest.size()) return made;
    rest.remove_prefix(end + 1);
  }
}

std::vector<std::string> parse_names(std::string_view text) {
  return parse_list(text, [&](std::size_t at) { return std::min(text.find(',', at), text.size()); });
}

std::vector<std::string> parse_functions(std::string_view text) {
  return parse_list(text, [&](std::size_t at) { return end_of_function(text, at); });
}

Declaration parse_declaration(std::string_view code) {
  Declaration declaration;
  std::vector<std::string_view> declared;
  std::size_t line_number = 0;
  for (std::size_t at = 0; at < code.size();) {
    ++line_number;
    const std::size_t end = std::min(code.find('\n', at), code.size());
    const std::string_view line = trimmed(code.substr(at, end - at));
    at = end + 1;
    if (!line.starts_with(marker)) continue;
    const std::string_view text = trimmed(line.substr(marker.size()));
    const std::size_t key_end = std::min(text.find_first_of(" \t"), text.size());
    const std::string_view key = text.substr(0, key_end);
    try {
      const bool may_repeat = key == "table" || key == "input-tensor" || key == "output-tensor";
      if (!may_repeat && std::find(declared.begin(), declared.end(), key) != declared.end()) {
        throw Error(ErrorCode::invalid, fmt::format("{} is declared twice: leave one of the lines out", key));
      }
      declare(declaration, key, trimmed(text.substr(key_end)));
      declared.push_back(key);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("line {}: {} {}", line_number, marker, error.what()));
    }
  }
  check_results(declaration);
  if (!declaration.tensor_group.empty() && declaration.output_tensors.empty()) {
    throw Error(ErrorCode::invalid,
                "tensor-group names the group of tensors that go out, and there is none: declare one with the line "
                "output-tensor, or leave tensor-group out");
  }
  check_view(declaration);
  return declaration;
}

}  // namespace gpumap
