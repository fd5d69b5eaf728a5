// SPDX-License-Identifier: MIT
//
// parameters = [ parameter *( "," parameter ) ]
// parameter  = name [ "[" 1*digit "]" ] "=" ( number / "[" number *( "," number ) "]" )
// name       = ( letter / "_" ) *( letter / digit / "_" / "-" )
// Blanks may stand between any two of these.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/printable.hpp"
#include "kernel/source/declared.hpp"

namespace gpumap {
namespace {

using Values = std::vector<Number>;

// The locale has no say in what a name is.
constexpr bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  NamedNumbers parse() {
    NamedNumbers parameters;
    skip_blanks();
    if (at_end()) return parameters;
    do {
      skip_blanks();
      const std::size_t start = at_;
      std::string name = parse_name();
      if (std::any_of(parameters.begin(), parameters.end(), [&](const auto& p) { return p.first == name; })) {
        fail(start, fmt::format("'{}' is given twice", name));
      }
      if (!take('=')) fail(at_, fmt::format("expected '=' after '{}', found {}", name, found()));
      parameters.emplace_back(std::move(name), parse_values());
    } while (take(','));
    if (!at_end()) fail(at_, fmt::format("expected ',' or the end, found {}", found()));
    return parameters;
  }

 private:
  std::string parse_name() {
    const std::size_t start = at_;
    if (at_end() || !is_letter(text_[at_])) fail(at_, fmt::format("expected a name, found {}", found()));
    while (!at_end() && (is_letter(text_[at_]) || is_digit(text_[at_]) || text_[at_] == '-')) ++at_;
    // One number of several.
    if (!at_end() && text_[at_] == '[') {
      const std::size_t digits = ++at_;
      while (!at_end() && is_digit(text_[at_])) ++at_;
      if (at_ == digits || at_end() || text_[at_] != ']') fail(digits, "expected a number and ']'");
      ++at_;
    }
    return std::string(text_.substr(start, at_ - start));
  }

  Values parse_values() {
    Values values;
    if (!take('[')) {
      values.push_back(parse_number());
      return values;
    }
    do {
      values.push_back(parse_number());
    } while (take(','));
    if (!take(']')) fail(at_, fmt::format("expected ',' or ']', found {}", found()));
    return values;
  }

  Number parse_number() {
    skip_blanks();
    const std::string_view rest = text_.substr(at_);
    double value = 0.0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error == std::errc::invalid_argument) fail(at_, fmt::format("expected a number, found {}", found()));
    if (error != std::errc{} || !std::isfinite(value)) fail(at_, "the number is not a finite 64-bit float");
    if (++numbers_ > GPUMAP_MAX_PARAMS) {
      fail(at_, fmt::format("more than {} numbers: a kernel gets no more", GPUMAP_MAX_PARAMS));
    }
    at_ += static_cast<std::size_t>(end - rest.data());
    // All the digits of a whole number; of a negative zero the sign.
    std::int64_t whole = 0;
    const auto [whole_end, whole_error] = std::from_chars(rest.data(), end, whole);
    if (whole_error == std::errc{} && whole_end == end && whole != 0) return whole;
    return value;
  }

  void skip_blanks() {
    while (!at_end() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }

  /// Skips blanks, then `wanted` if it is next.
  bool take(char wanted) {
    skip_blanks();
    if (at_end() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
  [[nodiscard]] std::string found() const {
    if (at_end()) return "the end";
    const std::size_t bytes = std::max<std::size_t>(printable_bytes(text_.substr(at_)), 1);  // all of a character
    return fmt::format("'{}'", printable(text_.substr(at_, bytes)));
  }
  [[noreturn]] static void fail(std::size_t at, const std::string& what) {
    throw Error(ErrorCode::invalid,
                fmt::format("parameters: column {}: {}; write name=1.5,other=[1,2,3]", at + 1, what));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int numbers_ = 0;
};

/// "taps[1]" as "taps" and 1.
std::pair<std::string_view, std::optional<std::size_t>> split_index(std::string_view name) {
  const std::size_t open = name.find('[');
  if (open == name.npos) return {name, std::nullopt};
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(name.data() + open + 1, name.data() + name.size() - 1, index);
  return {name.substr(0, open), error == std::errc{} ? index : GPUMAP_MAX_PARAMS};
}

std::string numbers(std::size_t count) {
  return fmt::format("{} number{}", count, count == 1 ? "" : "s");
}

}  // namespace

NamedNumbers parse_parameters(std::string_view text) {
  return Parser(text).parse();
}

std::string format_parameters(const NamedNumbers& parameters) {
  std::string text;
  for (const auto& [name, values] : parameters) {
    std::vector<std::string> numbers;
    for (const Number& value : values) numbers.push_back(to_string(value));
    text += fmt::format("{}{}=[{}]", text.empty() ? "" : ",", name, fmt::join(numbers, ","));
  }
  return text;
}

void lay_out_parameters(std::string_view kernel, std::span<const DeclaredParameter> known, std::string_view text,
                        const std::function<void(std::size_t, const Number&)>& put) {
  for (const auto& [given_name, values] : parse_parameters(text)) {
    const auto [name, index] = split_index(given_name);
    std::size_t first = 0;
    const DeclaredParameter* found = nullptr;
    for (const DeclaredParameter& parameter : known) {
      if (parameter.name == name) found = &parameter;
      if (found != nullptr) break;
      first += parameter.values.size();
    }
    if (found == nullptr) {
      std::string list;
      for (const DeclaredParameter& parameter : known) {
        list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", parameter.name, numbers(parameter.values.size()));
      }
      throw Error(ErrorCode::invalid, fmt::format("parameters: kernel {} has no parameter '{}': it takes {}", kernel,
                                                  name, list.empty() ? "none" : list));
    }
    const std::size_t count = found->values.size();
    const std::size_t wanted = index ? 1 : count;
    if (values.size() != wanted || index.value_or(0) >= count) {
      throw Error(ErrorCode::invalid,
                  fmt::format("parameters: '{}' of kernel {} takes {}, {} given", given_name, kernel,
                              index && *index >= count ? fmt::format("no number {}, it has {}", *index, count)
                                                       : numbers(wanted),
                              values.size()));
    }
    for (std::size_t i = 0; i < values.size(); ++i) put(first + index.value_or(0) + i, values[i]);
  }
}

}  // namespace gpumap
