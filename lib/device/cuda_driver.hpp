// SPDX-License-Identifier: MIT
#pragma once

#if GPUMAP_HAVE_CUDA

#include <cuda.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "device/dynamic_library.hpp"
#include "device/health.hpp"

// cuda.h renames many functions by macro (cuMemFree is cuMemFree_v2): a table member takes the same expanded name as
// its call does, so `driver.cuMemFree(p)` calls the very symbol that the header declares.
#define GPUMAP_CUDA_MANDATORY(X)     \
  X(cuInit)                          \
  X(cuDriverGetVersion)              \
  X(cuGetErrorName)                  \
  X(cuGetErrorString)                \
  X(cuDeviceGetCount)                \
  X(cuDeviceGet)                     \
  X(cuDeviceGetName)                 \
  X(cuDeviceGetUuid)                 \
  X(cuDeviceGetAttribute)            \
  X(cuDeviceTotalMem)                \
  X(cuDevicePrimaryCtxRetain)        \
  X(cuDevicePrimaryCtxRelease)       \
  X(cuCtxGetCurrent)                 \
  X(cuCtxPushCurrent)                \
  X(cuCtxPopCurrent)                 \
  X(cuStreamCreate)                  \
  X(cuStreamDestroy)                 \
  X(cuStreamQuery)                   \
  X(cuStreamSynchronize)             \
  X(cuStreamWaitEvent)               \
  X(cuEventCreate)                   \
  X(cuEventDestroy)                  \
  X(cuEventRecord)                   \
  X(cuEventQuery)                    \
  X(cuMemAlloc)                      \
  X(cuMemFree)                       \
  X(cuMemHostAlloc)                  \
  X(cuMemFreeHost)                   \
  X(cuMemHostGetDevicePointer)       \
  X(cuMemcpyAsync)                   \
  X(cuMemsetD32Async)                \
  X(cuMemcpyDtoHAsync)               \
  X(cuMemcpyHtoDAsync)               \
  X(cuModuleLoadDataEx)              \
  X(cuModuleGetFunction)             \
  X(cuModuleUnload)                  \
  X(cuFuncSetAttribute)              \
  X(cuFuncGetAttribute)              \
  X(cuLaunchKernel)                  \
  X(cuImportExternalMemory)          \
  X(cuExternalMemoryGetMappedBuffer) \
  X(cuDestroyExternalMemory)

/// Optional group: without it a timeline polls events instead of a word in host memory.
#define GPUMAP_CUDA_STREAM_MEMORY(X) \
  X(cuStreamWriteValue64)            \
  X(cuStreamWaitValue64)

/// Optional group: without it no queue tells when its work ran.
#define GPUMAP_CUDA_EVENT_TIMES(X) X(cuEventElapsedTime)

/// Optional group (headers and driver of CUDA 12.4): list the kernels of a module, so that a file with one kernel needs
/// no function name. Guard its use with GPUMAP_CUDA_CAN_ENUMERATE, then ask has_enumerate.
#if CUDA_VERSION >= 12040
#define GPUMAP_CUDA_CAN_ENUMERATE 1
#define GPUMAP_CUDA_ENUMERATE(X) \
  X(cuModuleGetFunctionCount)    \
  X(cuModuleEnumerateFunctions)  \
  X(cuFuncGetName)
#else
#define GPUMAP_CUDA_CAN_ENUMERATE 0
#define GPUMAP_CUDA_ENUMERATE(X)
#endif

namespace gpumap {

class CudaClock;

namespace cuda {

/// The CUDA driver API, opened at run time.
struct Driver {
#define GPUMAP_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  GPUMAP_CUDA_MANDATORY(GPUMAP_CUDA_MEMBER)
  GPUMAP_CUDA_STREAM_MEMORY(GPUMAP_CUDA_MEMBER)
  GPUMAP_CUDA_EVENT_TIMES(GPUMAP_CUDA_MEMBER)
  GPUMAP_CUDA_ENUMERATE(GPUMAP_CUDA_MEMBER)
#undef GPUMAP_CUDA_MEMBER
  bool has_stream_memory = false;
  bool has_event_times = false;
  bool has_enumerate = false;
  int version = 0;  ///< 13000 for 13.0
  DynamicLibrary library;

  /// The process's table, with cuInit done. Throws Error(no_driver) saying what is missing; tries again next time.
  [[nodiscard]] static const Driver& get();
  [[nodiscard]] std::string name(CUresult result) const;  ///< "CUDA_ERROR_ILLEGAL_ADDRESS"
};

}  // namespace cuda

/// The primary CUDA context of one GPU. Thread safety: every member from any thread.
class CudaContext {
 public:
  CudaContext(const cuda::Driver& driver, int ordinal, std::string gpu_name, std::shared_ptr<Health> health);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  /// Makes the context current on this thread for its lifetime; where it is, that costs a question (pushing and popping
  /// take ten times as long). Throws Error(device_lost) once the context is lost.
  class Scope {
   public:
    explicit Scope(const CudaContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const cuda::Driver& driver_;
    bool pushed_ = false;
  };
  /// For destructors: current if that can be had, never throws; false when the context is lost.
  class CleanupScope {
   public:
    explicit CleanupScope(const CudaContext& context) noexcept;
    ~CleanupScope();
    CleanupScope(const CleanupScope&) = delete;
    CleanupScope& operator=(const CleanupScope&) = delete;
    [[nodiscard]] explicit operator bool() const noexcept { return current_; }

   private:
    const cuda::Driver& driver_;
    bool current_ = false;
  };

  [[nodiscard]] const cuda::Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] CUdevice device() const noexcept { return device_; }
  [[nodiscard]] CUcontext handle() const noexcept { return context_; }
  [[nodiscard]] int attribute(CUdevice_attribute attribute) const;
  /// Stream memory operations on 64-bit words work here (and GPUMAP_CUDA_TIMELINE is not "events").
  [[nodiscard]] bool stream_memory() const noexcept { return stream_memory_; }

  /// Throws Error unless `result` is CUDA_SUCCESS; a sticky error marks the device lost. `what` is a gerund phrase:
  /// "launching kernel invert".
  void check(CUresult result, std::string_view what) const;

  /// Copy between device memory and ordinary host memory, each way on a private stream; block.
  void download(CUdeviceptr from, void* to, std::size_t bytes);
  void upload(const void* from, CUdeviceptr to, std::size_t bytes);

  [[nodiscard]] const Health& health() const noexcept { return *health_; }
  [[nodiscard]] const std::string& gpu_name() const noexcept { return gpu_name_; }
  [[nodiscard]] CudaClock& clock() const noexcept { return *clock_; }

 private:
  void release() noexcept;

  const cuda::Driver& driver_;
  std::string gpu_name_;
  std::shared_ptr<Health> health_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  bool stream_memory_ = false;
  std::mutex download_mutex_, upload_mutex_;
  CUstream download_stream_ = nullptr;
  CUstream upload_stream_ = nullptr;
  std::unique_ptr<CudaClock> clock_;
};

}  // namespace gpumap

#else

namespace gpumap {

class CudaContext {};  ///< there is never one

}  // namespace gpumap

#endif  // GPUMAP_HAVE_CUDA
