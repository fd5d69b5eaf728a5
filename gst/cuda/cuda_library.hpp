// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "gst/cuda/gst_cuda_api.hpp"

namespace gpumap::gst {

/// libgstcuda, opened at run time: it brings libgstgl, EGL, X11 and Wayland into the process, which nobody needs whose
/// GPU has no CUDA. GStreamer's CUDA elements then find the same copy of it.
struct CudaLibrary {
#define GPUMAP_GST_CUDA_MEMBER(result, name, ...) result (*name)(__VA_ARGS__) = nullptr;
  GPUMAP_GST_CUDA(GPUMAP_GST_CUDA_MEMBER)
  GPUMAP_GST_CUDA_STREAMS(GPUMAP_GST_CUDA_MEMBER)  // all of them, where has_streams
  GPUMAP_GST_CUDA_ORDER(GPUMAP_GST_CUDA_MEMBER)    // null where GStreamer is older than 1.26
#undef GPUMAP_GST_CUDA_MEMBER
  bool has_streams = false;
  std::string problem;  ///< what is missing and how to get it; empty where it all is there

  /// The process's, initialised. Thread-safe.
  [[nodiscard]] static const CudaLibrary& get();
};

}  // namespace gpumap::gst
