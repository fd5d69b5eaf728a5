// SPDX-License-Identifier: MIT
// Heavy: see device/vulkan_device.hpp.
#pragma once

#include <vulkan/vulkan_core.h>
#include <vulkan/vulkan_raii.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/budget.hpp"
#include "device/vulkan_device.hpp"
#include "gpumap/memory.hpp"
#include "memory/gpu_mapping.hpp"

namespace gpumap {

/// One buffer on dedicated memory of its own, mapped where its placement has a host side.
struct VulkanAllocation {
  const StuckWork* stuck;  ///< of its context
  Budget::Share share;     ///< of the BAR window for Placement::bar, of page-locked memory for Placement::host
  vk::raii::DeviceMemory memory{nullptr};
  vk::raii::Buffer buffer{nullptr};  ///< declared after its memory: destroyed before it
  std::uint64_t memory_bytes = 0;    ///< of the VkDeviceMemory
  std::uint64_t buffer_bytes = 0;
  std::uint32_t memory_type = 0;
  std::byte* host = nullptr;
  std::uint64_t address = 0;
  bool coherent = false;
  bool exportable = false;

  /// `context` outlives it. For Placement::bar, device or host. Throws Error(no_memory | not_supported | device_lost).
  VulkanAllocation(VulkanContext& context, Placement placement, std::uint64_t bytes, bool require_coherent);
  /// Import what another process exported, and map it. Takes the descriptor. Throws Error(invalid | no_memory | …).
  VulkanAllocation(VulkanContext& context, MemoryExport& from);
  /// Frees it; where the context has work that was given up, which may use it, it stays for good.
  ~VulkanAllocation();
  VulkanAllocation(VulkanAllocation&&) = default;
  VulkanAllocation& operator=(VulkanAllocation&&) = default;

  /// Flush or invalidate a range of bytes of mapped memory, widened to whole non-coherent atoms.
  void flush(const VulkanContext& context, std::uint64_t offset, std::uint64_t bytes) const;
  void invalidate(const VulkanContext& context, std::uint64_t offset, std::uint64_t bytes) const;

 private:
  [[nodiscard]] vk::MappedMemoryRange widen(std::uint64_t atom, std::uint64_t offset, std::uint64_t bytes) const;
};

class VulkanContext;

/// Copies between device memory and ordinary host memory through CPU-cached staging buffers: one for each copy that is
/// under way, made when it is first needed and kept. Thread safety: every member from any thread.
class VulkanStaging {
 public:
  explicit VulkanStaging(VulkanContext& context);
  ~VulkanStaging();
  VulkanStaging(const VulkanStaging&) = delete;
  VulkanStaging& operator=(const VulkanStaging&) = delete;

  /// Both block until done. Throw Error(device_lost | no_memory | io). `given_up` as Mapping::download_unless().
  void download(VkBuffer buffer, std::uint64_t offset, std::span<std::byte> to,
                const std::function<bool()>& given_up = nullptr);
  void upload(std::span<const std::byte> from, VkBuffer buffer, std::uint64_t offset,
              const std::function<bool()>& given_up = nullptr);

 private:
  struct Block;
  class LastCopy;
  [[nodiscard]] std::unique_ptr<Block> take();
  void let_go(std::unique_ptr<Block> block);
  /// Call `chunk` with the block, where the chunk starts and its size, until `bytes` are done.
  void copy(std::size_t bytes, const char* what,
            const std::function<void(Block& block, std::size_t at, std::size_t bytes)>& chunk);

  VulkanContext& context_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> idle_;
};

}  // namespace gpumap
