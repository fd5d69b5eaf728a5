// SPDX-License-Identifier: MIT
#include "kernel/compile/nvrtc.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "gpumap/error.hpp"
#include "kernel/cache/cache_key.hpp"

namespace gpumap {
namespace {

std::unique_ptr<Nvrtc> open() {
  auto nvrtc = std::make_unique<Nvrtc>();
  nvrtc->found = open_nvrtc();
  if (!nvrtc->found.library) {
    throw Error(ErrorCode::no_driver,
                fmt::format("NVRTC not found (looked for {}): install NVRTC (cuda-nvrtc of the CUDA Toolkit), set "
                            "GPUMAP_NVRTC_PATH to its folder, or use a .cubin or .comp kernel",
                            fmt::join(nvrtc->found.looked_in, ", ")));
  }
  const auto load = [&nvrtc](const char* name, auto& function) {
    if (nvrtc->found.library.find(name, function)) return;
    throw Error(ErrorCode::no_driver,
                fmt::format("{} has no {}: gpumap needs NVRTC 11.2 or newer", nvrtc->found.path, name));
  };
#define GPUMAP_NVRTC_LOAD(type, name, ...) load(#name, nvrtc->name);
  GPUMAP_NVRTC_FUNCTIONS(GPUMAP_NVRTC_LOAD)
#undef GPUMAP_NVRTC_LOAD

  int major = 0;
  int minor = 0;
  int count = 0;
  nvrtc->nvrtcVersion(&major, &minor);
  nvrtc->version = fmt::format("{}.{}", major, minor);
  nvrtc->identity = identity_of_code(reinterpret_cast<const void*>(nvrtc->nvrtcVersion));
  if (nvrtc->nvrtcGetNumSupportedArchs(&count) == NVRTC_SUCCESS && count > 0) {
    nvrtc->architectures.resize(static_cast<std::size_t>(count));
    nvrtc->nvrtcGetSupportedArchs(nvrtc->architectures.data());
    std::sort(nvrtc->architectures.begin(), nvrtc->architectures.end());
  }
  return nvrtc;
}

}  // namespace

const Nvrtc& Nvrtc::get() {
  static std::mutex mutex;
  // Never closed: another thread may still be compiling while the process exits.
  static const Nvrtc* nvrtc = nullptr;
  const std::lock_guard lock(mutex);
  if (nvrtc == nullptr) nvrtc = open().release();
  return *nvrtc;
}

}  // namespace gpumap
