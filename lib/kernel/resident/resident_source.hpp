// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpumap/kernel.hpp"

namespace gpumap {

/// The name of the kernel that resident_source() makes.
inline constexpr const char* resident_function = "gpumap_resident_kernel";

/// CUDA C++ of a kernel that stays on the GPU and runs `functions`, which are kernels of `source`, on the frames that
/// it is asked for. The source stays as it is, line numbers included. Throws Error(not_supported) for what cannot stay:
/// another language, a kernel that waits for its whole grid, one that launches others, and what would go wrong unseen.
[[nodiscard]] KernelSource resident_source(const KernelSource& source, std::span<const std::string> functions);

struct ResidentModule {
  KernelSource source;  ///< that of resident_source()
  std::string code;
};
/// Compiles that for `architecture`, as build_cuda_module() does. Without `functions` the one of `source`, or its only
/// kernel. Throws what resident_source() and build_cuda() do, and Error(not_supported) for a kernel that compiles only
/// as one that is launched.
[[nodiscard]] ResidentModule build_resident(const KernelSource& source, std::vector<std::string> functions,
                                            std::string_view architecture);

/// As C++ calls it: "filters::blur" of PTX's "_ZN7filters4blurE12gpumap_frame", "sum<5>" of
/// "_Z3sumILi5EEv12gpumap_frame"; other names stay as they are.
[[nodiscard]] std::string name_in_source(const std::string& ptx_name);

}  // namespace gpumap
