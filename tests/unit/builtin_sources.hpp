// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "gpumap/kernel.hpp"

namespace gpumap {

/// All that a built-in launches, whether one kernel or several, but for those that are made for one size or format.
inline std::vector<KernelSource> sources_of(const Builtin& builtin, Backend backend) {
  if (builtin.kernels.empty()) return {source_of(builtin, backend)};
  std::vector<KernelSource> sources;
  for (const KernelText& kernel : builtin.kernels) sources.push_back(source_of(kernel, backend));
  return sources;
}

}  // namespace gpumap
