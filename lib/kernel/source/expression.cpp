// SPDX-License-Identifier: MIT
//
// sum     = product *( ( "+" / "-" ) product )
// product = atom *( ( "*" / "/" / "%" ) atom )
// atom    = number / variable / "(" sum ")" / ( "min" / "max" ) "(" sum "," sum ")"
//
// What stands in braces is an expression, or a choice between two texts, which may have braces of their own:
//
// braces  = "{" sum "}" / "{" sum "?" text ":" text "}"
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace {

// Each level of parentheses or braces is one of the stack.
constexpr int max_levels = 64;

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || (c >= '0' && c <= '9');
}

/// How long the variable is with which `text` begins: 0 where it does not begin with one.
std::size_t length_of_name(std::string_view text) {
  std::size_t length = 0;
  if (text.empty() || text[0] == '.' || (text[0] >= '0' && text[0] <= '9')) return 0;
  while (length < text.size() && is_of_name(text[length])) ++length;
  if (length == 0 || length == text.size() || text[length] != '[') return length;
  const std::size_t close = text.find_first_not_of("0123456789", length + 1);
  return close != text.npos && close != length + 1 && text[close] == ']' ? close + 1 : length;
}

class Evaluator {
 public:
  Evaluator(std::string_view text, Variables variables) : text_(text), variables_(variables) {}

  std::uint64_t evaluate() {
    const std::uint64_t value = sum();
    if (at_ != text_.size()) fail("expected an operator or the end");
    return value;
  }

 private:
  std::uint64_t sum() {
    std::uint64_t value = product();
    for (;;) {
      if (take('+')) {
        if (__builtin_add_overflow(value, product(), &value)) fail("the result is too large");
      } else if (take('-')) {
        if (__builtin_sub_overflow(value, product(), &value)) fail("the result is below zero");
      } else {
        return value;
      }
    }
  }

  std::uint64_t product() {
    std::uint64_t value = atom();
    for (;;) {
      if (take('*')) {
        if (__builtin_mul_overflow(value, atom(), &value)) fail("the result is too large");
      } else if (take('/')) {
        const std::uint64_t by = atom();
        if (by == 0) fail("division by zero");
        value /= by;
      } else if (take('%')) {
        const std::uint64_t by = atom();
        if (by == 0) fail("division by zero");
        value %= by;
      } else {
        return value;
      }
    }
  }

  std::uint64_t atom() {
    if (take('(')) return inner(')');
    const std::string_view rest = text_.substr(at_);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error == std::errc::result_out_of_range) fail("the number is too large");
    if (error == std::errc{}) {
      at_ += static_cast<std::size_t>(end - rest.data());
      return value;
    }
    const std::size_t length = length_of_name(rest);
    if (length == 0) fail("expected a number, a variable or '('");
    const std::string_view name = rest.substr(0, length);
    if (name == "min" || name == "max") {
      at_ += length;
      if (!take('(')) fail("expected '('");
      const std::uint64_t first = inner(',');
      const std::uint64_t second = inner(')');
      return name == "min" ? std::min(first, second) : std::max(first, second);
    }
    const auto known =
        std::find_if(variables_.begin(), variables_.end(), [&](const auto& v) { return v.first == name; });
    if (known == variables_.end()) {
      std::vector<std::string_view> names;
      for (const auto& variable : variables_) names.push_back(variable.first);
      fail(fmt::format("no variable '{}' here: there {}", name,
                       names.empty() ? "is none" : fmt::format("are {}", fmt::join(names, ", "))));
    }
    at_ += length;
    return known->second;
  }

  /// What stands between parentheses, up to `end`.
  std::uint64_t inner(char end) {
    if (++levels_ > max_levels) fail("too many parentheses");
    const std::uint64_t value = sum();
    if (!take(end)) fail(fmt::format("expected '{}'", end));
    --levels_;
    return value;
  }

  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool take(char wanted) {
    skip_blanks();
    const bool found = at_ < text_.size() && text_[at_] == wanted;
    if (found) ++at_;
    skip_blanks();
    return found;
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorCode::invalid, fmt::format("expression \"{}\": column {}: {}", text_, at_ + 1, what));
  }

  std::string_view text_;
  Variables variables_;
  std::size_t at_ = 0;
  int levels_ = 0;
};

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// Where `wanted` stands in `text` from `at` on, outside of braces; npos: nowhere.
std::size_t find_outside(std::string_view text, char wanted, std::size_t at) {
  for (int depth = 0; at < text.size(); ++at) {
    if (text[at] == wanted && depth == 0) return at;
    if (text[at] == '{') ++depth;
    if (text[at] == '}') --depth;
  }
  return text.npos;
}

std::string expand_level(std::string_view text, Variables variables, int level) {
  if (level > max_levels) {
    throw Error(ErrorCode::invalid,
                fmt::format("more than {} braces within one another: write it with fewer", max_levels));
  }
  std::string made;
  for (std::size_t at = 0;;) {
    const std::size_t open = text.find('{', at);
    made += text.substr(at, open - at);
    if (open == text.npos) return made;
    const std::size_t close = find_outside(text, '}', open + 1);
    if (close == text.npos) throw Error(ErrorCode::invalid, fmt::format("\"{}\": '{{' without '}}'", text));
    const std::string_view inner = text.substr(open + 1, close - open - 1);
    const std::size_t question = find_outside(inner, '?', 0);
    if (question == inner.npos) {
      made += std::to_string(evaluate(inner, variables));
    } else {
      const std::size_t colon = find_outside(inner, ':', question + 1);
      if (colon == inner.npos) {
        throw Error(ErrorCode::invalid,
                    fmt::format("\"{}\": '?' without ':': write {{expression ? text : other}}", inner));
      }
      const bool first = evaluate(inner.substr(0, question), variables) != 0;
      made += expand_level(trimmed(first ? inner.substr(question + 1, colon - question - 1) : inner.substr(colon + 1)),
                           variables, level + 1);
    }
    at = close + 1;
  }
}

}  // namespace

std::uint64_t evaluate(std::string_view expression, Variables variables) {
  return Evaluator(expression, variables).evaluate();
}

std::string expand(std::string_view text, Variables variables) {
  return expand_level(text, variables, 0);
}

std::vector<std::string_view> variables_in(std::string_view text) {
  std::vector<std::string_view> names;
  int depth = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '{') ++depth;
    if (text[at] == '}') --depth;
    const std::size_t length = length_of_name(text.substr(at));
    if (depth > 0 && length != 0) names.push_back(text.substr(at, length));
    at += std::max<std::size_t>(length, 1);
  }
  return names;
}

}  // namespace gpumap
