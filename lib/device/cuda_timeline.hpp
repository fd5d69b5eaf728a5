// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

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
  void give_up(const Fence& end, const std::string& work) final { context_.stuck_work().note(end, work); }
  /// Wait until the stream runs nothing, for `longest` at most; false: it still does. For destructors: never throws,
  /// and is true once the device is lost.
  [[nodiscard]] bool drain(std::chrono::nanoseconds longest) const noexcept;
  /// Its share of the GPU is needed no longer: nothing more is launched on the stream.
  void end_demand() noexcept { demand_.reset(); }
  [[nodiscard]] CUstream stream() const noexcept { return stream_; }
  [[nodiscard]] const CudaContext& context() const noexcept { return context_; }
  /// That the stream's kernels run on; 0: on all.
  [[nodiscard]] std::uint32_t multiprocessors() const noexcept {
    return partition_ ? partition_->multiprocessors() : 0;
  }

  /// Where the GPU has the counter; 0 where it has none.
  [[nodiscard]] virtual CUdeviceptr word() const noexcept { return 0; }
  /// Raise the counter to `value` once all work submitted to the stream so far is done. Call inside a Scope.
  void signal(std::uint64_t value) {
    raise(value);
    note_due(value);
  }
  /// A kernel of the stream will raise the counter to `value`, which the latest one does.
  void note_due(std::uint64_t value) noexcept { due_.store(value, std::memory_order_relaxed); }
  /// What the counter comes to when all that was submitted so far is done. From any thread.
  [[nodiscard]] std::uint64_t due() const noexcept { return due_.load(std::memory_order_relaxed); }
  /// Make later work of `stream`, on the same GPU, wait for a value that was submitted. Call inside a Scope.
  virtual void make_wait(CUstream stream, std::uint64_t value) = 0;

 protected:
  explicit CudaTimeline(std::shared_ptr<GpuDevice> device, const CudaQueueOptions& options = {});

 private:
  virtual void raise(std::uint64_t value) = 0;  ///< see signal()

  const std::shared_ptr<GpuDevice> device_;

 protected:
  const CudaContext& context_;

 private:
  std::unique_ptr<CudaPartition> partition_;  // null: the whole GPU
  std::optional<Residents::Demand> demand_;   // for the multiprocessors of that
  CUstream stream_ = nullptr;
  std::atomic<std::uint64_t> due_{0};
};

/// For the destructor of the queue that `timeline` is of: wait until its stream runs nothing, for patience_at_end at
/// most. False: it still does; then it is given up by the name `work`, and the timeline stays for good. `submitted`:
/// what the counter comes to when all is done that was submitted. Never throws.
[[nodiscard]] bool end_stream(const std::shared_ptr<CudaTimeline>& timeline, std::uint64_t submitted,
                              const std::string& work) noexcept;

/// With stream memory operations where the GPU has them, else with events. Throws Error(invalid | not_supported) for
/// options that the driver cannot keep to.
[[nodiscard]] std::shared_ptr<CudaTimeline> create_cuda_timeline(std::shared_ptr<GpuDevice> device,
                                                                 const CudaQueueOptions& options);

}  // namespace gpumap
