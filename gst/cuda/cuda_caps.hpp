// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>

namespace gpumap::gst {

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
