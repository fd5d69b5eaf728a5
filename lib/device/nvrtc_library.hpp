// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "device/unique_fd.hpp"

// What gpumap uses of NVRTC's interface, declared here for the same reason, and checked in the same way, as
// device/cuda_api.hpp.

#define GPUMAP_NVRTC_RESULTS(X) X(NVRTC_SUCCESS, 0)

// X(type of the result, name, parameters...)
#define GPUMAP_NVRTC_FUNCTIONS(X)                                                                              \
  X(const char*, nvrtcGetErrorString, nvrtcResult result)                                                      \
  X(nvrtcResult, nvrtcVersion, int* major, int* minor)                                                         \
  X(nvrtcResult, nvrtcGetNumSupportedArchs, int* count)                                                        \
  X(nvrtcResult, nvrtcGetSupportedArchs, int* architectures)                                                   \
  X(nvrtcResult, nvrtcCreateProgram, nvrtcProgram* program, const char* source, const char* name, int headers, \
    const char* const* header_texts, const char* const* header_names)                                          \
  X(nvrtcResult, nvrtcDestroyProgram, nvrtcProgram* program)                                                   \
  X(nvrtcResult, nvrtcCompileProgram, nvrtcProgram program, int count, const char* const* options)             \
  X(nvrtcResult, nvrtcAddNameExpression, nvrtcProgram program, const char* expression)                         \
  X(nvrtcResult, nvrtcGetLoweredName, nvrtcProgram program, const char* expression, const char** name)         \
  X(nvrtcResult, nvrtcGetProgramLogSize, nvrtcProgram program, std::size_t* bytes)                             \
  X(nvrtcResult, nvrtcGetProgramLog, nvrtcProgram program, char* log)                                          \
  X(nvrtcResult, nvrtcGetPTXSize, nvrtcProgram program, std::size_t* bytes)                                    \
  X(nvrtcResult, nvrtcGetPTX, nvrtcProgram program, char* ptx)                                                 \
  X(nvrtcResult, nvrtcGetCUBINSize, nvrtcProgram program, std::size_t* bytes)                                  \
  X(nvrtcResult, nvrtcGetCUBIN, nvrtcProgram program, char* cubin)

namespace gpumap {

#define GPUMAP_NVRTC_ENUMERATOR(name, value) name = (value),
enum nvrtcResult : unsigned { GPUMAP_NVRTC_RESULTS(GPUMAP_NVRTC_ENUMERATOR) };
#undef GPUMAP_NVRTC_ENUMERATOR

struct _nvrtcProgram;  // NVIDIA's name of it
using nvrtcProgram = _nvrtcProgram*;

/// NVRTC, CUDA's run-time compiler. It needs no GPU.
struct NvrtcLibrary {
  DynamicLibrary builtins;  ///< NVRTC's other half; held where it had to be opened for NVRTC to find it
  DynamicLibrary library;
  std::string path;                    ///< what was opened; empty when none was found
  std::vector<std::string> looked_in;  ///< every name tried, for messages
};

/// Look in the folder GPUMAP_NVRTC_PATH, the loader's path, $CUDA_HOME/lib64 and /usr/local/cuda/lib64, newest first.
[[nodiscard]] NvrtcLibrary open_nvrtc();

/// "found /usr/local/cuda/lib64/libnvrtc.so.13", or what to install.
[[nodiscard]] std::string nvrtc_status();

}  // namespace gpumap
