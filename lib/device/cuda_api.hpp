// SPDX-License-Identifier: MIT
//
// What gpumap uses of the CUDA driver's interface, declared here, so that it is built with CUDA wherever it is built:
// libcuda is opened at run time, and the CUDA Toolkit is not needed. Names and values are NVIDIA's.
// tests/unit/cuda_api_test.cpp compares all of it with cuda.h where there is one.
//
// In namespace gpumap, so that a file may include cuda.h too. Let it include this first: cuda.h makes macros of names
// that are used here.
#pragma once

#include <cstddef>
#include <cstdint>

// Constants are lists, X(NAME, value), as the check goes through them too.
#define GPUMAP_CUDA_RESULTS(X)             \
  X(CUDA_SUCCESS, 0)                       \
  X(CUDA_ERROR_INVALID_VALUE, 1)           \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)           \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)     \
  X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)  \
  X(CUDA_ERROR_CONTAINED, 226)             \
  X(CUDA_ERROR_INVALID_HANDLE, 400)        \
  X(CUDA_ERROR_NOT_FOUND, 500)             \
  X(CUDA_ERROR_NOT_READY, 600)             \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)       \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)        \
  X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)  \
  X(CUDA_ERROR_ASSERT, 710)                \
  X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)  \
  X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)   \
  X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)    \
  X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717) \
  X(CUDA_ERROR_INVALID_PC, 718)            \
  X(CUDA_ERROR_LAUNCH_FAILED, 719)         \
  X(CUDA_ERROR_TENSOR_MEMORY_LEAK, 721)    \
  X(CUDA_ERROR_MPS_CLIENT_TERMINATED, 810) \
  X(CUDA_ERROR_EXTERNAL_DEVICE, 911)       \
  X(CUDA_ERROR_UNKNOWN, 999)

#define GPUMAP_CUDA_DEVICE_ATTRIBUTES(X)                      \
  X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)             \
  X(CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 17)              \
  X(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 33)                       \
  X(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 34)                    \
  X(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 50)                    \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)         \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)         \
  X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 118) \
  X(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122)

#define GPUMAP_CUDA_FUNCTION_ATTRIBUTES(X)              \
  X(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0)         \
  X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8) \
  X(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 11)       \
  X(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 12)      \
  X(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 13)

#define GPUMAP_CUDA_JIT_OPTIONS(X) \
  X(CU_JIT_ERROR_LOG_BUFFER, 5)    \
  X(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6)

#define GPUMAP_CUDA_MEMORY_HANDLES(X) X(CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, 1)

#define GPUMAP_CUDA_RESOURCES(X) X(CU_DEV_RESOURCE_TYPE_SM, 1)

// What an attribute of a device is compared with.
#define GPUMAP_CUDA_ATTRIBUTE_VALUES(X) X(CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER, 100)

#define GPUMAP_CUDA_FLAGS(X)          \
  X(CU_STREAM_NON_BLOCKING, 1)        \
  X(CU_EVENT_DEFAULT, 0)              \
  X(CU_EVENT_DISABLE_TIMING, 2)       \
  X(CU_STREAM_WAIT_VALUE_GEQ, 0)      \
  X(CU_STREAM_WRITE_VALUE_DEFAULT, 0) \
  X(CU_MEMHOSTALLOC_PORTABLE, 1)      \
  X(CU_MEMHOSTALLOC_DEVICEMAP, 2)     \
  X(CU_GREEN_CTX_DEFAULT_STREAM, 1)   \
  X(CUDA_EXTERNAL_MEMORY_DEDICATED, 1)

// X(name, symbol, parameters...): all of them return a CUresult. The symbol is what the name stands for in CUDA 13: of
// many functions libcuda has an older one too, which takes something else.
#define GPUMAP_CUDA_MANDATORY(X)                                                                                     \
  X(cuInit, cuInit, unsigned flags)                                                                                  \
  X(cuDriverGetVersion, cuDriverGetVersion, int* version)                                                            \
  X(cuGetErrorName, cuGetErrorName, CUresult error, const char** text)                                               \
  X(cuGetErrorString, cuGetErrorString, CUresult error, const char** text)                                           \
  X(cuDeviceGetCount, cuDeviceGetCount, int* count)                                                                  \
  X(cuDeviceGet, cuDeviceGet, CUdevice* device, int ordinal)                                                         \
  X(cuDeviceGetName, cuDeviceGetName, char* name, int bytes, CUdevice device)                                        \
  X(cuDeviceGetUuid, cuDeviceGetUuid_v2, CUuuid* uuid, CUdevice device)                                              \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, int* value, CUdevice_attribute attribute, CUdevice device)           \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, std::size_t* bytes, CUdevice device)                                      \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, CUcontext* context, CUdevice device)                         \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, CUdevice device)                                        \
  X(cuCtxGetCurrent, cuCtxGetCurrent, CUcontext* context)                                                            \
  X(cuCtxGetDevice, cuCtxGetDevice, CUdevice* device)                                                                \
  X(cuCtxPushCurrent, cuCtxPushCurrent_v2, CUcontext context)                                                        \
  X(cuCtxPopCurrent, cuCtxPopCurrent_v2, CUcontext* context)                                                         \
  X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, int* least, int* greatest)                             \
  X(cuStreamCreate, cuStreamCreate, CUstream* stream, unsigned flags)                                                \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, CUstream* stream, unsigned flags, int priority)          \
  X(cuStreamDestroy, cuStreamDestroy_v2, CUstream stream)                                                            \
  X(cuStreamQuery, cuStreamQuery, CUstream stream)                                                                   \
  X(cuStreamSynchronize, cuStreamSynchronize, CUstream stream)                                                       \
  X(cuStreamWaitEvent, cuStreamWaitEvent, CUstream stream, CUevent event, unsigned flags)                            \
  X(cuEventCreate, cuEventCreate, CUevent* event, unsigned flags)                                                    \
  X(cuEventDestroy, cuEventDestroy_v2, CUevent event)                                                                \
  X(cuEventRecord, cuEventRecord, CUevent event, CUstream stream)                                                    \
  X(cuEventQuery, cuEventQuery, CUevent event)                                                                       \
  X(cuMemAlloc, cuMemAlloc_v2, CUdeviceptr* address, std::size_t bytes)                                              \
  X(cuMemFree, cuMemFree_v2, CUdeviceptr address)                                                                    \
  X(cuMemHostAlloc, cuMemHostAlloc, void** memory, std::size_t bytes, unsigned flags)                                \
  X(cuMemFreeHost, cuMemFreeHost, void* memory)                                                                      \
  X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, CUdeviceptr* address, void* memory, unsigned flags)     \
  X(cuMemcpyAsync, cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream)              \
  X(cuMemsetD32Async, cuMemsetD32Async, CUdeviceptr to, unsigned value, std::size_t words, CUstream stream)          \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, void* to, CUdeviceptr from, std::size_t bytes, CUstream stream)         \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream)   \
  X(cuModuleLoadDataEx, cuModuleLoadDataEx, CUmodule* module, const void* image, unsigned count,                     \
    CUjit_option* options, void** values)                                                                            \
  X(cuModuleGetFunction, cuModuleGetFunction, CUfunction* function, CUmodule module, const char* name)               \
  X(cuModuleUnload, cuModuleUnload, CUmodule module)                                                                 \
  X(cuFuncSetAttribute, cuFuncSetAttribute, CUfunction function, CUfunction_attribute attribute, int value)          \
  X(cuFuncGetAttribute, cuFuncGetAttribute, int* value, CUfunction_attribute attribute, CUfunction function)         \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, int* blocks,           \
    CUfunction function, int threads, std::size_t shared_bytes)                                                      \
  X(cuLaunchKernel, cuLaunchKernel, CUfunction function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,    \
    unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes, CUstream stream,              \
    void** arguments, void** extra)                                                                                  \
  X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, CUfunction function, unsigned blocks_x, unsigned blocks_y, \
    unsigned blocks_z, unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,            \
    CUstream stream, void** arguments)                                                                               \
  X(cuImportExternalMemory, cuImportExternalMemory, CUexternalMemory* memory,                                        \
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* handle)                                                                  \
  X(cuExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer, CUdeviceptr* address, CUexternalMemory memory, \
    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* range)                                                                   \
  X(cuDestroyExternalMemory, cuDestroyExternalMemory, CUexternalMemory memory)

/// Optional group: without it a timeline polls events instead of a word in host memory.
#define GPUMAP_CUDA_STREAM_MEMORY(X)                                                                          \
  X(cuStreamWriteValue64, cuStreamWriteValue64_v2, CUstream stream, CUdeviceptr address, std::uint64_t value, \
    unsigned flags)                                                                                           \
  X(cuStreamWaitValue64, cuStreamWaitValue64_v2, CUstream stream, CUdeviceptr address, std::uint64_t value,   \
    unsigned flags)

/// Optional group: without it no queue tells when its work ran.
#define GPUMAP_CUDA_EVENT_TIMES(X) X(cuEventElapsedTime, cuEventElapsedTime_v2, float* ms, CUevent from, CUevent to)

/// Optional group, from CUDA 12.4 on: list the kernels of a module, so that a file with one kernel needs no function
/// name.
#define GPUMAP_CUDA_ENUMERATE(X)                                                                                    \
  X(cuModuleGetFunctionCount, cuModuleGetFunctionCount, unsigned* count, CUmodule module)                           \
  X(cuModuleEnumerateFunctions, cuModuleEnumerateFunctions, CUfunction* functions, unsigned count, CUmodule module) \
  X(cuFuncGetName, cuFuncGetName, const char** name, CUfunction function)

/// Optional group, from CUDA 12.4 on: what a kernel takes, for a cubin tells nothing else of it.
#define GPUMAP_CUDA_PARAMETERS(X)                                                                      \
  X(cuFuncGetParamInfo, cuFuncGetParamInfo, CUfunction function, std::size_t index, std::size_t* from, \
    std::size_t* bytes)

/// Optional group, from CUDA 12.0 on: kernels launched as graphs.
#define GPUMAP_CUDA_GRAPHS(X)                                                                                    \
  X(cuGraphCreate, cuGraphCreate, CUgraph* graph, unsigned flags)                                                \
  X(cuGraphDestroy, cuGraphDestroy, CUgraph graph)                                                               \
  X(cuGraphAddKernelNode, cuGraphAddKernelNode_v2, CUgraphNode* node, CUgraph graph, const CUgraphNode* before,  \
    std::size_t count_before, const CUDA_KERNEL_NODE_PARAMS* launch)                                             \
  X(cuGraphInstantiate, cuGraphInstantiateWithFlags, CUgraphExec* made, CUgraph graph, unsigned long long flags) \
  X(cuGraphExecDestroy, cuGraphExecDestroy, CUgraphExec graph)                                                   \
  X(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2, CUgraphExec graph, CUgraphNode node,      \
    const CUDA_KERNEL_NODE_PARAMS* launch)                                                                       \
  X(cuGraphLaunch, cuGraphLaunch, CUgraphExec graph, CUstream stream)

/// Optional group, from CUDA 12.4 on: parts of a GPU, as green contexts.
#define GPUMAP_CUDA_PARTITIONS(X)                                                                                     \
  X(cuDeviceGetDevResource, cuDeviceGetDevResource, CUdevice device, CUdevResource* resource, CUdevResourceType type) \
  X(cuDevSmResourceSplitByCount, cuDevSmResourceSplitByCount, CUdevResource* groups, unsigned* count,                 \
    const CUdevResource* whole, CUdevResource* rest, unsigned flags, unsigned least)                                  \
  X(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, CUdevResourceDesc* description, CUdevResource* parts,       \
    unsigned count)                                                                                                   \
  X(cuGreenCtxCreate, cuGreenCtxCreate, CUgreenCtx* context, CUdevResourceDesc description, CUdevice device,          \
    unsigned flags)                                                                                                   \
  X(cuGreenCtxDestroy, cuGreenCtxDestroy, CUgreenCtx context)                                                         \
  X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, CUstream* stream, CUgreenCtx context, unsigned flags, int priority)

namespace gpumap {

#define GPUMAP_CUDA_ENUMERATOR(name, value) name = (value),
enum CUresult : unsigned { GPUMAP_CUDA_RESULTS(GPUMAP_CUDA_ENUMERATOR) };
enum CUdevice_attribute : unsigned { GPUMAP_CUDA_DEVICE_ATTRIBUTES(GPUMAP_CUDA_ENUMERATOR) };
enum CUfunction_attribute : unsigned { GPUMAP_CUDA_FUNCTION_ATTRIBUTES(GPUMAP_CUDA_ENUMERATOR) };
enum CUjit_option : unsigned { GPUMAP_CUDA_JIT_OPTIONS(GPUMAP_CUDA_ENUMERATOR) };
enum CUexternalMemoryHandleType : unsigned { GPUMAP_CUDA_MEMORY_HANDLES(GPUMAP_CUDA_ENUMERATOR) };
enum CUdevResourceType : unsigned { GPUMAP_CUDA_RESOURCES(GPUMAP_CUDA_ENUMERATOR) };
#undef GPUMAP_CUDA_ENUMERATOR

#define GPUMAP_CUDA_CONSTANT(name, value) inline constexpr int name = value;
GPUMAP_CUDA_ATTRIBUTE_VALUES(GPUMAP_CUDA_CONSTANT)
#undef GPUMAP_CUDA_CONSTANT
#define GPUMAP_CUDA_CONSTANT(name, value) inline constexpr unsigned name = value;
GPUMAP_CUDA_FLAGS(GPUMAP_CUDA_CONSTANT)
#undef GPUMAP_CUDA_CONSTANT

using CUdevice = int;
using CUdeviceptr = unsigned long long;
struct CUctx_st;
using CUcontext = CUctx_st*;
struct CUmod_st;
using CUmodule = CUmod_st*;
struct CUfunc_st;
using CUfunction = CUfunc_st*;
struct CUstream_st;
using CUstream = CUstream_st*;
struct CUevent_st;
using CUevent = CUevent_st*;
struct CUextMemory_st;
using CUexternalMemory = CUextMemory_st*;
struct CUgraph_st;
using CUgraph = CUgraph_st*;
struct CUgraphNode_st;
using CUgraphNode = CUgraphNode_st*;
struct CUgraphExec_st;
using CUgraphExec = CUgraphExec_st*;
struct CUkern_st;
using CUkernel = CUkern_st*;
struct CUgreenCtx_st;
using CUgreenCtx = CUgreenCtx_st*;
struct CUdevResourceDesc_st;
using CUdevResourceDesc = CUdevResourceDesc_st*;

struct CUuuid {
  char bytes[16];
};

/// What to import: with an OPAQUE_FD, CUDA owns the descriptor from then on. `size` in bytes. All that is unused is 0.
struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
  CUexternalMemoryHandleType type;
  union {
    int fd;
    struct {
      void* handle;
      const void* name;
    } win32;
    const void* nvSciBufObject;
  } handle;
  unsigned long long size;
  unsigned flags;
  unsigned reserved[16];
};

/// A launch, as cuLaunchKernel takes it. `kern` and `ctx` are null where `func` is set.
struct CUDA_KERNEL_NODE_PARAMS {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  void** kernelParams;
  void** extra;
  CUkernel kern;
  CUcontext ctx;
};

/// Newer drivers tell more.
struct CUdevSmResource {
  unsigned smCount;
};

/// Multiprocessors that a context may be made of. The driver fills it in; only the count is for others to read.
struct alignas(8) CUdevResource {
  CUdevResourceType type;
  unsigned char _internal_padding[92];
  union {
    CUdevSmResource sm;
    unsigned char _oversize[48];
  };
};

/// What of it to map, in bytes.
struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
  unsigned long long offset;
  unsigned long long size;
  unsigned flags;
  unsigned reserved[16];
};

}  // namespace gpumap
