// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "device/dynamic_library.hpp"

namespace gpumap {

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
