// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "device/cuda_driver.hpp"
#include "device/cuda_partitions.hpp"
#include "device/gpu_device.hpp"
#include "device/resident_registry.hpp"
#include "gpumap/cuda.hpp"
#include "gpumap/fence.hpp"

namespace gpumap {

/// A CUDA stream and the counter that it raises. Fences outlive their queue, so the stream lives here, not there.
class CudaTimeline : public Timeline {
 public:
  ~CudaTimeline() override;

  void check() final;
  [[nodiscard]] CUstream stream() const noexcept { return stream_; }
  [[nodiscard]] const CudaContext& context() const noexcept { return context_; }
  /// That the stream's kernels run on; 0: on all.
  [[nodiscard]] std::uint32_t multiprocessors() const noexcept {
    return partition_ ? partition_->multiprocessors() : 0;
  }

  /// Where the GPU has the counter; 0 where it has none.
  [[nodiscard]] virtual CUdeviceptr word() const noexcept { return 0; }
  /// Raise the counter to `value` once all work submitted to the stream so far is done. Call inside a Scope.
  virtual void signal(std::uint64_t value) = 0;
  /// Make later work of `stream`, on the same GPU, wait for a value that was submitted. Call inside a Scope.
  virtual void make_wait(CUstream stream, std::uint64_t value) = 0;

 protected:
  explicit CudaTimeline(std::shared_ptr<GpuDevice> device, const CudaQueueOptions& options = {});

 private:
  const std::shared_ptr<GpuDevice> device_;

 protected:
  const CudaContext& context_;

 private:
  std::unique_ptr<CudaPartition> partition_;  // null: the whole GPU
  std::optional<Residents::Demand> demand_;   // for the multiprocessors of that
  CUstream stream_ = nullptr;
};

/// With stream memory operations where the GPU has them, else with events. Throws Error(invalid | not_supported) for
/// options that the driver cannot keep to.
[[nodiscard]] std::shared_ptr<CudaTimeline> create_cuda_timeline(std::shared_ptr<GpuDevice> device,
                                                                 const CudaQueueOptions& options);

}  // namespace gpumap
