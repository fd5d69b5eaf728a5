// SPDX-License-Identifier: MIT
#pragma once

#define GST_USE_UNSTABLE_API  // libgstcuda calls itself unstable: what is used of it is the same from 1.22 to 1.26
#include <gst/cuda/gstcudabufferpool.h>
#include <gst/cuda/gstcudacontext.h>
#include <gst/cuda/gstcudaloader.h>
#include <gst/cuda/gstcudamemory.h>
#include <gst/cuda/gstcudautils.h>

#include <string>

#define GPUMAP_GST_CUDA(X)         \
  X(gst_cuda_load_library)         \
  X(gst_cuda_memory_init_once)     \
  X(gst_is_cuda_memory)            \
  X(gst_cuda_context_new_wrapped)  \
  X(gst_cuda_context_get_handle)   \
  X(gst_cuda_context_push)         \
  X(gst_cuda_context_pop)          \
  X(gst_cuda_buffer_pool_get_type) \
  X(gst_cuda_buffer_pool_new)      \
  X(gst_cuda_handle_context_query) \
  X(gst_context_new_cuda_context)  \
  X(CuGetErrorName)                \
  X(CuMemcpy2DAsync)               \
  X(CuStreamSynchronize)

namespace gpumap::gst {

/// libgstcuda, opened at run time: it brings libgstgl, EGL, X11 and Wayland into the process, which nobody needs whose
/// GPU has no CUDA. GStreamer's CUDA elements then find the same copy of it.
struct CudaLibrary {
#define GPUMAP_GST_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
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
