// SPDX-License-Identifier: MIT
#pragma once

#if GPUMAP_HAVE_CUDA

#include <nvrtc.h>

#include <string>
#include <vector>

#include "device/nvrtc_library.hpp"

#define GPUMAP_NVRTC_FUNCTIONS(X) \
  X(nvrtcGetErrorString)          \
  X(nvrtcVersion)                 \
  X(nvrtcGetNumSupportedArchs)    \
  X(nvrtcGetSupportedArchs)       \
  X(nvrtcCreateProgram)           \
  X(nvrtcDestroyProgram)          \
  X(nvrtcCompileProgram)          \
  X(nvrtcAddNameExpression)       \
  X(nvrtcGetLoweredName)          \
  X(nvrtcGetProgramLogSize)       \
  X(nvrtcGetProgramLog)           \
  X(nvrtcGetPTXSize)              \
  X(nvrtcGetPTX)                  \
  X(nvrtcGetCUBINSize)            \
  X(nvrtcGetCUBIN)

namespace gpumap {

/// CUDA's run-time compiler, opened at run time. Thread safety: immutable; NVRTC itself takes calls from any thread.
struct Nvrtc {
#define GPUMAP_NVRTC_MEMBER(name) decltype(&::name) name = nullptr;
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

#endif  // GPUMAP_HAVE_CUDA
