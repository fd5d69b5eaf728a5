// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>

#include "gpumap/error.hpp"
#include "kernel/compile/compilers.hpp"
#include "kernel/cuda_kernel.hpp"
#include "kernel/loaded.hpp"
#include "kernel/resident/resident_source.hpp"
#include "queue/executable.hpp"

namespace gpumap {
namespace {

/// What all functions of a resident kernel have in common.
struct Loaded {
  Loaded(const std::shared_ptr<GpuDevice>& device, const ResidentModule& made)
      : name(made.source.name),
        module(device, name, made.code),
        function(module.find(resident_function)),
        shape(module.fit(function, made.source)),
        shared_bytes(made.source.shared_bytes),
        frame(frame_bytes(made.source)) {}
  const std::string name;
  const CudaModule module;
  const CUfunction function;
  const GridShape shape;
  const std::uint32_t shared_bytes;
  const std::size_t frame;
};

class LoadedResidentKernel final : public ResidentKernel {
 public:
  LoadedResidentKernel(std::shared_ptr<const Loaded> loaded, std::uint32_t index)
      : loaded_(std::move(loaded)), index_(index) {}

  [[nodiscard]] const std::string& name() const noexcept override { return loaded_->name; }
  [[nodiscard]] Grid grid_for(const gpumap_frame& frame) const override { return make_grid(loaded_->shape, frame); }
  [[nodiscard]] CUfunction resident_function() const noexcept override { return loaded_->function; }
  [[nodiscard]] std::uint32_t index() const noexcept override { return index_; }
  [[nodiscard]] std::size_t frame_bytes() const noexcept override { return loaded_->frame; }
  [[nodiscard]] std::shared_ptr<const void> owner() const noexcept override { return loaded_; }
  [[nodiscard]] std::uint32_t shared_bytes() const noexcept override { return loaded_->shared_bytes; }

 private:
  const std::shared_ptr<const Loaded> loaded_;
  const std::uint32_t index_;
};

}  // namespace

std::vector<std::shared_ptr<Kernel>> load_resident_kernels(const std::shared_ptr<GpuDevice>& device,
                                                           const KernelSource& source,
                                                           std::vector<std::string> functions) {
  device->check_alive();
  if (!device->cuda()->stream_memory()) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {} cannot stay on the GPU: {} has no stream memory operations: use mode=launch",
                            source.name, device->info().name));
  }
  const std::size_t count = std::max<std::size_t>(functions.size(), 1);
  const auto loaded =
      std::make_shared<const Loaded>(device, build_resident(source, std::move(functions), architecture_of(*device)));
  std::vector<std::shared_ptr<Kernel>> kernels;
  for (std::uint32_t i = 0; i < count; ++i) {
    kernels.push_back(std::make_shared<LoadedResidentKernel>(loaded, i));
  }
  return kernels;
}

}  // namespace gpumap
