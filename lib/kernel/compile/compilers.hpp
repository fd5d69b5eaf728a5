// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "gpumap/kernel.hpp"
#include "kernel/cache/code_cache.hpp"

namespace gpumap {

/// What NVRTC made of a CUDA source.
struct CudaBinary {
  std::string code;      ///< a cubin, or PTX where the architecture is newer than this NVRTC
  std::string function;  ///< the kernel's name
};

/// See compile_cuda.
[[nodiscard]] CudaBinary build_cuda(const KernelSource& source, std::string_view architecture,
                                    CodeCache& cache = CodeCache::of_process());

/// How much of a gpumap_frame the kernels of `source` are compiled with: all, or as much as GPUMAP_SHORT_FRAME has.
[[nodiscard]] std::size_t frame_bytes(const KernelSource& source);

/// The text of what a source may include without any file on disk, as "gpumap/grid.h"; empty: there is none.
[[nodiscard]] std::string_view own_header(std::string_view name) noexcept;
/// The same of GLSL, as "gpumap.glsl".
[[nodiscard]] std::string_view own_glsl(std::string_view name) noexcept;

/// The same as build_cuda() for a source whose kernels take what they like: the code alone.
[[nodiscard]] std::string build_cuda_module(const KernelSource& source, std::string_view architecture);

/// See compile_glsl.
[[nodiscard]] std::string build_glsl(const KernelSource& source, CodeCache& cache);

/// What a compiler said, without the blank end, and of a long list only the first lines: the rest follows from these.
[[nodiscard]] inline std::string shortened_log(std::string log) {
  constexpr auto max_lines = 40;
  log.erase(std::find_if(log.rbegin(), log.rend(), [](char c) { return c != '\n' && c != '\0'; }).base(), log.end());
  std::size_t end = 0;
  for (int line = 0; line < max_lines && end != log.npos; ++line) end = log.find('\n', end == 0 ? 0 : end + 1);
  if (end == log.npos) return log;
  const auto left_out = std::count(log.begin() + static_cast<std::ptrdiff_t>(end), log.end(), '\n');
  return fmt::format("{}\n({} more lines)", log.substr(0, end), left_out);
}

}  // namespace gpumap
