// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "device/nvrtc_library.hpp"
#include "kernel/compile/nvrtc_api.hpp"

namespace gpumap {

/// CUDA's run-time compiler, opened at run time. Thread safety: immutable; NVRTC itself takes calls from any thread.
struct Nvrtc {
#define GPUMAP_NVRTC_MEMBER(type, name, ...) type (*name)(__VA_ARGS__) = nullptr;
  GPUMAP_NVRTC_FUNCTIONS(GPUMAP_NVRTC_MEMBER)
#undef GPUMAP_NVRTC_MEMBER
  NvrtcLibrary found;
  std::vector<int> architectures;  ///< 75, 80, ...: what it compiles for, rising
  std::string version;             ///< "13.0"
  std::string identity;            ///< of its file, as identity_of_code() gives it: versions lack the patch level

  /// The process's table. Throws Error(no_driver) saying what is missing; tries again next time.
  [[nodiscard]] static const Nvrtc& get();
};

}  // namespace gpumap
