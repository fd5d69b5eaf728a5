// SPDX-License-Identifier: MIT
#include "gst/cuda/library.hpp"

#include <dlfcn.h>

namespace gpumap::gst {

namespace {

constexpr const char* file_name = "libgstcuda-1.0.so.0";

template <typename Function>
bool find(void* library, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  return function != nullptr;
}

CudaLibrary open_library() {
  CudaLibrary made;
  // Its types stay registered with GLib: it must stay too.
  void* library = dlopen(file_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    made.problem =
        std::string(file_name) + " was not found: install libgstreamer-plugins-bad1.0-0 and gstreamer1.0-plugins-bad";
    return made;
  }
  std::string missing;
#define GPUMAP_GST_CUDA_LOAD(result, name, ...) \
  if (!find(library, #name, made.name)) missing += " " #name;
  GPUMAP_GST_CUDA(GPUMAP_GST_CUDA_LOAD)
  if (!missing.empty()) {
    made.problem = std::string(file_name) + " lacks" + missing + ": install GStreamer 1.22 or newer";
    return made;
  }
  GPUMAP_GST_CUDA_STREAMS(GPUMAP_GST_CUDA_LOAD)
  made.has_streams = missing.empty();
  GPUMAP_GST_CUDA_ORDER(GPUMAP_GST_CUDA_LOAD)
#undef GPUMAP_GST_CUDA_LOAD
  // Any other call of a libgstcuda that has not loaded libcuda ends the process.
  if (made.gst_cuda_load_library() == 0) {
    made.problem =
        std::string(file_name) + " cannot load libcuda: GST_DEBUG=cudaloader:4 tells what it misses; update the driver";
    return made;
  }
  made.gst_cuda_memory_init_once();
  return made;
}

}  // namespace

const CudaLibrary& CudaLibrary::get() {
  static const auto* const library = new CudaLibrary(open_library());
  return *library;
}

}  // namespace gpumap::gst
