// SPDX-License-Identifier: MIT
#pragma once

#include <vulkan/vulkan_core.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/gpu_device.hpp"
#include "device/unique_fd.hpp"
#include "gpumap/memory.hpp"

namespace gpumap {

/// Memory as another process, or another Vulkan device of this one, imports it.
struct MemoryExport {
  UniqueFd fd;                         ///< OPAQUE_FD of a dedicated allocation
  std::uint64_t allocation_bytes = 0;  ///< of the VkDeviceMemory
  std::uint64_t buffer_bytes = 0;      ///< of the buffer on it
  std::uint64_t base = 0;              ///< where in the buffer the mapping starts
  std::uint32_t memory_type = 0;
};

/// What every mapping of this library has in common, and what the queues need of one.
class GpuMapping : public Mapping {
 public:
  [[nodiscard]] Placement placement() const noexcept final { return options_.placement; }
  [[nodiscard]] std::size_t bytes() const noexcept final { return options_.bytes; }
  [[nodiscard]] bool coherent() const noexcept final { return coherent_; }
  [[nodiscard]] bool cpu_readable() const noexcept override { return options_.placement == Placement::host; }
  [[nodiscard]] Fence upload(std::size_t offset, std::size_t bytes) const override;
  void flush(std::size_t offset, std::size_t bytes) const final;
  void invalidate(std::size_t offset, std::size_t bytes) const final;

  [[nodiscard]] const GpuDevice& device() const noexcept { return *device_; }
  /// The Vulkan buffer behind the mapping and where in it the mapping starts; VK_NULL_HANDLE for CUDA's own memory.
  [[nodiscard]] virtual VkBuffer buffer() const noexcept { return VK_NULL_HANDLE; }
  [[nodiscard]] virtual std::uint64_t buffer_offset() const noexcept { return 0; }
  /// A new OPAQUE_FD descriptor of the memory. Throws Error(not_supported).
  [[nodiscard]] virtual UniqueFd export_fd() const;
  /// The same with what an import needs to know. Throws Error(not_supported).
  [[nodiscard]] virtual MemoryExport export_memory() const;

  /// Throws Error(invalid) unless [offset, offset + bytes) lies inside. `what` names the operation.
  void check_range(std::size_t offset, std::size_t bytes, const char* what) const;

  /// How many flush() and invalidate() calls reached the driver: tests count them.
  [[nodiscard]] std::uint64_t driver_flushes() const noexcept { return flushes_.load(std::memory_order_relaxed); }

 protected:
  GpuMapping(std::shared_ptr<GpuDevice> device, const MappingOptions& options)
      : device_(std::move(device)), options_(options) {}

  /// The range is inside and not empty.
  virtual void flush_range(std::size_t offset, std::size_t bytes) const = 0;
  virtual void invalidate_range(std::size_t offset, std::size_t bytes) const = 0;
  /// For constructors, once the memory type is known.
  void set_memory_coherent(bool coherent) noexcept { coherent_ = coherent && !options_.treat_as_non_coherent; }

  const std::shared_ptr<GpuDevice> device_;

 private:
  const MappingOptions options_;
  bool coherent_ = true;
  mutable std::atomic<std::uint64_t> flushes_{0};
};

/// The library's own mapping behind `mapping`. Throws Error(invalid) for one of another device.
[[nodiscard]] const GpuMapping& own_mapping(const Mapping& mapping, const GpuDevice& device);
/// Where CUDA finds `mapping`; `what` names the operation. Throws Error(invalid) for host memory of Vulkan's.
[[nodiscard]] std::uint64_t cuda_address(const GpuMapping& mapping, const char* what);
/// Throws Error(invalid) unless the two ranges lie inside their mappings and do not overlap.
void check_copy(const GpuMapping& from, std::size_t from_offset, const GpuMapping& to, std::size_t to_offset,
                std::size_t bytes);
/// Throws Error(invalid) unless the range lies inside, on multiples of 4 bytes.
void check_clear(const GpuMapping& mapping, std::size_t offset, std::size_t bytes);

/// Memory from Vulkan: Placement::bar and ::device (seen by CUDA too where the GPU has it), ::host for Vulkan kernels.
[[nodiscard]] std::shared_ptr<GpuMapping> allocate_vulkan(std::shared_ptr<GpuDevice> device,
                                                          const MappingOptions& options);
/// Memory that another process exported on the same GPU, mapped as Placement::bar. Throws Error(invalid) where the
/// figures do not fit what the driver says of such memory.
[[nodiscard]] std::shared_ptr<GpuMapping> import_vulkan(std::shared_ptr<GpuDevice> device, std::size_t bytes,
                                                        MemoryExport memory);
/// Page-locked host memory for CUDA kernels: Placement::host.
[[nodiscard]] std::shared_ptr<GpuMapping> allocate_cuda_host(std::shared_ptr<GpuDevice> device,
                                                             const MappingOptions& options);
/// Host memory and the device memory that upload() brings it to: Placement::mirrored and ::mirrored_pageable.
[[nodiscard]] std::shared_ptr<GpuMapping> allocate_mirrored(std::shared_ptr<GpuDevice> device,
                                                            const MappingOptions& options);

}  // namespace gpumap
