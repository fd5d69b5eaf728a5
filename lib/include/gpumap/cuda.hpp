// SPDX-License-Identifier: MIT
// What other CUDA code needs to share memory and order with gpumap's. Handles are void* here, so that including this
// takes no cuda.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/queue.hpp"

namespace gpumap {

struct CudaHandles {
  void* context = nullptr;  ///< CUcontext: the device's primary one
  int device = -1;          ///< CUdevice
};

/// Where gpumap's CUDA work on this device runs; no context where it has none. Device memory of one CUDA context means
/// nothing in another: what is to be shared is allocated in this one. It lives as long as the device. Thread-safe.
[[nodiscard]] GPUMAP_API CudaHandles cuda_handles(const Device& device) noexcept;

/// How the GPU is to treat the work of a queue.
struct CudaQueueOptions {
  /// Where both wait for a place, its kernels come before those of a queue with a lower one. From 0, as any work has
  /// it, to what the driver knows: 5 as a rule.
  std::uint32_t priority = 0;
  /// How much of the multiprocessors at most (0 to 1) it runs on. No other queue with a share runs on these; queues
  /// without one, and other libraries, may. 0: it runs on all.
  double sm_share = 0;
};

/// Throws as Device::create_queue(), Error(invalid) for options that the GPU cannot keep to, and Error(not_supported)
/// where there is no CUDA, or a share with a driver before CUDA 12.4.
[[nodiscard]] GPUMAP_API std::unique_ptr<Queue> create_cuda_queue(Device& device, const CudaQueueOptions& options);

/// The CUstream behind a CUDA queue, which keeps it. What the caller puts there before the next submit() is part of
/// that submission. Thread safety as the queue's. Throws Error(invalid) for a Vulkan queue.
[[nodiscard]] GPUMAP_API void* cuda_stream(Queue& queue);

/// What the queue is given from here on starts after what `stream`, a CUstream of the device's context, has now: the
/// GPU waits, not the CPU. A null stream is CUDA's default one. Thread safety as the queue's. Throws Error(invalid) for
/// a Vulkan queue, Error(device_lost).
GPUMAP_API void wait_for_cuda_stream(Queue& queue, void* stream);
/// The other way round: what `stream` is given from here on starts after all that the queue was given. Throws likewise.
GPUMAP_API void let_cuda_stream_wait(Queue& queue, void* stream);

/// What `stream`, a CUstream of the device's context (null: CUDA's default one), is given from here on starts after
/// `fence`: the GPU waits for CUDA work, the CPU for work of another back end. False: that took longer than `longest`.
/// Thread-safe. Throws Error(not_supported) where there is no CUDA, Error(invalid | device_lost).
[[nodiscard]] GPUMAP_API bool let_cuda_stream_wait(Device& device, const Fence& fence, void* stream,
                                                   std::chrono::nanoseconds longest);
/// Signals once all is done that such a `stream` has now. Thread-safe. Throws likewise.
[[nodiscard]] GPUMAP_API Fence fence_of_cuda_stream(Device& device, void* stream);

}  // namespace gpumap
