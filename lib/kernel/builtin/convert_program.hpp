// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <tuple>

#include "gpumap/kernel.hpp"
#include "gpumap/program.hpp"

namespace gpumap {

/// The kernels of `convert`.
enum class ConvertPass {
  same,       ///< the whole picture in its size
  resampled,  ///< a part of it or another size, each pixel of all input pixels that it covers
  down,       ///< the same for much smaller sizes: first the columns
  across,     ///< and then the rows of what that left
};

/// What `convert` is compiled for: a kernel that knows its formats is small and fast.
struct ConvertVariant {
  gpumap_u32 in_format = 0;
  gpumap_u32 out_format = 0;
  ConvertPass pass = ConvertPass::same;

  friend bool operator<(const ConvertVariant& a, const ConvertVariant& b) noexcept {
    return std::tie(a.in_format, a.out_format, a.pass) < std::tie(b.in_format, b.out_format, b.pass);
  }
};
[[nodiscard]] KernelSource convert_source(const ConvertVariant& variant, Backend backend);

/// Builtin::make_program of `convert`.
[[nodiscard]] std::unique_ptr<Program> make_convert_program(const std::shared_ptr<Device>& device, Backend backend);

}  // namespace gpumap
