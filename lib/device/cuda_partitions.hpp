// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda_driver.hpp"

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

}  // namespace gpumap
