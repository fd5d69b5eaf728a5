// SPDX-License-Identifier: MIT
#include <array>
#include <cstddef>
#include <cstdint>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    std::size_t numbers = 0;
    for (const auto& [name, values] : gpumap::parse_parameters(text)) {
      if (name.empty() || values.empty()) __builtin_trap();
      numbers += values.size();
    }
    if (numbers > GPUMAP_MAX_PARAMS) __builtin_trap();
    std::array<float, GPUMAP_MAX_PARAMS> params{};
    gpumap::apply_parameters(*gpumap::find_builtin("convert"), text, params);
  } catch (const gpumap::Error&) {
    // Refusing is an answer; anything else that is thrown is a finding.
  }
  return 0;
}
