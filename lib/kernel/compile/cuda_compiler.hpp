// SPDX-License-Identifier: MIT
#pragma once

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

}  // namespace gpumap
