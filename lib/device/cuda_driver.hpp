// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "device/cuda_api.hpp"
#include "device/gpu_device.hpp"
#include "device/unique_fd.hpp"

namespace gpumap {

class CudaClock;
class CudaPartitions;
class CudaTimeline;
class Residents;

namespace cuda {

/// The CUDA driver API, opened at run time.
struct Driver {
#define GPUMAP_CUDA_MEMBER(name, symbol, ...) CUresult (*name)(__VA_ARGS__) = nullptr;
  GPUMAP_CUDA_MANDATORY(GPUMAP_CUDA_MEMBER)
  GPUMAP_CUDA_STREAM_MEMORY(GPUMAP_CUDA_MEMBER)
  GPUMAP_CUDA_EVENT_TIMES(GPUMAP_CUDA_MEMBER)
  GPUMAP_CUDA_ENUMERATE(GPUMAP_CUDA_MEMBER)
  GPUMAP_CUDA_PARAMETERS(GPUMAP_CUDA_MEMBER)
  GPUMAP_CUDA_GRAPHS(GPUMAP_CUDA_MEMBER)
  GPUMAP_CUDA_PARTITIONS(GPUMAP_CUDA_MEMBER)
#undef GPUMAP_CUDA_MEMBER
  bool has_stream_memory = false;
  bool has_event_times = false;
  bool has_enumerate = false;
  bool has_parameters = false;
  bool has_graphs = false;
  bool has_partitions = false;
  int version = 0;  ///< 13000 for 13.0
  DynamicLibrary library;

  /// The process's table, with cuInit done. Throws Error(no_driver) saying what is missing; tries again next time.
  [[nodiscard]] static const Driver& get();
  [[nodiscard]] std::string name(CUresult result) const;  ///< "CUDA_ERROR_ILLEGAL_ADDRESS"
  [[nodiscard]] std::string version_text() const;         ///< "13.0"
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
  /// For destructors: current if that can be had, never throws; false when the context is lost or stuck().
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

  /// Calls of the driver that free memory or load code wait for all kernels of the context. While one runs that was
  /// given up, memory stays allocated.
  [[nodiscard]] StuckWork& stuck_work() const noexcept { return stuck_; }
  [[nodiscard]] bool stuck() const noexcept { return stuck_.any(); }
  /// Queues' work counts from here on as what such a call may wait for.
  void add(const std::shared_ptr<CudaTimeline>& timeline) const;
  /// Before such a call: wait until all that was submitted so far has ended, for `longest` at most. False: some of it
  /// still runs, and is given up; or `cancel` (null: nobody does) was set.
  [[nodiscard]] bool settles(std::chrono::nanoseconds longest,
                             const std::atomic<bool>* cancel = nullptr) const noexcept;
  /// Before code is loaded: the same, and for what was given up before; after `longest` throw Error(io) that names it.
  void wait_while_stuck(std::chrono::nanoseconds longest, const std::atomic<bool>* cancel = nullptr) const;

  /// Copy between device memory and ordinary host memory, each way on a private stream; block.
  void download(CUdeviceptr from, void* to, std::size_t bytes);
  void upload(const void* from, CUdeviceptr to, std::size_t bytes);

  [[nodiscard]] const Health& health() const noexcept { return *health_; }
  [[nodiscard]] const std::string& gpu_name() const noexcept { return gpu_name_; }
  [[nodiscard]] CudaClock& clock() const noexcept { return *clock_; }
  [[nodiscard]] CudaPartitions& partitions() const noexcept { return *partitions_; }
  [[nodiscard]] Residents& residents() const noexcept { return *residents_; }

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
  std::unique_ptr<CudaPartitions> partitions_;
  std::unique_ptr<Residents> residents_;
  mutable StuckWork stuck_;
  mutable std::mutex timelines_mutex_;
  mutable std::vector<std::weak_ptr<CudaTimeline>> timelines_;
};

}  // namespace gpumap
