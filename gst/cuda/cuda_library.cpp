// SPDX-License-Identifier: MIT
#include "gst/cuda/cuda_library.hpp"

#include "gst/runtime_library.hpp"

namespace gpumap::gst {

namespace {

constexpr const char* file_name = "libgstcuda-1.0.so.0";

CudaLibrary open_library() {
  CudaLibrary made;
  RuntimeLibrary library(file_name);
#define GPUMAP_GST_CUDA_LOAD(result, name, ...) library.find(#name, made.name);
  GPUMAP_GST_CUDA(GPUMAP_GST_CUDA_LOAD)
  made.problem = library.problem("libgstreamer-plugins-bad1.0-0 and gstreamer1.0-plugins-bad", "1.22");
  if (!made.problem.empty()) return made;
  GPUMAP_GST_CUDA_STREAMS(GPUMAP_GST_CUDA_LOAD)
  made.has_streams = library.problem("", "1.24").empty();
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
