// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <initializer_list>

namespace gpumap::gst {

/// Caps feature of buffers whose memory the GPU reads in place.
inline constexpr const char* feature_name = "memory:GPUMap";

/// Whether they name `feature`. Null, which is system memory, and ANY name none.
[[nodiscard]] bool has_feature(const GstCapsFeatures* features, const char* feature);
/// No memory feature but memory:SystemMemory. Features of other kinds (format:Interlaced, meta:...) say nothing about
/// the memory; ANY is any memory.
[[nodiscard]] bool is_system_memory(const GstCapsFeatures* features);

/// The first structure asks for `feature`.
[[nodiscard]] bool begins_with_feature(const GstCaps* caps, const char* feature);
/// The same of `memory:GPUMap`.
[[nodiscard]] inline bool is_gpu_caps(const GstCaps* caps) {
  return begins_with_feature(caps, feature_name);
}
/// True when every structure is for system memory.
[[nodiscard]] bool is_system_caps(const GstCaps* caps);
/// A copy (transfer full) with the memory feature of every structure set to GPUMap or to system memory; other features
/// stay, and so does ANY.
[[nodiscard]] GstCaps* with_feature(const GstCaps* caps, bool gpu);
/// `caps`, which are not ANY, in either of the two memories (transfer full), GPUMap first.
[[nodiscard]] GstCaps* in_either_memory(const GstCaps* caps);
/// The structures of `caps` (transfer full) that are for one of the two memories, or for a `third` one by the name of
/// its feature, as for system memory.
[[nodiscard]] GstCaps* from_either_memory(const GstCaps* caps, const char* third = nullptr);
/// The structures of `caps` (transfer full) that are for system memory.
[[nodiscard]] GstCaps* system_only(const GstCaps* caps);
/// The structures of `caps` (transfer full), which are not ANY, that have the memory feature, or have it not.
[[nodiscard]] GstCaps* structures_by(const GstCaps* caps, const char* feature, bool with);
/// What of the structures of `caps`, which are not ANY, that are for GPUMap fits into `known` with one of `features`
/// instead (transfer full): each with the one feature after the other.
[[nodiscard]] GstCaps* gpu_caps_as(const GstCaps* caps, std::initializer_list<const char*> features, const char* known);

/// Whether `fits(features)` holds for those of every structure of `caps`.
template <typename Fits>
[[nodiscard]] bool all_features(const GstCaps* caps, Fits fits) {
  for (guint i = 0; i < gst_caps_get_size(caps); ++i) {
    if (!fits(gst_caps_get_features(caps, i))) return false;
  }
  return true;
}
/// What `append(made, structure, features)` appends to `made` for each structure of `caps` (transfer full). ANY has no
/// structures.
template <typename Append>
[[nodiscard]] GstCaps* of_each_structure(const GstCaps* caps, Append append) {
  GstCaps* made = gst_caps_new_empty();
  for (guint i = 0; i < gst_caps_get_size(caps); ++i) {
    append(made, gst_caps_get_structure(caps, i), gst_caps_get_features(caps, i));
  }
  return made;
}
/// The structures of `caps`, which are not ANY, whose features fit (transfer full).
template <typename Fits>
[[nodiscard]] GstCaps* structures_if(const GstCaps* caps, Fits fits) {
  return of_each_structure(caps, [&](GstCaps* made, const GstStructure* structure, const GstCapsFeatures* features) {
    if (!fits(features)) return;
    gst_caps_append_structure_full(made, gst_structure_copy(structure),
                                   features != nullptr ? gst_caps_features_copy(features) : nullptr);
  });
}

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

/// Whether the gpumap element that makes the frames before `sinkpad` gives GPU memory by now, or is about to choose
/// anew: a frame in ordinary memory was made for the element that was linked there before, and may wait in a queue.
[[nodiscard]] bool upstream_gives_gpu_memory(GstPad* sinkpad);
/// Whether `query` is that of upstream_gives_gpu_memory().
[[nodiscard]] bool asks_for_gpu_memory(const GstQuery* query);

/// From now on a link of `srcpad` that ends leaves plain caps on it: the next peer may know nothing of GPU memory, and
/// gets the caps of the pad before it is asked.
void forget_memory_at_unlink(GstPad* srcpad);

}  // namespace gpumap::gst
