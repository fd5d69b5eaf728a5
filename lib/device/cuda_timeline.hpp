// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"
#include "device/resident_registry.hpp"
#include "gpumap/cuda.hpp"
#include "gpumap/fence.hpp"

namespace gpumap {

/// Multiprocessors of a GPU that no other partition has: a green context of CUDA. What is no part of any (other
/// libraries, queues that did not ask) may run on them too.
/// Ownership: its context outlives it. Destroyed when nothing of its streams is left. Thread safety: one thread at a
/// time.
class CudaPartition {
 public:
  ~CudaPartition();
  CudaPartition(const CudaPartition&) = delete;
  CudaPartition& operator=(const CudaPartition&) = delete;

  /// A non-blocking stream whose kernels run on these alone. The caller destroys it, before this.
  [[nodiscard]] CUstream create_stream(int priority) const;
  [[nodiscard]] std::uint32_t multiprocessors() const noexcept { return multiprocessors_; }

 private:
  friend class CudaPartitions;
  explicit CudaPartition(CudaPartitions& partitions) : partitions_(partitions) {}

  CudaPartitions& partitions_;
  std::vector<std::size_t> parts_;
  std::uint32_t multiprocessors_ = 0;
  CUgreenCtx context_ = nullptr;
};

/// Who has which multiprocessors of a GPU: these are parted once, into the smallest groups that the driver makes and
/// what is left over, and a partition has some of them. Thread safety: every member from any thread.
class CudaPartitions {
 public:
  explicit CudaPartitions(const CudaContext& context) : context_(context) {}

  /// At most `share` (0 to 1) of the multiprocessors, and as many of them as parts allow. Throws Error(not_supported)
  /// where the driver parts none, Error(invalid) where that is less than a part, or more than is free by a part.
  [[nodiscard]] std::unique_ptr<CudaPartition> take(double share);

 private:
  friend class CudaPartition;
  void part();
  [[nodiscard]] std::vector<std::size_t> choose(std::uint32_t wanted) const;
  void give_back(const CudaPartition& partition) noexcept;

  const CudaContext& context_;
  std::mutex mutex_;
  struct Part {
    CUdevResource resource;
    bool taken;
  };
  std::uint32_t whole_ = 0;  ///< multiprocessors of the GPU
  std::vector<Part> parts_;  ///< the last one may have another size; empty: not parted yet
};

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
  /// The stream runs nothing, and nothing more will be asked of it: others may have its share of the GPU, however long
  /// somebody keeps a fence.
  void end() noexcept;
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
  mutable std::mutex stream_mutex_;           // between its end and who looks what became of a fence
  CUstream stream_ = nullptr;                 // null: ended
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
