// SPDX-License-Identifier: MIT
#pragma once

#include <vulkan/vulkan_core.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/cuda_api.hpp"
#include "gpumap/kernel.hpp"

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

}  // namespace gpumap
