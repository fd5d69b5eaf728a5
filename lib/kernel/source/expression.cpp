// SPDX-License-Identifier: MIT
//
// sum     = product *( ( "+" / "-" ) product )
// product = atom *( ( "*" / "/" / "%" ) atom )
// atom    = number / variable / "(" sum ")" / ( "min" / "max" ) "(" sum "," sum ")"
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace {

class Evaluator {
 public:
  Evaluator(std::string_view text, Variables variables) : text_(text), variables_(variables) {}

  std::uint64_t evaluate() {
    const std::uint64_t value = sum();
    if (at_ != text_.size()) fail("expected an operator or the end");
    return value;
  }

 private:
  // Each level of parentheses is one of the stack.
  static constexpr int most_levels = 64;

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
    const std::size_t length = std::min(rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), rest.size());
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
    if (++levels_ > most_levels) fail("too many parentheses");
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

}  // namespace

std::uint64_t evaluate(std::string_view expression, Variables variables) {
  return Evaluator(expression, variables).evaluate();
}

std::string expand(std::string_view text, Variables variables) {
  std::string made;
  for (std::size_t at = 0;;) {
    const std::size_t open = text.find('{', at);
    made += text.substr(at, open - at);
    if (open == text.npos) return made;
    const std::size_t close = text.find('}', open);
    if (close == text.npos) throw Error(ErrorCode::invalid, fmt::format("\"{}\": '{{' without '}}'", text));
    made += std::to_string(evaluate(text.substr(open + 1, close - open - 1), variables));
    at = close + 1;
  }
}

}  // namespace gpumap
