// SPDX-License-Identifier: MIT
#include <cstddef>
#include <cstdint>

#include "gpumap/error.hpp"
#include "kernel/compile/spirv.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    static_cast<void>(gpumap::parse_spirv({reinterpret_cast<const char*>(data), size}));
  } catch (const gpumap::Error&) {
    // Refusing is an answer; anything else that is thrown is a finding.
  }
  return 0;
}
