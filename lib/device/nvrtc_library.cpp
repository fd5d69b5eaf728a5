// SPDX-License-Identifier: MIT
#include "device/nvrtc_library.hpp"

#include <fmt/format.h>
#include <cstdlib>
#include <filesystem>
#include <mutex>

namespace gpumap {
namespace {

std::vector<std::string> candidates() {
  std::vector<std::string> folders;
  if (const char* folder = std::getenv("GPUMAP_NVRTC_PATH"); folder != nullptr && *folder != '\0') {
    folders.push_back(std::string(folder) + "/");
  }
  folders.emplace_back();  // the loader's own path
  if (const char* home = std::getenv("CUDA_HOME"); home != nullptr && *home != '\0') {
    folders.push_back(std::string(home) + "/lib64/");
  }
  folders.emplace_back("/usr/local/cuda/lib64/");
  std::vector<std::string> names;
  for (const auto& folder : folders) {
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"}) {
      names.push_back(folder + name);
    }
  }
  return names;
}

/// NVRTC opens libnvrtc-builtins by its bare name when it first compiles, so outside the loader's path it misses the
/// one that lies beside it. A library that is open already is found by that name.
DynamicLibrary open_builtins_beside(const std::filesystem::path& nvrtc) {
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(nvrtc.parent_path(), missing)) {
    if (entry.path().filename().string().rfind("libnvrtc-builtins.so", 0) != 0) continue;
    if (DynamicLibrary builtins(entry.path()); builtins) return builtins;
  }
  return {};
}

}  // namespace

NvrtcLibrary open_nvrtc() {
  NvrtcLibrary found;
  for (const auto& name : candidates()) {
    found.looked_in.push_back(name);
    found.library = DynamicLibrary(name);
    if (found.library) {
      found.path = name;
      if (name.find('/') != std::string::npos) found.builtins = open_builtins_beside(name);
      break;
    }
  }
  return found;
}

std::string nvrtc_status() {
  // Kept once found: it is big to load, and does not clean up after itself when unloaded.
  static std::mutex mutex;
  static auto* const nvrtc = new NvrtcLibrary;
  const std::lock_guard lock(mutex);
  if (!nvrtc->library) *nvrtc = open_nvrtc();
  if (nvrtc->library) return fmt::format("found {}: CUDA C++ kernels compile at run time", nvrtc->path);
  return "libnvrtc.so.13 or .12 was not found: install NVRTC (cuda-nvrtc of the CUDA Toolkit), or point "
         "GPUMAP_NVRTC_PATH at its folder, to compile CUDA C++ kernels at run time";
}

}  // namespace gpumap
