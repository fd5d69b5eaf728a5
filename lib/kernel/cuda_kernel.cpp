// SPDX-License-Identifier: MIT
#include <optional>

#include "device/resident_registry.hpp"
#include "kernel/compile/cubin.hpp"
#include "kernel/compile/cuda_compiler.hpp"
#include "kernel/compile/ptx.hpp"
#include "kernel/cuda_module.hpp"
#include "kernel/loaded.hpp"
#include "queue/executable.hpp"

namespace gpumap {

namespace {

/// What is to be loaded, and the name of the kernel in it; that is empty where only the module tells.
CudaBinary binary_of(const GpuDevice& device, const KernelSource& source) {
  switch (source.language) {
    case Language::cuda:
      return build_cuda(source, architecture_of(device));
    case Language::ptx:
      return {.code = source.code, .function = choose_entry(source, source.code)};
    default:
      check_cubin(source);
      return {.code = source.code, .function = source.function};
  }
}

class LoadedCudaKernel final : public CudaKernel {
 public:
  LoadedCudaKernel(const std::shared_ptr<GpuDevice>& device, const KernelSource& source)
      : LoadedCudaKernel(device, source, binary_of(*device, source)) {}

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] Grid grid_for(const gpumap_frame& frame) const override { return make_grid(shape_, frame); }
  [[nodiscard]] CUfunction function() const noexcept override { return function_; }
  [[nodiscard]] std::shared_ptr<const void> owner() const noexcept override { return module_; }
  [[nodiscard]] std::uint32_t shared_bytes() const noexcept override { return shared_bytes_; }

 private:
  LoadedCudaKernel(const std::shared_ptr<GpuDevice>& device, const KernelSource& source, const CudaBinary& binary)
      : name_(source.name),
        module_(std::make_shared<CudaModule>(device, source.name, binary.code)),
        function_(module_->find(binary.function.empty() ? module_->only_function() : binary.function)),
        shape_(module_->fit(function_, source)),
        shared_bytes_(source.shared_bytes) {
    if (module_->has_clusters(function_)) demand_.emplace(device->cuda()->residents(), Residents::Needs::cluster);
  }

  const std::string name_;
  const std::shared_ptr<const CudaModule> module_;
  const CUfunction function_;
  const GridShape shape_;
  const std::uint32_t shared_bytes_;
  std::optional<Residents::Demand> demand_;  ///< for room for a cluster
};

}  // namespace

std::shared_ptr<Kernel> load_cuda_kernel(std::shared_ptr<GpuDevice> device, const KernelSource& source) {
  return std::make_shared<LoadedCudaKernel>(device, source);
}

}  // namespace gpumap
