// SPDX-License-Identifier: MIT
//
// What launches take of the CUDA driver that is made up: kernels, graphs of one kernel, and multiprocessors in parts.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "fake_cuda.hpp"
#include "gpumap/kernel.h"
#include "queue/executable.hpp"

namespace gpumap::fake_cuda {

using Function = std::function<void(const gpumap_frame&)>;
struct Launch {
  const Function* function = nullptr;
  gpumap_frame frame{};
};
struct Partition {
  std::set<unsigned> groups;
};

inline std::atomic<CUresult> set_params{CUDA_SUCCESS}, graph_launch{CUDA_SUCCESS}, launch_kernel{CUDA_SUCCESS},
    green_create{CUDA_SUCCESS};
inline constexpr unsigned multiprocessors = 132, group_size = 8, group_count = 15;  ///< as an H100
inline Live<Launch> graphs, made_graphs;
inline Live<Partition> partitions;
inline std::multiset<unsigned> groups_in_use;

/// A kernel whose code is a function of the test's.
class Kernel final : public CudaKernel {
 public:
  explicit Kernel(Function function) : function_(std::make_shared<const Function>(std::move(function))) {}
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] Grid grid_for(const gpumap_frame&) const override { return {}; }
  [[nodiscard]] CUfunction function() const noexcept override {
    return reinterpret_cast<CUfunction>(const_cast<Function*>(function_.get()));
  }
  [[nodiscard]] std::shared_ptr<const void> owner() const noexcept override { return function_; }
  [[nodiscard]] std::uint32_t shared_bytes() const noexcept override { return 0; }

 private:
  std::string name_ = "made-up";
  std::shared_ptr<const Function> function_;
};

/// The arguments are read before the call returns, as CUDA says.
inline Launch launch_of(CUfunction function, void** arguments) {
  return {reinterpret_cast<const Function*>(function), *static_cast<const gpumap_frame*>(arguments[0])};
}
inline void put(CUstream stream, const Launch& launch) {
  of(stream).push([launch] { (*launch.function)(launch.frame); });
}

inline void fill_graphs(cuda::Driver& driver) {
  driver.cuLaunchKernel = [](CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             CUstream stream, void** arguments, void**) {
    if (launch_kernel == CUDA_SUCCESS) put(stream, launch_of(function, arguments));
    return launch_kernel.load();
  };
  driver.cuGraphCreate = [](CUgraph* graph, unsigned) {
    return *graph = reinterpret_cast<CUgraph>(graphs.add(new Launch)), CUDA_SUCCESS;
  };
  driver.cuGraphDestroy = [](CUgraph graph) {
    return delete graphs.remove(reinterpret_cast<Launch*>(graph)), CUDA_SUCCESS;
  };
  driver.cuGraphAddKernelNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode*, std::size_t,
                                   const CUDA_KERNEL_NODE_PARAMS* launch) {
    *reinterpret_cast<Launch*>(graph) = launch_of(launch->func, launch->kernelParams);
    return *node = reinterpret_cast<CUgraphNode>(graph), CUDA_SUCCESS;
  };
  driver.cuGraphInstantiate = [](CUgraphExec* made, CUgraph graph, unsigned long long) {
    *made = reinterpret_cast<CUgraphExec>(made_graphs.add(new Launch(*reinterpret_cast<Launch*>(graph))));
    return CUDA_SUCCESS;
  };
  driver.cuGraphExecDestroy = [](CUgraphExec graph) {
    return delete made_graphs.remove(reinterpret_cast<Launch*>(graph)), CUDA_SUCCESS;
  };
  driver.cuGraphExecKernelNodeSetParams = [](CUgraphExec graph, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS* launch) {
    if (set_params == CUDA_SUCCESS) {
      *reinterpret_cast<Launch*>(graph) = launch_of(launch->func, launch->kernelParams);
    }
    return set_params.load();
  };
  driver.cuGraphLaunch = [](CUgraphExec graph, CUstream stream) {
    if (graph_launch == CUDA_SUCCESS) put(stream, *reinterpret_cast<Launch*>(graph));
    return graph_launch.load();
  };
  driver.has_graphs = true;
}

inline void fill_partitions(cuda::Driver& driver) {
  driver.cuDeviceGetDevResource = [](CUdevice, CUdevResource* resource, CUdevResourceType type) {
    *resource = {};
    resource->type = type;
    resource->sm.smCount = multiprocessors;
    return CUDA_SUCCESS;
  };
  driver.cuDevSmResourceSplitByCount = [](CUdevResource* parts, unsigned* count, const CUdevResource* whole,
                                          CUdevResource* rest, unsigned, unsigned) {
    *count = parts == nullptr ? group_count : std::min(*count, group_count);
    for (unsigned i = 0; parts != nullptr && i < *count; ++i) {
      parts[i] = *whole;
      parts[i].sm.smCount = group_size;
      parts[i]._internal_padding[0] = static_cast<unsigned char>(i);
    }
    if (rest != nullptr) {
      *rest = *whole;
      rest->sm.smCount = multiprocessors - group_count * group_size;
      rest->_internal_padding[0] = group_count;
    }
    return CUDA_SUCCESS;
  };
  driver.cuDevResourceGenerateDesc = [](CUdevResourceDesc* description, CUdevResource* parts, unsigned count) {
    auto* made = partitions.add(new Partition);
    for (unsigned i = 0; i < count; ++i) made->groups.insert(parts[i]._internal_padding[0]);
    return *description = reinterpret_cast<CUdevResourceDesc>(made), CUDA_SUCCESS;
  };
  driver.cuGreenCtxCreate = [](CUgreenCtx* context, CUdevResourceDesc description, CUdevice, unsigned flags) {
    auto* made = reinterpret_cast<Partition*>(description);
    if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
    if (green_create != CUDA_SUCCESS) return delete partitions.remove(made), green_create.load();
    groups_in_use.insert(made->groups.begin(), made->groups.end());
    return *context = reinterpret_cast<CUgreenCtx>(made), CUDA_SUCCESS;
  };
  driver.cuGreenCtxDestroy = [](CUgreenCtx context) {
    auto* gone = partitions.remove(reinterpret_cast<Partition*>(context));
    for (const unsigned group : gone->groups) groups_in_use.erase(groups_in_use.find(group));
    return delete gone, CUDA_SUCCESS;
  };
  driver.cuGreenCtxStreamCreate = [](CUstream* stream, CUgreenCtx context, unsigned flags, int priority) {
    if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    if (streams_to_come-- <= 0) return CUDA_ERROR_OUT_OF_MEMORY;
    return *stream = reinterpret_cast<CUstream>(streams.add(new Stream(priority, context))), CUDA_SUCCESS;
  };
  driver.has_partitions = true;
}

}  // namespace gpumap::fake_cuda
