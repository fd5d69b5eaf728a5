// SPDX-License-Identifier: MIT
#pragma once

#include "gpumap/device.hpp"
#include "gst/cuda/cuda_library.hpp"

namespace gpumap::gst {

/// `device`'s context as libgstcuda knows it (borrowed; the process keeps it); null where libgstcuda or CUDA is
/// missing. Thread-safe.
[[nodiscard]] GstCudaContext* shared_cuda_context(const Device& device);

/// True for a GstCudaContext of the same CUDA context, whichever library wrapped it.
[[nodiscard]] bool is_shared_context(const Device& device, GstCudaContext* context);

/// Makes the context current for its lifetime.
class CudaScope {
 public:
  /// Throws Error(device_lost).
  explicit CudaScope(GstCudaContext* context);
  ~CudaScope();
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;
};

}  // namespace gpumap::gst
