// SPDX-License-Identifier: MIT
#include <array>
#include <cstddef>
#include <cstdint>

#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.h"
#include "gpumap/kernel.hpp"
#include "gpumap/tables.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::pair<std::string_view, std::uint64_t> variables[] = {
      {"width", 1917}, {"height", 1}, {"bytes", 1ULL << 63}};
  enum class Text { source, property, both, expression };
  for (const Text is : {Text::source, Text::property, Text::both, Text::expression}) {
    try {
      if (is == Text::expression) {
        for (const std::string_view name : gpumap::variables_in(text)) {
          if (name.empty()) __builtin_trap();
        }
        (void)gpumap::expand(text, variables);
        (void)gpumap::evaluate(text, variables);
        continue;
      }
      const gpumap::Declaration declaration =
          gpumap::parse_declaration(is == Text::property ? "" : text, is == Text::source ? "" : text);
      if (declaration.results.size() > declaration.result_words) __builtin_trap();
      if (declaration.result_words < GPUMAP_RESULT_WORDS || declaration.result_words > GPUMAP_MAX_RESULT_WORDS) {
        __builtin_trap();
      }
      // No word of a kernel's makes more of an output than there is.
      for (const std::uint64_t said : {std::uint64_t{0}, std::uint64_t{size}, ~std::uint64_t{0}}) {
        if (gpumap::bytes_given(declaration.output_may, "fuzz", said, size).value_or(0) > size) __builtin_trap();
      }
      if (declaration.history > GPUMAP_MAX_HISTORY || declaration.tables.size() > GPUMAP_MAX_TABLES) __builtin_trap();
      for (const gpumap::DeclaredTable& table : declaration.tables) {
        const std::uint64_t count = table.count.value_or(1);
        if (table.name.empty() || count == 0) __builtin_trap();
        if (count > gpumap::Tables::max_bytes / bytes_of(table.type)) __builtin_trap();
      }
      // Whatever was declared is laid out, and as text of its own gives the same.
      std::array<float, GPUMAP_MAX_PARAMS> params{}, again_params{};
      std::array<std::uint64_t, GPUMAP_MAX_PARAMS> numbers{}, again_numbers{};
      apply_declared(declaration, "fuzz", "", params, numbers);
      gpumap::NamedNumbers initial;
      for (const gpumap::DeclaredParameter& parameter : declaration.params) {
        if (parameter.name.empty() || parameter.values.empty()) __builtin_trap();
        initial.emplace_back(parameter.name, parameter.values);
      }
      try {
        apply_declared(declaration, "fuzz", gpumap::format_parameters(initial), again_params, again_numbers);
      } catch (const gpumap::Error&) {
        __builtin_trap();
      }
      if (numbers != again_numbers) __builtin_trap();
      const auto values = numbers_of(declaration, "fuzz", "");
      for (const auto& [name, value] : parameter_variables(declaration.params, values, 7)) {
        if (!name.starts_with("params.") || value > 7) __builtin_trap();
      }
      for (const auto& name : declaration.functions) {
        if (name.empty()) __builtin_trap();
      }
    } catch (const gpumap::Error&) {
      // Refusing is an answer; anything else that is thrown is a finding.
    }
  }
  return 0;
}
