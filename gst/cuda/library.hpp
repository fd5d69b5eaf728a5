// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "gst/cuda/api.hpp"

namespace gpumap::gst {

/// libgstcuda, opened at run time: it brings libgstgl, EGL, X11 and Wayland into the process, which nobody needs whose
/// GPU has no CUDA. GStreamer's CUDA elements then find the same copy of it.
struct CudaLibrary {
#define GPUMAP_GST_CUDA_MEMBER(result, name, ...) result (*name)(__VA_ARGS__) = nullptr;
  GPUMAP_GST_CUDA(GPUMAP_GST_CUDA_MEMBER)
#undef GPUMAP_GST_CUDA_MEMBER
  /// From GStreamer 1.24 on memory names a stream, on which work may be under way; null before. Their GstCudaStream is
  /// opaque here: headers of 1.22 know none.
  void* (*gst_cuda_memory_get_stream)(GstCudaMemory*) = nullptr;
  void* (*gst_cuda_stream_get_handle)(void* stream) = nullptr;
  void* (*gst_cuda_stream_new)(GstCudaContext*) = nullptr;
  void (*gst_cuda_stream_unref)(void* stream) = nullptr;
  void (*gst_buffer_pool_config_set_cuda_stream)(GstStructure*, void* stream) = nullptr;
  void (*gst_buffer_pool_config_set_cuda_stream_ordered_alloc)(GstStructure*, gboolean) = nullptr;  ///< from 1.26 on
  bool has_streams = false;
  std::string problem;  ///< what is missing and how to get it; empty where it all is there

  /// The process's, initialised. Thread-safe.
  [[nodiscard]] static const CudaLibrary& get();
};

}  // namespace gpumap::gst
