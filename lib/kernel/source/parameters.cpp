// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/printable.hpp"

namespace gpumap {
namespace {

struct NamedType {
  std::string_view name, long_name;
  std::size_t bytes;
};
/// In the order of NumberType.
constexpr std::array<NamedType, 11> types{{
    {"u8", "uint8", 1},
    {"i8", "int8", 1},
    {"u16", "uint16", 2},
    {"i16", "int16", 2},
    {"u32", "uint32", 4},
    {"i32", "int32", 4},
    {"u64", "uint64", 8},
    {"i64", "int64", 8},
    {"f16", "float16", 2},
    {"f32", "float32", 4},
    {"f64", "float64", 8},
}};

}  // namespace

std::optional<std::int64_t> Number::whole() const noexcept {
  if (const auto* whole = std::get_if<std::int64_t>(&value_)) return *whole;
  const double value = std::get<double>(value_);
  constexpr double exact = 9007199254740992.0;  // 2^53
  if (!(std::abs(value) <= exact) || std::trunc(value) != value) return {};
  return static_cast<std::int64_t>(value);
}

std::string to_string(const Number& number) {
  const auto whole = number.whole();
  // A negative zero is to stay one.
  return whole && *whole != 0 ? fmt::format("{}", *whole) : fmt::format("{}", number.value());
}

std::size_t bytes_of(NumberType type) noexcept {
  return types[static_cast<std::size_t>(type)].bytes;
}

std::string_view to_string(NumberType type) noexcept {
  return types[static_cast<std::size_t>(type)].name;
}

NumberType parse_number_type(std::string_view text) {
  const auto* found = std::find_if(types.begin(), types.end(),
                                   [&](const NamedType& type) { return text == type.name || text == type.long_name; });
  if (found != types.end()) return static_cast<NumberType>(found - types.begin());
  std::string names;
  for (const NamedType& type : types) names += fmt::format("{}{}", names.empty() ? "" : ", ", type.name);
  throw Error(ErrorCode::invalid, fmt::format("no type \"{}\": choose one of {}", text, names));
}

// parameters = [ parameter *( "," parameter ) ]
// parameter  = name [ "[" 1*digit "]" ] "=" ( number / "[" number *( "," number ) "]" )
// name       = ( letter / "_" ) *( letter / digit / "_" / "-" )
// Blanks may stand between any two of these.

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

// The parameters of a kernel of the user's.
//
// declared  = item *( "," item )
// item      = name [ ":" type ] "=" ( number / list ) [ "in" "[" number "," number "]" ]

namespace {

/// `put` each number that `text` gives at its place among those of `known`. `kernel` is for messages. Throws
/// Error(invalid) for an unknown name or a wrong count, and what `put` throws.
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

using Limits = std::pair<Number, Number>;

/// The range of whole numbers of a type; empty for floats.
std::optional<Limits> whole_range(NumberType type) {
  switch (type) {
    case NumberType::i32:
      return Limits{std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
    case NumberType::u32:
      return Limits{0, std::int64_t{std::numeric_limits<std::uint32_t>::max()}};
    case NumberType::i64:
      return Limits{std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
    default:
      return {};
  }
}

bool is_within(const Number& number, const Limits& limits) {
  const auto whole = number.whole(), least = limits.first.whole(), most = limits.second.whole();
  if (whole && least && most) return *whole >= *least && *whole <= *most;
  return number.value() >= limits.first.value() && number.value() <= limits.second.value();
}

/// Why `number` cannot be a value of `parameter`, of a file of the user's or of a built-in; empty where it can.
std::string obstacle(const DeclaredParameter& parameter, const Number& number, bool of_file) {
  const std::optional<Limits> range = whole_range(parameter.type);
  if (range &&
      (!number.whole() || !is_within(number, *range) || !is_within(number, parameter.limits.value_or(*range)))) {
    const Limits& told = parameter.limits ? *parameter.limits : *range;
    return fmt::format("{} is not a whole number from {} to {} ({}): give one that is", to_string(number),
                       to_string(told.first), to_string(told.second), to_string(parameter.type));
  }
  if (parameter.type == NumberType::f32 && !(std::abs(number.value()) <= std::numeric_limits<float>::max())) {
    return fmt::format("{} is not a finite 32-bit float: give a smaller one{}", to_string(number),
                       of_file ? ", or declare it as f64" : "");
  }
  if (parameter.limits && !is_within(number, *parameter.limits)) {
    return fmt::format("{} is not from {} to {}: give a number that is", to_string(number),
                       to_string(parameter.limits->first), to_string(parameter.limits->second));
  }
  return {};
}

void check(std::string_view of, const DeclaredParameter& parameter, const Number& number, bool of_file = true) {
  const std::string why = obstacle(parameter, number, of_file);
  if (!why.empty()) throw Error(ErrorCode::invalid, fmt::format("parameters: '{}'{}: {}", parameter.name, of, why));
}

NumberType parse_parameter_type(std::string_view text) {
  const NumberType type = parse_number_type(text);
  if (type == NumberType::f32 || type == NumberType::f64 || whole_range(type)) return type;
  throw Error(ErrorCode::invalid,
              fmt::format("a parameter cannot be a {}: choose f32, f64, i32, u32 or i64", to_string(type)));
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Where the item that begins at `at` ends: a comma that is not between brackets.
std::size_t end_of_item(std::string_view text, std::size_t at) {
  int depth = 0;
  for (; at < text.size() && (text[at] != ',' || depth > 0); ++at) {
    if (text[at] == '[') ++depth;
    if (text[at] == ']') --depth;
  }
  return at;
}

/// What an item says beyond `name=values`; that is taken out of `text`, from `at` to `end`, and blanks left, so that
/// columns stay what they are.
DeclaredParameter take_extras(std::string& text, std::size_t at, std::size_t end) {
  DeclaredParameter made;
  const std::string item = text.substr(at, end - at);
  const std::size_t equals = item.find('=');
  if (equals == item.npos) return made;
  if (const std::size_t colon = item.find(':'); colon < equals) {
    made.type = parse_parameter_type(trimmed(std::string_view(item).substr(colon + 1, equals - colon - 1)));
    std::fill(text.begin() + static_cast<std::ptrdiff_t>(at + colon),
              text.begin() + static_cast<std::ptrdiff_t>(at + equals), ' ');
  }
  const std::size_t in = item.rfind("in");
  if (in == item.npos || in < equals) return made;
  const std::string_view limits = trimmed(std::string_view(item).substr(in + 2));
  if (!limits.starts_with('[')) return made;
  const auto parsed = parse_parameters(fmt::format("in={}", limits));
  const std::vector<Number>& numbers = parsed.front().second;
  if (parsed.size() != 1 || numbers.size() != 2 || numbers[0].value() > numbers[1].value()) {
    throw Error(ErrorCode::invalid, fmt::format("\"{}\": write the least and the most, as in [0,100]", limits));
  }
  made.limits = Limits{numbers[0], numbers[1]};
  std::fill(text.begin() + static_cast<std::ptrdiff_t>(at + in), text.begin() + static_cast<std::ptrdiff_t>(end), ' ');
  return made;
}

/// As a word of gpumap_frame::numbers.
std::uint64_t word_of(NumberType type, const Number& number) {
  if (whole_range(type)) return static_cast<std::uint64_t>(number.whole().value_or(0));
  return std::bit_cast<std::uint64_t>(number.value());
}

float nearest_float(const Number& number) {
  const double value = number.value();
  constexpr double most = std::numeric_limits<float>::max();
  if (std::abs(value) <= most) return static_cast<float>(value);
  return std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(value > 0 ? 1 : -1));
}

}  // namespace

std::vector<DeclaredParameter> parse_declared_parameters(std::string_view text) {
  std::string plain(text);
  std::vector<DeclaredParameter> made;
  for (std::size_t at = 0; at <= plain.size();) {
    const std::size_t end = end_of_item(plain, at);
    made.push_back(take_extras(plain, at, end));
    at = end + 1;
  }
  auto parsed = parse_parameters(plain);
  made.resize(parsed.size());  // each item gave one, else it would have thrown; none gives an empty item
  for (std::size_t i = 0; i < made.size(); ++i) {
    DeclaredParameter& parameter = made[i];
    parameter.name = std::move(parsed[i].first);
    parameter.values = std::move(parsed[i].second);
    if (parameter.name.find('[') != std::string::npos) {
      throw Error(ErrorCode::invalid,
                  fmt::format("\"{}\": declare the whole list, as in taps=[1,2,3]", parameter.name));
    }
    if (parameter.limits) {
      DeclaredParameter unlimited = parameter;
      unlimited.limits.reset();
      for (const Number& limit : {parameter.limits->first, parameter.limits->second}) check(" in", unlimited, limit);
    }
    for (const Number& value : parameter.values) check("", parameter, value);
  }
  return made;
}

std::vector<Number> numbers_of(const Declaration& declaration, std::string_view kernel, std::string_view text) {
  std::vector<Number> made;
  const std::string of_kernel = fmt::format(" of kernel {}", kernel);
  const bool of_file = find_builtin(kernel) == nullptr;
  if (declaration.params.empty() && !declaration.takes_none) {
    for (const auto& [name, values] : parse_parameters(text)) {
      const DeclaredParameter as_float{.name = name};
      for (const Number& value : values) check(of_kernel, as_float, value, of_file);
      made.insert(made.end(), values.begin(), values.end());
    }
    return made;
  }
  std::vector<const DeclaredParameter*> of;  // of each number
  for (const DeclaredParameter& parameter : declaration.params) {
    made.insert(made.end(), parameter.values.begin(), parameter.values.end());
    of.resize(made.size(), &parameter);
  }
  lay_out_parameters(kernel, declaration.params, text, [&](std::size_t at, const Number& number) {
    check(of_kernel, *of[at], number, of_file);
    made[at] = number;
  });
  return made;
}

std::vector<std::pair<std::string, std::uint64_t>> parameter_variables(std::span<const DeclaredParameter> params,
                                                                       std::span<const Number> numbers,
                                                                       std::uint64_t most) {
  const auto cut_off = [most](const Number& number) -> std::uint64_t {
    const auto whole = number.whole();
    if (whole) return std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(*whole, 0)), most);
    // Not below the most's double, which may be above the most itself.
    if (number.value() >= static_cast<double>(most)) return most;
    return number.value() > 0.0 ? static_cast<std::uint64_t>(number.value()) : 0;
  };
  std::vector<std::pair<std::string, std::uint64_t>> made;
  for (const DeclaredParameter& parameter : params) {
    const std::size_t count = parameter.values.size();
    for (std::size_t i = 0; i < count; ++i) {
      made.emplace_back(count == 1 ? "params." + parameter.name : fmt::format("params.{}[{}]", parameter.name, i),
                        cut_off(numbers[made.size()]));
    }
  }
  return made;
}

void apply_declared(const Declaration& declaration, std::string_view kernel, std::string_view text,
                    std::span<float> params, std::span<std::uint64_t> numbers) {
  const std::vector<Number> made = numbers_of(declaration, kernel, text);
  std::vector<NumberType> type_of(made.size(), NumberType::f32);
  std::size_t at = 0;
  for (const DeclaredParameter& parameter : declaration.params) {
    for (std::size_t i = 0; i < parameter.values.size(); ++i) type_of[at++] = parameter.type;
  }
  std::fill(params.begin(), params.end(), 0.0F);
  std::fill(numbers.begin(), numbers.end(), 0);
  for (std::size_t i = 0; i < made.size(); ++i) {
    params[i] = nearest_float(made[i]);
    numbers[i] = word_of(type_of[i], made[i]);
  }
}

void apply_parameters(const Builtin& builtin, std::string_view text, std::span<double, GPUMAP_MAX_PARAMS> params) {
  const std::vector<Number> made = numbers_of(declaration_of(builtin), builtin.name, text);
  std::fill(params.begin(), params.end(), 0.0);
  std::transform(made.begin(), made.end(), params.begin(), [](const Number& number) { return number.value(); });
}

void apply_parameters(const Builtin& builtin, std::string_view text, std::span<float, GPUMAP_MAX_PARAMS> params) {
  const std::vector<Number> made = numbers_of(declaration_of(builtin), builtin.name, text);
  std::fill(params.begin(), params.end(), 0.0F);
  std::transform(made.begin(), made.end(), params.begin(), nearest_float);
}

}  // namespace gpumap
