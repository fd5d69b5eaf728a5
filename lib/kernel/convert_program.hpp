// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <tuple>

#include "gpumap/kernel.hpp"
#include "gpumap/program.hpp"

namespace gpumap {

/// What `convert` is compiled for: a kernel that knows its formats is small and fast.
struct ConvertVariant {
  gpumap_u32 in_format = 0;
  gpumap_u32 out_format = 0;
  bool resamples = false;  ///< a part of the picture, or another size

  friend bool operator<(const ConvertVariant& a, const ConvertVariant& b) noexcept {
    return std::tie(a.in_format, a.out_format, a.resamples) < std::tie(b.in_format, b.out_format, b.resamples);
  }
};
[[nodiscard]] KernelSource convert_source(const ConvertVariant& variant, Backend backend);

/// Builtin::make_program of `convert`.
[[nodiscard]] std::unique_ptr<Program> make_convert_program(const std::shared_ptr<Device>& device, Backend backend);

}  // namespace gpumap
