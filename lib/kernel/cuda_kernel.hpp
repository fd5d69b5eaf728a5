// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"
#include "gpumap/kernel.hpp"
#include "kernel/grid.hpp"

namespace gpumap {

/// Code on a GPU. Owns the module, keeps its device open. Thread safety: immutable.
class CudaModule {
 public:
  /// A cubin, or PTX. `name` is for messages. Throws Error(compile | device_lost).
  CudaModule(std::shared_ptr<GpuDevice> device, std::string name, const std::string& code);
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  /// Throws Error(compile).
  [[nodiscard]] CUfunction find(const std::string& function) const;
  /// Where it has one kernel alone; else Error(compile) with their names.
  [[nodiscard]] std::string only_function() const;
  /// How `function` can be launched, with block, grid, work and shared memory as `source` asks. Gives it that shared
  /// memory. Throws Error(invalid) for blocks that are too large.
  [[nodiscard]] GridShape fit(CUfunction function, const KernelSource& source) const;
  /// It was compiled for clusters of blocks, which start together or not at all.
  [[nodiscard]] bool has_clusters(CUfunction function) const;

 private:
  [[nodiscard]] CudaContext& context() const { return *device_->cuda(); }

  const std::shared_ptr<GpuDevice> device_;
  const std::string name_;
  CUmodule handle_ = nullptr;
};

/// As compile_cuda() takes it: "sm_90".
[[nodiscard]] std::string architecture_of(const GpuDevice& device);

}  // namespace gpumap
