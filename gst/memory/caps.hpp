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
/// `caps`, which are not ANY, in either of the two memories (transfer full), GPUMap first.
[[nodiscard]] GstCaps* in_either_memory(const GstCaps* caps);
/// The structures of `caps` (transfer full) that are for one of the two memories, as for system memory.
[[nodiscard]] GstCaps* from_either_memory(const GstCaps* caps);
/// The structures of `caps` (transfer full) that are for system memory.
[[nodiscard]] GstCaps* system_only(const GstCaps* caps);
/// The structures of `caps` (transfer full), which are not ANY, that have the memory feature, or have it not.
[[nodiscard]] GstCaps* structures_by(const GstCaps* caps, const char* feature, bool with);

/// Whether what follows `srcpad` takes `caps` with this memory feature because it knows that memory. Elements that take
/// anything (filesink, fakesink, textoverlay) also take memory that they know nothing of, and then write padding to a
/// file or leave out a text in silence: they do not name it, and neither does a pad that is linked to nothing.
[[nodiscard]] bool peer_names_memory(GstPad* srcpad, const GstCaps* caps, const char* feature);
[[nodiscard]] inline bool peer_names_gpu_memory(GstPad* srcpad, const GstCaps* caps) {
  return peer_names_memory(srcpad, caps, feature_name);
}

/// Whether one of the elements behind `srcpad` reads frames in GPU memory whatever the caps say: a gpumapkernel in a
/// branch of a tee whose other branches name no GPU memory.
[[nodiscard]] bool peer_reads_gpu_memory(GstPad* srcpad);
/// Answer the query of peer_reads_gpu_memory() with yes; false for any other query.
[[nodiscard]] bool answer_reads_gpu_memory(const GstQuery* query);

}  // namespace gpumap::gst
