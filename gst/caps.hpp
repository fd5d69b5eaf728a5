// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

namespace gpumap::gst {

/// Caps feature of buffers whose memory the GPU reads in place.
inline constexpr const char* feature_name = "memory:GPUMap";

/// True when the first structure asks for `memory:GPUMap`.
[[nodiscard]] bool is_gpu_caps(const GstCaps* caps);
/// True when every structure is for system memory: no memory feature but memory:SystemMemory.
[[nodiscard]] bool is_system_caps(const GstCaps* caps);
/// A copy (transfer full) with the memory feature of every structure set to GPUMap or to system memory; other features
/// stay.
[[nodiscard]] GstCaps* with_feature(const GstCaps* caps, bool gpu);
/// The structures of `caps` (transfer full) that are for system memory.
[[nodiscard]] GstCaps* system_only(const GstCaps* caps);

}  // namespace gpumap::gst
