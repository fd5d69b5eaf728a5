// SPDX-License-Identifier: MIT
#pragma once

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

/// The same as build_cuda() for a source whose kernels take what they like: the code alone.
[[nodiscard]] std::string build_cuda_module(const KernelSource& source, std::string_view architecture);

}  // namespace gpumap
