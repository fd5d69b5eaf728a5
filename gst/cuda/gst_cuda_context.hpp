// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>

#include "gpumap/device.hpp"
#include "gst/cuda/gst_cuda_api.hpp"

namespace gpumap::gst {

/// libgstcuda, opened at run time: it brings libgstgl, EGL, X11 and Wayland into the process, which nobody needs whose
/// GPU has no CUDA. GStreamer's CUDA elements then find the same copy of it.
struct CudaLibrary {
#define GPUMAP_GST_CUDA_MEMBER(result, name, ...) result (*name)(__VA_ARGS__) = nullptr;
  GPUMAP_GST_CUDA(GPUMAP_GST_CUDA_MEMBER)
  GPUMAP_GST_CUDA_STREAMS(GPUMAP_GST_CUDA_MEMBER)  // all of them, where has_streams
  GPUMAP_GST_CUDA_ORDER(GPUMAP_GST_CUDA_MEMBER)    // null where GStreamer is older than 1.26
#undef GPUMAP_GST_CUDA_MEMBER
  bool has_streams = false;
  std::string problem;  ///< what is missing and how to get it; empty where it all is there

  /// The process's, initialised. Thread-safe.
  [[nodiscard]] static const CudaLibrary& get();
};

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

/// Caps feature of the frames of GStreamer's own CUDA elements (libgstcuda).
inline constexpr const char* cuda_feature_name = "memory:CUDAMemory";

/// True when the first structure asks for `memory:CUDAMemory`.
[[nodiscard]] bool is_cuda_caps(const GstCaps* caps);
/// True where there are structures, and all of them ask for it.
[[nodiscard]] bool is_cuda_only(const GstCaps* caps);

/// What of `caps`, raw video or tensors in system memory, CUDA memory can hold, as for that (transfer full). Empty:
/// nothing.
[[nodiscard]] GstCaps* in_cuda_memory(const GstCaps* caps);

/// `caps` (transfer full, both), as transform_kernel_caps() gives them, with what of them CUDA memory can hold after
/// that which asks for memory:GPUMap: tensors, and raw video in the formats that every libgstcuda knows.
[[nodiscard]] GstCaps* offer_cuda(GstCaps* caps);

/// Of `caps` (transfer full, both), which what follows `srcpad` takes, only those of the memory nearest to the GPU that
/// it names: GPUMap, else CUDA's, else Vulkan's, else system memory. Where it takes no system memory either: `caps`.
[[nodiscard]] GstCaps* nearest_memory(GstPad* srcpad, GstCaps* caps);

/// `caps` (transfer full) without what is for system memory, where the rest asks for CUDA's or Vulkan's alone; else
/// null.
[[nodiscard]] GstCaps* without_system_memory(const GstCaps* caps);

/// Why what follows a gpumapkernel, which takes nothing but CUDA memory, gets none. `obstacle`: as cuda_obstacle() says
/// it; where that is empty, it is for what comes in, `format`.
[[nodiscard]] std::string cuda_refusal_text(const std::string& obstacle, const std::string& format);

}  // namespace gpumap::gst
