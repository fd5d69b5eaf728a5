// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpumap/device.hpp"

namespace gpumap {

/// A GPU as CUDA sees it.
struct CudaGpu {
  std::string name;
  Uuid uuid{};
  std::string pci_address;
  int ordinal = -1;
  std::uint64_t memory_bytes = 0;
  std::string compute_capability;
  std::string driver;
};

/// Each returns what there is and sets `status` to a sentence. Neither throws for what is missing.
[[nodiscard]] std::vector<DeviceInfo> list_vulkan_devices(std::string& status);
[[nodiscard]] std::vector<CudaGpu> list_cuda_gpus(std::string& status);

}  // namespace gpumap
