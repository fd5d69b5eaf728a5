// SPDX-License-Identifier: MIT
#include <cstddef>
#include <cstdint>

#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::pair<std::string_view, std::uint64_t> variables[] = {
      {"width", 1917}, {"height", 1}, {"bytes", 1ULL << 63}};
  for (const bool as_expression : {false, true}) {
    try {
      if (as_expression) {
        (void)gpumap::expand(text, variables);
        (void)gpumap::evaluate(text, variables);
        continue;
      }
      const gpumap::Declaration declaration = gpumap::parse_declaration(text);
      if (declaration.results.size() > declaration.result_words) __builtin_trap();
      if (declaration.result_words < GPUMAP_RESULT_WORDS || declaration.result_words > GPUMAP_MAX_RESULT_WORDS) {
        __builtin_trap();
      }
      // No word of a kernel's makes more of an output than there is.
      for (const std::uint64_t said : {std::uint64_t{0}, std::uint64_t{size}, ~std::uint64_t{0}}) {
        if (gpumap::bytes_given(declaration.output_may, "fuzz", said, size).value_or(0) > size) __builtin_trap();
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
