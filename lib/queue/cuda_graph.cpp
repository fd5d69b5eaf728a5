// SPDX-License-Identifier: MIT
#include "queue/cuda_graph.hpp"

#include <utility>

namespace gpumap {

bool CudaGraph::launch(const CudaKernel& kernel, const Grid& grid, void** arguments, CUstream stream) noexcept {
  if (!enabled_) return false;
  const auto& [blocks, threads] = grid;
  const CUDA_KERNEL_NODE_PARAMS launch{.func = kernel.function(),
                                       .gridDimX = blocks[0],
                                       .gridDimY = blocks[1],
                                       .gridDimZ = blocks[2],
                                       .blockDimX = threads[0],
                                       .blockDimY = threads[1],
                                       .blockDimZ = threads[2],
                                       .sharedMemBytes = kernel.shared_bytes(),
                                       .kernelParams = arguments,
                                       .extra = nullptr,
                                       .kern = nullptr,
                                       .ctx = nullptr};
  const auto& driver = context_.driver();
  if (made_ == nullptr) {
    if (!make(launch)) return false;
    first_ = kernel.owner();
  } else if (driver.cuGraphExecKernelNodeSetParams(made_, node_, &launch) != CUDA_SUCCESS) {
    return false;  // a kernel with dynamic parallelism after one without, or a grid that the GPU does not take
  }
  last_ = kernel.owner();
  if (driver.cuGraphLaunch(made_, stream) == CUDA_SUCCESS) return true;
  destroy();
  return false;
}

bool CudaGraph::make(const CUDA_KERNEL_NODE_PARAMS& launch) noexcept {
  const auto& driver = context_.driver();
  if (driver.cuGraphCreate(&graph_, 0) == CUDA_SUCCESS &&
      driver.cuGraphAddKernelNode(&node_, graph_, nullptr, 0, &launch) == CUDA_SUCCESS &&
      driver.cuGraphInstantiate(&made_, graph_, 0) == CUDA_SUCCESS) {
    return true;
  }
  made_ = nullptr;
  destroy();
  return false;
}

void CudaGraph::destroy() noexcept {
  const auto& driver = context_.driver();
  if (made_ != nullptr) driver.cuGraphExecDestroy(std::exchange(made_, nullptr));
  if (graph_ != nullptr) driver.cuGraphDestroy(std::exchange(graph_, nullptr));
}

}  // namespace gpumap
