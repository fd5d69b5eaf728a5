// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "device/cuda_driver.hpp"
#include "gpumap/queue.hpp"
#include "queue/executable.hpp"

namespace gpumap {

/// Launches kernels as a graph of one node, whose parameters are set each time: with these two calls the CPU is done
/// sooner than with cuLaunchKernel, and so is the GPU (tests/bench/README.md). Keeps what it launched last loaded.
/// Thread safety: one thread at a time, inside a Scope.
class CudaGraph {
 public:
  /// Not `enabled`, or with a driver that has no graphs, it launches nothing.
  CudaGraph(const CudaContext& context, bool enabled)
      : context_(context), enabled_(enabled && context.driver().has_graphs) {}
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// False: not launched; cuLaunchKernel will do, or say what is wrong.
  [[nodiscard]] bool launch(const CudaKernel& kernel, const Grid& grid, void** arguments, CUstream stream) noexcept;
  /// Nothing of it runs any more. To be called unless the context is lost.
  void destroy() noexcept;

 private:
  [[nodiscard]] bool make(const CUDA_KERNEL_NODE_PARAMS& launch) noexcept;

  const CudaContext& context_;
  const bool enabled_;
  CUgraph graph_ = nullptr;
  CUgraphNode node_ = nullptr;
  CUgraphExec made_ = nullptr;
  // Of the functions that the driver still knows: the graph's own, and that of the last launch.
  std::shared_ptr<const void> first_, last_;
};

}  // namespace gpumap
