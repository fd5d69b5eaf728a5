// SPDX-License-Identifier: MIT
//
// gpumap's own declarations of libgstcuda against its headers: it compiles where they agree. Built where Meson finds
// them, and cuda.h and cudaGL.h, which they include.

// Ours first: the headers make macros of names that are used there.
#include "gst/cuda/gst_cuda_api.hpp"

namespace gpumap::gst::ours {

#define OURS(result, name, ...) using name = result(__VA_ARGS__);
GPUMAP_GST_CUDA(OURS)
GPUMAP_GST_CUDA_STREAMS(OURS)
GPUMAP_GST_CUDA_ORDER(OURS)
#undef OURS

}  // namespace gpumap::gst::ours

#define GST_USE_UNSTABLE_API
#include <gst/cuda/gstcudabufferpool.h>
#include <gst/cuda/gstcudacontext.h>
#include <gst/cuda/gstcudaloader.h>
#include <gst/cuda/gstcudamemory.h>
#include <gst/cuda/gstcudautils.h>
#if GST_CHECK_VERSION(1, 24, 0)
#include <gst/cuda/gstcudastream.h>
#endif

#include <string_view>

#include "compare_headers.hpp"

#define OURS gpumap::gst
namespace theirs {

SAME_ENUM(CUresult)
SAME_ENUM(CUmemorytype)
static_assert(int{gpumap::gst::CUDA_SUCCESS} == int{::CUDA_SUCCESS});
static_assert(int{gpumap::gst::CU_MEMORYTYPE_DEVICE} == int{::CU_MEMORYTYPE_DEVICE});
static_assert(gpumap::gst::cuda_memory_type == std::string_view(GST_CUDA_MEMORY_TYPE_NAME));
static_assert(gpumap::gst::cuda_context_type == std::string_view(GST_CUDA_CONTEXT_TYPE));
static_assert(gpumap::gst::map_for_cuda == static_cast<unsigned>(GST_MAP_CUDA));

THEIRS(CUctx_st)
THEIRS(CUstream_st)
THEIRS(CUarray_st)
THEIRS(GstCudaContext)
THEIRS(GstCudaMemory)
SAME_ALIAS(CUcontext)
SAME_ALIAS(CUstream)

SAME_STRUCT(CUDA_MEMCPY2D)
SAME_MEMBER(CUDA_MEMCPY2D, srcXInBytes)
SAME_MEMBER(CUDA_MEMCPY2D, srcY)
SAME_MEMBER(CUDA_MEMCPY2D, srcMemoryType)
SAME_MEMBER(CUDA_MEMCPY2D, srcHost)
SAME_MEMBER(CUDA_MEMCPY2D, srcDevice)
SAME_MEMBER(CUDA_MEMCPY2D, srcArray)
SAME_MEMBER(CUDA_MEMCPY2D, srcPitch)
SAME_MEMBER(CUDA_MEMCPY2D, dstXInBytes)
SAME_MEMBER(CUDA_MEMCPY2D, dstY)
SAME_MEMBER(CUDA_MEMCPY2D, dstMemoryType)
SAME_MEMBER(CUDA_MEMCPY2D, dstHost)
SAME_MEMBER(CUDA_MEMCPY2D, dstDevice)
SAME_MEMBER(CUDA_MEMCPY2D, dstArray)
SAME_MEMBER(CUDA_MEMCPY2D, dstPitch)
SAME_MEMBER(CUDA_MEMCPY2D, WidthInBytes)
SAME_MEMBER(CUDA_MEMCPY2D, Height)
SAME_MEMBER(GstCudaMemory, mem)
SAME_MEMBER(GstCudaMemory, context)
SAME_MEMBER(GstCudaMemory, info)
SAME_MEMBER(GstCudaBufferPool, parent)
SAME_MEMBER(GstCudaBufferPool, context)

#define SAME_FUNCTION(result, name, ...) \
  static_assert(std::is_same_v<Theirs<gpumap::gst::ours::name>::type, decltype(::name)>, #name " differs");
GPUMAP_GST_CUDA(SAME_FUNCTION)
#if GST_CHECK_VERSION(1, 24, 0)
THEIRS(GstCudaAllocator)
THEIRS(GstCudaStream)
static_assert(gpumap::gst::memory_needs_sync == static_cast<unsigned>(GST_CUDA_MEMORY_TRANSFER_NEED_SYNC));
GPUMAP_GST_CUDA_STREAMS(SAME_FUNCTION)
#endif
#if GST_CHECK_VERSION(1, 26, 0)
GPUMAP_GST_CUDA_ORDER(SAME_FUNCTION)
#endif

}  // namespace theirs

int main() {}
