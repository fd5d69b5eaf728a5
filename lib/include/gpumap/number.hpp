// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "gpumap/export.hpp"

namespace gpumap {

/// A number as it was written: a double or, where it was written without a point and an exponent, all the digits of a
/// whole one of 64 bits. A value.
class Number {
 public:
  Number() = default;
  template <std::floating_point Value>
  Number(Value value) : value_(static_cast<double>(value)) {}  // NOLINT(google-explicit-constructor)
  template <std::signed_integral Value>
  Number(Value value) : value_(static_cast<std::int64_t>(value)) {}  // NOLINT(google-explicit-constructor)

  /// The nearest double.
  [[nodiscard]] double value() const noexcept {
    const auto* whole = std::get_if<std::int64_t>(&value_);
    return whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value_);
  }
  /// Exactly; empty for a fraction, for a double beyond 2^53 (what was written may be another number), and NaN.
  [[nodiscard]] GPUMAP_API std::optional<std::int64_t> whole() const noexcept;

  friend bool operator==(const Number& one, const Number& other) noexcept {
    const auto whole = one.whole();
    return whole || other.whole() ? whole == other.whole() : one.value() == other.value();
  }

 private:
  std::variant<double, std::int64_t> value_ = 0.0;
};

/// Text that parses as the same number.
[[nodiscard]] GPUMAP_API std::string to_string(const Number& number);

/// What a parameter or an element of a table is.
enum class NumberType { u8, i8, u16, i16, u32, i32, u64, i64, f16, f32, f64 };

[[nodiscard]] GPUMAP_API std::size_t bytes_of(NumberType type) noexcept;
[[nodiscard]] GPUMAP_API std::string_view to_string(NumberType type) noexcept;  ///< "u8", "f32"
/// The inverse; "uint8" and "float32" are the same. Throws Error(invalid).
[[nodiscard]] GPUMAP_API NumberType parse_number_type(std::string_view text);

}  // namespace gpumap
