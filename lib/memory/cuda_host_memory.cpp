// SPDX-License-Identifier: MIT
#include "gpumap/error.hpp"
#include "memory/gpu_mapping.hpp"

#include <cstring>

#include "device/budget.hpp"
#include "device/cuda_driver.hpp"
#include "device/resident_registry.hpp"

namespace gpumap {
namespace {

/// Page-locked memory from cuMemHostAlloc: the CPU caches it and the GPU snoops, so it is always coherent.
class CudaHostMapping final : public GpuMapping {
 public:
  CudaHostMapping(std::shared_ptr<GpuDevice> device, const MappingOptions& options)
      : GpuMapping(std::move(device), options), context_(*device_->cuda()), share_(reserve_page_locked(options.bytes)) {
    set_memory_coherent(true);
    const auto& driver = context_.driver();
    const CudaContext::Scope scope(context_);
    const Residents::NewMemory arrives(context_.residents());
    void* host = nullptr;
    const CUresult result =
        driver.cuMemHostAlloc(&host, options.bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) throw page_locked_refused("CUDA", options.bytes);
    context_.check(result, "allocating page-locked host memory");
    host_ = static_cast<std::byte*>(host);
    if (const CUresult mapped = driver.cuMemHostGetDevicePointer(&address_, host_, 0); mapped != CUDA_SUCCESS) {
      free_page_locked(context_, host_);
      context_.check(mapped, "mapping page-locked host memory");
    }
  }

  ~CudaHostMapping() override { free_page_locked(context_, host_); }

  [[nodiscard]] std::byte* host() const noexcept override { return host_; }
  [[nodiscard]] std::uint64_t address(Backend backend) const noexcept override {
    return backend == Backend::cuda ? address_ : 0;
  }
  void download(std::size_t offset, std::span<std::byte> to) const override {
    check_range(offset, to.size(), "download");
    if (!to.empty()) std::memcpy(to.data(), host_ + offset, to.size());
  }

 private:
  void flush_range(std::size_t, std::size_t) const override {}
  void invalidate_range(std::size_t, std::size_t) const override {}

  const CudaContext& context_;
  const Budget::Share share_;
  std::byte* host_ = nullptr;
  CUdeviceptr address_ = 0;
};

}  // namespace

std::shared_ptr<GpuMapping> allocate_cuda_host(std::shared_ptr<GpuDevice> device, const MappingOptions& options) {
  return std::make_shared<CudaHostMapping>(std::move(device), options);
}

}  // namespace gpumap
