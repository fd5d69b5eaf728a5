// SPDX-License-Identifier: MIT
#pragma once

#include <vulkan/vulkan_core.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "device/cuda_api.hpp"
#include "device/gpu_device.hpp"
#include "gpumap/cuda.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/queue.hpp"

namespace gpumap {

/// What Queue::launch needs of a loaded kernel. lib/kernel derives from these two.
class CudaKernel : public Kernel {
 public:
  [[nodiscard]] Backend backend() const noexcept final { return Backend::cuda; }
  [[nodiscard]] virtual CUfunction function() const noexcept = 0;
  /// Owner of the function: a queue may keep it beyond the kernel.
  [[nodiscard]] virtual std::shared_ptr<const void> owner() const noexcept = 0;
  /// Dynamic shared memory of a block.
  [[nodiscard]] virtual std::uint32_t shared_bytes() const noexcept = 0;
};

/// One of the functions of a kernel that stays on the GPU: create_resident_queue().
class ResidentKernel : public Kernel {
 public:
  [[nodiscard]] Backend backend() const noexcept final { return Backend::cuda; }
  /// Takes a gpumap_residence; the same for all functions of one owner().
  [[nodiscard]] virtual CUfunction resident_function() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t index() const noexcept = 0;
  /// How much of a gpumap_frame it takes.
  [[nodiscard]] virtual std::size_t frame_bytes() const noexcept = 0;
  [[nodiscard]] virtual std::shared_ptr<const void> owner() const noexcept = 0;
  /// Dynamic shared memory of a block.
  [[nodiscard]] virtual std::uint32_t shared_bytes() const noexcept = 0;
};

/// The pipeline layout has no descriptor sets and one push-constant range: 8 bytes at offset 0 for the compute stage,
/// the device address of a gpumap_frame.
class VulkanKernel : public Kernel {
 public:
  [[nodiscard]] Backend backend() const noexcept final { return Backend::vulkan; }
  [[nodiscard]] virtual VkPipeline pipeline() const noexcept = 0;
  [[nodiscard]] virtual VkPipelineLayout layout() const noexcept = 0;
  /// The workgroup size that the pipeline was made with: Grid::threads must equal it.
  [[nodiscard]] virtual std::array<std::uint32_t, 3> workgroup() const noexcept = 0;
  /// Owner of pipeline and layout: the queue keeps it until the launches that use them are done.
  [[nodiscard]] virtual std::shared_ptr<const void> owner() const noexcept = 0;
};

[[nodiscard]] std::unique_ptr<Queue> create_vulkan_queue(std::shared_ptr<GpuDevice> device);
/// For a device that has CUDA. Throws as Device::create_queue().
[[nodiscard]] std::unique_ptr<Queue> create_cuda_queue(std::shared_ptr<GpuDevice> device,
                                                       const CudaQueueOptions& options = {});

/// For a library that records commands by itself: `record` is called with the command buffer of the next submission,
/// behind all that came before, and what comes next sees what its compute shaders wrote. `owner` is kept until the GPU
/// is done. Throws Error(invalid) for another queue than Vulkan's, and what `record` throws.
void record_commands(Queue& queue, std::shared_ptr<const void> owner,
                     const std::function<void(VkCommandBuffer)>& record);

/// The stream behind a CUDA queue, for a library that launches by itself; what it launches before the next submit() is
/// of that submission. Throws Error(invalid) for another queue.
[[nodiscard]] CUstream stream_of(Queue& queue);
/// As wait_for_cuda_stream() and let_cuda_stream_wait().
void order_after(Queue& queue, CUstream stream);
void order_before(Queue& queue, CUstream stream);

struct ResidentOptions {
  /// Blocks at most that stay on the GPU, and no more than it takes at a time: the first ones take a multiprocessor
  /// each. 0: one for almost every second of those, or for each of a share.
  std::uint32_t blocks = 0;
  /// After this time without a frame, the kernel leaves; the next frame launches it again.
  std::chrono::nanoseconds idle = std::chrono::milliseconds(100);
  /// So long the kernel is there at most in one go, then it leaves and comes back with the next frame: a call of
  /// another library that waits until the GPU runs nothing has its turn. On a GPU that limits the time of kernels 200
  /// ms at most.
  std::chrono::nanoseconds stay = std::chrono::milliseconds(200);
  CudaQueueOptions cuda;
};

/// A queue whose kernels, ResidentKernels all, stay on the GPU between frames: what is asked for reaches them by a
/// doorbell (queue/turn.h), without a driver call. It takes copies and fills between launches. No spans.
/// Precondition: device->cuda()->stream_memory(). Throws as create_cuda_queue(). launch(), copy() and clear() wait
/// where more is under way than it has room for, without a lock, launch() while others have to have the GPU, too, and
/// for a minute at most where those do not leave; they may throw QueueCancelled.
[[nodiscard]] std::unique_ptr<Queue> create_resident_queue(std::shared_ptr<GpuDevice> device,
                                                           const ResidentOptions& options);

/// Where the doorbell of such a queue is, and why; whether the GPU limits the time of kernels: for people.
[[nodiscard]] std::string doorbell_of(const Queue& resident);

}  // namespace gpumap
