// SPDX-License-Identifier: MIT
#include "kernel/resident/waiting_functions.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpumap {

namespace {

bool is_one_of(std::string_view word, std::span<const std::string_view> all) {
  return std::ranges::find(all, word) != all.end();
}

constexpr std::array<std::string_view, 5> types{"struct", "class", "union", "enum", "namespace"};
constexpr std::array<std::string_view, 4> attributes{"alignas", "__align__", "__attribute__", "__declspec"};
/// Functions that are called without their names: operators and destructors among others, as constructors are.
constexpr std::array<std::string_view, 4> unnamed{"operator", "~", "begin", "end"};
constexpr std::array<std::string_view, 8> controls{"if", "else", "for", "while", "do", "switch", "try", "catch"};

}  // namespace

void WaitingFunctions::Reader::see(std::size_t at, bool waits) {
  if (words_[at].directive) {
    see_directive(at, waits);
    return;
  }
  const std::string_view text = words_[at].text;
  if (text == "<%" || text == "%>") all_.is_left_anywhere_ = all_.is_unclear_ = true;
  if (text == "(") ++place_.parentheses;
  if (text == ")") --place_.parentheses;
  if (at > 0 && is_one_of(words_[at - 1].text, types)) all_.types_.emplace(text);
  if (text == "{") begin_block(at);
  if (text == "}") end_block(at);
  if (text == ";" && place_.parentheses == 0) end_statement(at);
  if (place_.function == none) {
    if (!words_[at].quoted && is_of_name(text[0])) all_.outside_.emplace(text);
    // As in a file that is included within a function, or between braces that are macros.
    all_.is_left_anywhere_ = all_.is_left_anywhere_ || text == "return";
    // In parentheses it may be given to a macro, or be a default; other words there are types of arguments.
    const bool is_given = place_.parentheses > 0 && text.starts_with("__");
    all_.is_unclear_ = all_.is_unclear_ || (waits && (is_given || begins_statement(at)));
    return;
  }
  Function& function = all_.functions_[place_.function];
  if (waits) function.waits_at = at;
  if (text == "return" && function.left_at == none && !is_at_end(at)) function.left_at = statement_in_function();
  note(at, place_.function, is_call(at));
}

/// Whether the word is the name of a line of the preprocessor, as `define` is.
bool WaitingFunctions::Reader::is_directive(std::size_t at) const {
  if (at == 0 || !words_[at].directive || words_[at - 1].quoted ||
      (words_[at - 1].text != "#" && words_[at - 1].text != ":"))
    return false;
  if (at == 1) return true;
  const std::string_view line = read_.behind(words_[at - 2]);
  return words_[at - 1].text.data() >= line.data() + line.size();
}

/// In all branches of an #if the same blocks are open.
void WaitingFunctions::Reader::see_directive(std::size_t at, bool waits) {
  const std::string_view text = words_[at].text;
  if (!is_directive(at)) {
    if (macro_ == none) return;
    Function& macro = all_.functions_[macro_];
    if (!words_[at].quoted) {
      macro.braces += text == "{" || text == "<%" ? 1 : text == "}" || text == "%>" ? -1 : 0;
      macro.is_kernel = text == "__global__" || (macro.is_kernel && text != ";" && text != "}");
    }
    if (!is_of_name(text[0])) return;
    if (macro.names.empty()) macro.names.emplace(text);
    if (waits) macro.waits_at = at;
    note(at, macro_, true);
    return;
  }
  macro_ = none;
  if (text == "define") {
    macro_ = all_.functions_.size();
    all_.functions_.emplace_back().is_macro = true;
  }
  if (text == "include" && place_.function != none) {
    all_.functions_[place_.function].left_at = all_.functions_[place_.function].waits_at = at;
  }
  if (text.starts_with("if")) {
    branches_.push_back(place_);
    if (begins_statement(at)) branches_.back().statement = none;
  }
  if (text == "endif" && !branches_.empty()) branches_.pop_back();
  if (!text.starts_with("el") || branches_.empty()) return;
  place_ = branches_.back();
  if (place_.statement == none) place_.statement = at + 1;
}

void WaitingFunctions::Reader::begin_block(std::size_t at) {
  Block block{false, place_.function, place_.statement, place_.parentheses};
  if (place_.function == none) {
    block.is_function = !is_type(at);
    if (block.is_function) {
      begin_function(at);
    } else {
      // Words of a `template <...>` are no names of the type: functions have them, too.
      for (std::size_t i = behind_templates(place_.statement, at); i < at; ++i) all_.types_.emplace(words_[i].text);
    }
  } else if (is_lambda(at)) {
    block.is_function = true;
    all_.functions_.push_back({.within = std::exchange(place_.function, all_.functions_.size())});
  }
  place_.blocks.push_back(block);
  place_.statement = at + 1;
  place_.parentheses = 0;
}

void WaitingFunctions::Reader::end_block(std::size_t at) {
  if (place_.blocks.empty()) return;
  const Block block = place_.blocks.back();
  place_.blocks.pop_back();
  place_.function = block.function;
  place_.parentheses = block.parentheses;
  place_.statement = block.statement;  // which goes on behind a list in its parentheses
  if (block.parentheses == 0) end_statement(at);
}

/// With word `at`, unless an else follows.
void WaitingFunctions::Reader::end_statement(std::size_t at) {
  const std::size_t next = at + 1;
  do ++at;
  while (at < words_.size() && words_[at].directive);
  if (at == words_.size() || words_[at].text != "else") place_.statement = next;
}

bool WaitingFunctions::Reader::begins_statement(std::size_t at) const {
  const auto word = [this](std::size_t i) { return words_.begin() + static_cast<std::ptrdiff_t>(i); };
  return place_.statement <= at && std::all_of(word(place_.statement), word(at), std::mem_fn(&SourceWord::directive));
}

/// The one of the function's own block that this is in: all loops around it are in there.
std::size_t WaitingFunctions::Reader::statement_in_function() const {
  std::size_t statement = place_.statement;
  for (std::size_t i = place_.blocks.size(); !place_.blocks[--i].is_function;) statement = place_.blocks[i].statement;
  return statement;
}

/// Its names: whatever stands before arguments of a function in its head.
void WaitingFunctions::Reader::begin_function(std::size_t at) {
  place_.function = all_.functions_.size();
  Function& made = all_.functions_.emplace_back();
  int depth = 0;  // of parentheses
  for (std::size_t i = place_.statement; i < at; ++i) {
    const auto& [text, quoted, directive] = words_[i];
    if (quoted || directive) continue;
    depth += text == "(" ? 1 : text == ")" ? -1 : 0;
    if (text == "__global__") made.is_kernel = true;
    if (text == "~" || text == "operator") made.names.emplace(text);
    if (!is_of_name(text[0])) continue;
    if (is_call(i) && !is_part_of_type(i, at, depth > 0)) made.names.emplace(text);
    if (i == place_.statement && is_one_of(text, controls)) all_.is_left_anywhere_ = all_.is_unclear_ = true;
  }
}

void WaitingFunctions::Reader::note(std::size_t at, std::size_t user, bool calls) {
  const std::string text(words_[at].text);
  if (!is_of_name(text[0])) return;
  all_.users_[text][user] = at;
  if (calls) all_.callers_[text][user] = at;
}

/// Whether the word is followed by arguments, or by those of a template.
bool WaitingFunctions::Reader::is_call(std::size_t at) const {
  if (at + 1 == words_.size()) return false;
  const std::string_view behind = read_.behind(at);
  return behind.substr(std::min(behind.find_first_not_of(" \t\r\n"), behind.size())).starts_with('<') ||
         words_[at + 1].text == "(" ||
         (at + 2 < words_.size() && words_[at + 1].text == ")" && words_[at + 2].text == "(");
}

/// Whether the word of a head, which ends at `end`, is an attribute or of a type: Vec of `Vec<T> sum(Vec<T> v)`, or T
/// of `sum(T (&all)[2])`. A ">=" or "->" may end no arguments of a template.
bool WaitingFunctions::Reader::is_part_of_type(std::size_t at, std::size_t end, bool is_argument) const {
  const auto starts_with = [this](std::size_t word, std::string_view any) {
    const std::string_view text = read_.behind(word);
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    return first != text.npos && any.find(text[first]) != any.npos;
  };
  if (is_one_of(words_[at].text, attributes)) return true;
  std::size_t next = at + 1;
  if (starts_with(at, "<")) {
    next = behind_angles(at, end + 1);
    const std::string_view close = read_.behind(next - 1);
    if (next > end || close.find(">=") != close.npos || close.find("->") != close.npos) return false;
    if (words_[next].text != "(") return true;
  }
  return is_argument && words_[next].text == "(" && starts_with(next, "&*");
}

/// The word behind the `<...>` behind word `at`; `end` at most.
std::size_t WaitingFunctions::Reader::behind_angles(std::size_t at, std::size_t end) const {
  int open = 0, parentheses = 0;
  do {
    parentheses += words_[at].text == "(" ? 1 : words_[at].text == ")" ? -1 : 0;
    const std::string_view behind = parentheses == 0 ? read_.behind(at) : std::string_view();
    open += static_cast<int>(std::ranges::count(behind, '<') - std::ranges::count(behind, '>'));
    ++at;
  } while (at < end && open > 0);
  return at;
}

/// The first word from `at` on that is neither in a `template <...>` nor the preprocessor's; `end` at most.
std::size_t WaitingFunctions::Reader::behind_templates(std::size_t at, std::size_t end) const {
  const auto skip_directives = [&] {
    while (at < end && words_[at].directive) ++at;
  };
  for (skip_directives(); at < end && words_[at].text == "template"; skip_directives()) at = behind_angles(at, end);
  return at;
}

/// Whether the block that word `end` begins is one of a type or a namespace: its name stands behind no arguments.
bool WaitingFunctions::Reader::is_type(std::size_t end) const {
  std::size_t at = behind_templates(place_.statement, end);
  if (at + 2 == end && words_[at].text == "extern" && words_[at + 1].quoted) return true;
  for (int depth = 0; at < end && (depth != 0 || !is_one_of(words_[at].text, types)); ++at) {
    if (words_[at].text == "(") ++depth;
    if (words_[at].text == ")") --depth;
  }
  if (at == end) return false;
  for (++at; at < end && words_[at].text != ":"; ++at) {
    if (words_[at].text != "(") continue;
    if (!is_one_of(words_[at - 1].text, attributes)) return false;
    for (int depth = 1; depth != 0 && ++at < end;)
      depth += words_[at].text == "(" ? 1 : words_[at].text == ")" ? -1 : 0;
  }
  return true;
}

/// Whether the block that word `at` begins is that of a lambda: behind [...], and perhaps (...) and more words.
bool WaitingFunctions::Reader::is_lambda(std::size_t at) const {
  const auto skip_names = [&] {
    while (at > place_.statement && !words_[at - 1].quoted && is_of_name(words_[at - 1].text[0])) --at;
  };
  skip_names();
  if (at > place_.statement && words_[at - 1].text == ")") {
    int depth = 0;
    do {
      --at;
      depth += words_[at].text == ")" ? 1 : words_[at].text == "(" ? -1 : 0;
    } while (at > place_.statement && depth != 0);
    skip_names();
  }
  return at > place_.statement && words_[at - 1].text == "]";
}

/// Whether the return at this word is the last statement of its function, or lambda, and under no condition.
bool WaitingFunctions::Reader::is_at_end(std::size_t at) const {
  if (!begins_statement(at) || !place_.blocks.back().is_function) return false;
  int depth = 0;
  for (; at < words_.size(); ++at) {
    const auto& [text, quoted, directive] = words_[at];
    if (quoted || directive) continue;
    if (text == ";" && depth == 0) break;
    if (text == "(" || text == "{") ++depth;
    if (text == ")" || text == "}") --depth;
  }
  // Another branch of an #if may end in another return.
  int others = 0;
  for (++at; at < words_.size(); ++at) {
    const std::string_view text = words_[at].text;
    if (!words_[at].directive && others == 0) return text == "}";
    if (!is_directive(at)) continue;
    if (text.starts_with(others == 0 ? "el" : "if")) ++others;
    if (text == "endif" && others > 0) --others;
  }
  return false;
}

bool WaitingFunctions::is_left_early() const {
  const auto is_left = [](const Function& function) { return function.left_at != Reader::none; };
  const auto is_brace = [](const Function& function) { return function.braces != 0; };
  const bool is_left_somewhere = is_left_anywhere_ || std::ranges::any_of(functions_, is_brace);
  const bool any = is_left_somewhere || std::ranges::any_of(functions_, is_left);
  if (!any || is_left_somewhere || is_unclear_) return any;
  std::vector<std::size_t> waits_at(functions_.size()), waiting;
  const auto add = [&](std::size_t function, std::size_t at) {
    if (waits_at[function] == 0 && at != 0) waiting.push_back(function);
    waits_at[function] = std::max(waits_at[function], at);
  };
  for (std::size_t i = 0; i < functions_.size(); ++i) add(i, functions_[i].waits_at);
  std::map<std::string_view, bool> macros;  // and whether a kernel begins in each that has this name
  for (const Function& function : functions_) {
    if (!function.is_macro || function.names.empty()) continue;
    bool& is_kernel = macros.try_emplace(*function.names.begin(), true).first->second;
    is_kernel = is_kernel && function.is_kernel;
  }
  while (!waiting.empty()) {
    const Function& function = functions_[waiting.back()];
    waiting.pop_back();
    if (function.within != Reader::none) {
      add(function.within, Reader::none - 1);  // called anywhere
      continue;
    }
    const auto begins_kernel = [&](const std::string& name) {
      const auto macro = macros.find(name);
      return macro != macros.end() && macro->second;
    };
    // No function calls a kernel by a name that only a macro knows.
    const bool is_kernel = function.is_kernel || std::ranges::any_of(function.names, begins_kernel);
    const auto is_hidden = [&](const std::string& name) {
      return is_one_of(name, unnamed) ||
             (function.is_macro ? outside_.contains(name)
                                : types_.contains(name) || (macros.contains(name) && !is_kernel));
    };
    if (function.names.empty() || std::ranges::any_of(function.names, is_hidden)) return true;
    // A variable may have the name of a function.
    const auto& users = function.is_macro ? users_ : callers_;
    for (const std::string& name : function.names) {
      const auto found = users.find(name);
      if (found == users.end() || (!function.is_macro && macros.contains(name))) continue;
      for (const auto& [user, at] : found->second) add(user, at);
    }
  }
  for (std::size_t i = 0; i < functions_.size(); ++i) {
    if (is_left(functions_[i]) && waits_at[i] >= functions_[i].left_at) return true;
  }
  return false;
}

}  // namespace gpumap
