// SPDX-License-Identifier: MIT
#include "device/inventory_parts.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <array>

#include "device/cuda_driver.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace {

CudaGpu describe(const cuda::Driver& driver, CUdevice device, int ordinal) {
  CudaGpu gpu;
  gpu.ordinal = ordinal;
  std::array<char, 256> name{};
  driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device);
  gpu.name = name.data();
  CUuuid uuid{};
  driver.cuDeviceGetUuid(&uuid, device);
  std::transform(std::begin(uuid.bytes), std::end(uuid.bytes), gpu.uuid.begin(),
                 [](char byte) { return static_cast<std::uint8_t>(byte); });
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    driver.cuDeviceGetAttribute(&value, which, device);
    return value;
  };
  gpu.pci_address =
      fmt::format("{:04x}:{:02x}:{:02x}.0", attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                  attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID), attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
  gpu.compute_capability = fmt::format("{}.{}", attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                                       attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  std::size_t bytes = 0;
  driver.cuDeviceTotalMem(&bytes, device);
  gpu.memory_bytes = bytes;
  gpu.driver = driver.version_text();
  return gpu;
}

}  // namespace

std::vector<CudaGpu> list_cuda_gpus(std::string& status) {
  std::vector<CudaGpu> gpus;
  try {
    const auto& driver = cuda::Driver::get();
    int count = 0;
    driver.cuDeviceGetCount(&count);
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      CUdevice device = 0;
      if (driver.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS) gpus.push_back(describe(driver, device, ordinal));
    }
    status = fmt::format("found CUDA {} with {} GPU{}", driver.version_text(), count, count == 1 ? "" : "s");
  } catch (const Error& error) {
    status = error.what();
  }
  return gpus;
}

}  // namespace gpumap
