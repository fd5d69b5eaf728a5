// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "gpumap/device.hpp"
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

/// `device`'s context as libgstcuda knows it (borrowed; the process keeps it); null where libgstcuda or CUDA is
/// missing. Thread-safe.
[[nodiscard]] GstCudaContext* shared_cuda_context(const Device& device);

/// True for a GstCudaContext of the same CUDA context, whichever library wrapped it.
[[nodiscard]] bool is_shared_context(const Device& device, GstCudaContext* context);

/// Makes the context current for its lifetime.
class CudaScope {
 public:
  /// Throws Error(device_lost).
  explicit CudaScope(GstCudaContext* context);
  ~CudaScope();
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;
};

}  // namespace gpumap::gst
