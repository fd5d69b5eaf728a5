// SPDX-License-Identifier: MIT
//
// What gpumap uses of libgstcuda, declared here: its own headers include the CUDA Toolkit's, and what is used of it is
// the same from 1.22 to 1.26. Names are its own. tests/unit/gst_cuda_api_test.cpp compares it with the headers where
// they are.
//
// In a namespace, so that a file may include libgstcuda's headers too. Let it include this first: they make macros of
// names that are used here.
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <cstddef>

// X(result, name, parameters...)
#define GPUMAP_GST_CUDA(X)                                                                                  \
  X(gboolean, gst_cuda_load_library, void)                                                                  \
  X(void, gst_cuda_memory_init_once, void)                                                                  \
  X(gboolean, gst_is_cuda_memory, GstMemory* memory)                                                        \
  X(GstCudaContext*, gst_cuda_context_new_wrapped, CUcontext context, int device)                           \
  X(gpointer, gst_cuda_context_get_handle, GstCudaContext* context)                                         \
  X(gboolean, gst_cuda_context_push, GstCudaContext* context)                                               \
  X(gboolean, gst_cuda_context_pop, CUcontext* context)                                                     \
  X(GType, gst_cuda_buffer_pool_get_type, void)                                                             \
  X(GstBufferPool*, gst_cuda_buffer_pool_new, GstCudaContext* context)                                      \
  X(gboolean, gst_cuda_handle_context_query, GstElement* element, GstQuery* query, GstCudaContext* context) \
  X(GstContext*, gst_context_new_cuda_context, GstCudaContext* context)                                     \
  X(CUresult, CuGetErrorName, CUresult error, const char** text)                                            \
  X(CUresult, CuMemcpy2DAsync, const CUDA_MEMCPY2D* copy, CUstream stream)                                  \
  X(CUresult, CuStreamSynchronize, CUstream stream)

/// Optional group, from GStreamer 1.24 on: memory names a stream, on which work may be under way.
#define GPUMAP_GST_CUDA_STREAMS(X)                                                                                     \
  X(GstCudaStream*, gst_cuda_memory_get_stream, GstCudaMemory* memory)                                                 \
  X(CUstream, gst_cuda_stream_get_handle, GstCudaStream* stream)                                                       \
  X(GstCudaStream*, gst_cuda_stream_new, GstCudaContext* context)                                                      \
  X(GstCudaStream*, gst_cuda_stream_ref, GstCudaStream* stream)                                                        \
  X(void, gst_cuda_stream_unref, GstCudaStream* stream)                                                                \
  X(GstMemory*, gst_cuda_allocator_alloc_wrapped, GstCudaAllocator* allocator, GstCudaContext* context,                \
    GstCudaStream* stream, const GstVideoInfo* layout, unsigned long long address, gpointer user, GDestroyNotify gone) \
  X(void, gst_buffer_pool_config_set_cuda_stream, GstStructure* config, GstCudaStream* stream)

/// Optional group, from GStreamer 1.26 on: a pool says whether it allocates in a stream's order.
#define GPUMAP_GST_CUDA_ORDER(X) \
  X(void, gst_buffer_pool_config_set_cuda_stream_ordered_alloc, GstStructure* config, gboolean ordered)

namespace gpumap::gst {

// Of the CUDA driver, which libgstcuda passes calls on to.
enum CUresult : unsigned { CUDA_SUCCESS = 0 };
enum CUmemorytype : unsigned { CU_MEMORYTYPE_DEVICE = 2 };
struct CUctx_st;
using CUcontext = CUctx_st*;
struct CUstream_st;
using CUstream = CUstream_st*;
struct CUarray_st;

/// Rows to copy; offsets, pitches and widths in bytes. All that is unused is 0.
struct CUDA_MEMCPY2D {
  std::size_t srcXInBytes;
  std::size_t srcY;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  unsigned long long srcDevice;
  CUarray_st* srcArray;
  std::size_t srcPitch;
  std::size_t dstXInBytes;
  std::size_t dstY;
  CUmemorytype dstMemoryType;
  void* dstHost;
  unsigned long long dstDevice;
  CUarray_st* dstArray;
  std::size_t dstPitch;
  std::size_t WidthInBytes;
  std::size_t Height;
};

/// A GObject.
struct GstCudaContext;
/// From GStreamer 1.24 on.
struct GstCudaStream;
/// A GstAllocator; null is the library's own.
struct GstCudaAllocator;

/// How each begins; libgstcuda makes them. The context is borrowed.
struct GstCudaMemory {
  GstMemory mem;
  GstCudaContext* context;
  GstVideoInfo info;
};
struct GstCudaBufferPool {
  GstBufferPool parent;
  GstCudaContext* context;
};

inline constexpr const char* cuda_memory_type = "gst.cuda.memory";
inline constexpr const char* cuda_context_type = "gst.cuda.context";
/// With it a map gives the address on the GPU.
inline constexpr unsigned map_for_cuda = GST_MAP_FLAG_LAST << 1;
/// A flag of memory, from GStreamer 1.24 on: work that fills it may be under way on its stream.
inline constexpr unsigned memory_needs_sync = GST_MEMORY_FLAG_LAST << 2;

}  // namespace gpumap::gst
