// SPDX-License-Identifier: MIT
#include "gpumap/number.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "gpumap/error.hpp"

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

}  // namespace gpumap
