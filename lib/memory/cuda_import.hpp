// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "device/cuda_driver.hpp"
#include "device/unique_fd.hpp"

namespace gpumap {

/// Vulkan memory as CUDA sees it. Owns CUDA's reference to the memory; the Vulkan allocation may go before or after.
class CudaImport {
 public:
  /// `allocation_bytes` is the size of the dedicated VkDeviceMemory behind `fd`.
  CudaImport(const CudaContext& context, UniqueFd fd, std::uint64_t allocation_bytes);
  ~CudaImport();
  CudaImport(const CudaImport&) = delete;
  CudaImport& operator=(const CudaImport&) = delete;

  [[nodiscard]] CUdeviceptr address() const noexcept { return address_; }

 private:
  void release() noexcept;

  const CudaContext& context_;
  CUexternalMemory memory_ = nullptr;
  CUdeviceptr address_ = 0;
};

}  // namespace gpumap
