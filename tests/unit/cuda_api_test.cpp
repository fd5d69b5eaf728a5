// SPDX-License-Identifier: MIT
//
// gpumap's own declarations of CUDA's driver and of NVRTC against NVIDIA's headers: it compiles where they agree. Built
// where Meson finds cuda.h and nvrtc.h, of CUDA 12 or newer.

// Ours first: cuda.h makes macros of names that are used there.
#include "device/cuda_api.hpp"
#include "device/nvrtc_library.hpp"

namespace gpumap::ours {

#define OURS(name, value) constexpr long name##_value = value;
GPUMAP_CUDA_RESULTS(OURS)
GPUMAP_CUDA_DEVICE_ATTRIBUTES(OURS)
GPUMAP_CUDA_FUNCTION_ATTRIBUTES(OURS)
GPUMAP_CUDA_JIT_OPTIONS(OURS)
GPUMAP_CUDA_MEMORY_HANDLES(OURS)
GPUMAP_CUDA_RESOURCES(OURS)
GPUMAP_CUDA_ATTRIBUTE_VALUES(OURS)
GPUMAP_CUDA_FLAGS(OURS)
GPUMAP_NVRTC_RESULTS(OURS)
#undef OURS

#define OURS(name, symbol, ...) using symbol = CUresult(__VA_ARGS__);
GPUMAP_CUDA_MANDATORY(OURS)
GPUMAP_CUDA_STREAM_MEMORY(OURS)
GPUMAP_CUDA_EVENT_TIMES(OURS)
GPUMAP_CUDA_ENUMERATE(OURS)
GPUMAP_CUDA_PARAMETERS(OURS)
GPUMAP_CUDA_GRAPHS(OURS)
GPUMAP_CUDA_PARTITIONS(OURS)
#undef OURS

#define OURS(type, name, ...) using name = type(__VA_ARGS__);
GPUMAP_NVRTC_FUNCTIONS(OURS)
#undef OURS

}  // namespace gpumap::ours

#include <cuda.h>
#include <nvrtc.h>

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "compare_headers.hpp"

// What older headers lack, or call by another name. libcuda has had both of these symbols for longer.
#if CUDA_VERSION < 12090
#define CUDA_ERROR_CONTAINED 226
#define CUDA_ERROR_TENSOR_MEMORY_LEAK 721
#endif
#if CUDA_VERSION < 13000
#define cuDeviceGetUuid cuDeviceGetUuid_v2
#define cuEventElapsedTime cuEventElapsedTime_v2
#endif

#define OURS gpumap
namespace theirs {

#define SAME_VALUE(name, value) \
  static_assert(gpumap::ours::name##_value == static_cast<long>(name), #name " has another value in NVIDIA's header");
GPUMAP_CUDA_RESULTS(SAME_VALUE)
GPUMAP_CUDA_DEVICE_ATTRIBUTES(SAME_VALUE)
GPUMAP_CUDA_FUNCTION_ATTRIBUTES(SAME_VALUE)
GPUMAP_CUDA_JIT_OPTIONS(SAME_VALUE)
GPUMAP_CUDA_MEMORY_HANDLES(SAME_VALUE)
GPUMAP_CUDA_RESOURCES(SAME_VALUE)
GPUMAP_CUDA_ATTRIBUTE_VALUES(SAME_VALUE)
GPUMAP_CUDA_FLAGS(SAME_VALUE)
GPUMAP_NVRTC_RESULTS(SAME_VALUE)

SAME_ENUM(CUresult)
SAME_ENUM(CUdevice_attribute)
SAME_ENUM(CUfunction_attribute)
SAME_ENUM(CUjit_option)
SAME_ENUM(CUexternalMemoryHandleType)
SAME_ENUM(CUdevResourceType)
SAME_ENUM(nvrtcResult)

// Before the structs that point to them.
THEIRS(CUctx_st)
THEIRS(CUmod_st)
THEIRS(CUfunc_st)
THEIRS(CUstream_st)
THEIRS(CUevent_st)
THEIRS(CUextMemory_st)
THEIRS(CUgraph_st)
THEIRS(CUgraphNode_st)
THEIRS(CUgraphExec_st)
THEIRS(CUkern_st)
THEIRS(CUgreenCtx_st)
THEIRS(CUdevResourceDesc_st)
THEIRS(_nvrtcProgram)

SAME_STRUCT(CUuuid)
SAME_MEMBER(CUuuid, bytes)
SAME_STRUCT(CUDA_EXTERNAL_MEMORY_HANDLE_DESC)
SAME_MEMBER(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, type)
SAME_PLACE(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle)
SAME_PART(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle.fd)
SAME_PART(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle.win32.handle)
SAME_PART(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle.win32.name)
SAME_PART(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle.nvSciBufObject)
SAME_MEMBER(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size)
SAME_MEMBER(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, flags)
SAME_MEMBER(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, reserved)
SAME_STRUCT(CUDA_EXTERNAL_MEMORY_BUFFER_DESC)
SAME_MEMBER(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, offset)
SAME_MEMBER(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size)
SAME_MEMBER(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, flags)
SAME_MEMBER(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, reserved)
SAME_STRUCT(CUDA_KERNEL_NODE_PARAMS)
SAME_MEMBER(CUDA_KERNEL_NODE_PARAMS, func)
SAME_MEMBER(CUDA_KERNEL_NODE_PARAMS, gridDimX)
SAME_MEMBER(CUDA_KERNEL_NODE_PARAMS, gridDimY)
SAME_MEMBER(CUDA_KERNEL_NODE_PARAMS, gridDimZ)
SAME_MEMBER(CUDA_KERNEL_NODE_PARAMS, blockDimX)
SAME_MEMBER(CUDA_KERNEL_NODE_PARAMS, blockDimY)
SAME_MEMBER(CUDA_KERNEL_NODE_PARAMS, blockDimZ)
SAME_MEMBER(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes)
SAME_MEMBER(CUDA_KERNEL_NODE_PARAMS, kernelParams)
SAME_MEMBER(CUDA_KERNEL_NODE_PARAMS, extra)
SAME_MEMBER(CUDA_KERNEL_NODE_PARAMS, kern)
SAME_MEMBER(CUDA_KERNEL_NODE_PARAMS, ctx)
// Its alignment is that of what newer headers put at its end.
THEIRS(CUdevResource)
static_assert(sizeof(OURS::CUdevResource) == sizeof(::CUdevResource));
SAME_MEMBER(CUdevResource, type)
SAME_PLACE(CUdevResource, sm.smCount)

SAME_ALIAS(CUdevice)
SAME_ALIAS(CUdeviceptr)
SAME_ALIAS(CUcontext)
SAME_ALIAS(CUmodule)
SAME_ALIAS(CUfunction)
SAME_ALIAS(CUstream)
SAME_ALIAS(CUevent)
SAME_ALIAS(CUexternalMemory)
SAME_ALIAS(CUgraph)
SAME_ALIAS(CUgraphNode)
SAME_ALIAS(CUgraphExec)
SAME_ALIAS(CUkernel)
SAME_ALIAS(CUgreenCtx)
SAME_ALIAS(CUdevResourceDesc)
SAME_ALIAS(nvrtcProgram)

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)
#define SAME_FUNCTION(name, symbol, ...)                                                      \
  static_assert(std::string_view(TEXT(name)) == #symbol, #name " stands for another symbol"); \
  static_assert(std::is_same_v<Theirs<gpumap::ours::symbol>::type, decltype(::symbol)>, #symbol " differs");
GPUMAP_CUDA_MANDATORY(SAME_FUNCTION)
GPUMAP_CUDA_STREAM_MEMORY(SAME_FUNCTION)
GPUMAP_CUDA_GRAPHS(SAME_FUNCTION)
#if CUDA_VERSION >= 12080
GPUMAP_CUDA_EVENT_TIMES(SAME_FUNCTION)
#endif
#if CUDA_VERSION >= 12040
GPUMAP_CUDA_ENUMERATE(SAME_FUNCTION)
GPUMAP_CUDA_PARAMETERS(SAME_FUNCTION)
GPUMAP_CUDA_PARTITIONS(SAME_FUNCTION)
#endif

#define SAME_NVRTC_FUNCTION(result, name, ...) \
  static_assert(std::is_same_v<Theirs<gpumap::ours::name>::type, decltype(::name)>, #name " differs");
GPUMAP_NVRTC_FUNCTIONS(SAME_NVRTC_FUNCTION)

}  // namespace theirs

int main() {}
