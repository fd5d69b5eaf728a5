// SPDX-License-Identifier: MIT
#include "gst/memory/caps.hpp"

namespace gpumap::gst {

namespace {

bool is_memory(const gchar* feature) {
  return g_str_has_prefix(feature, "memory:") != 0;
}

/// Features of other kinds (format:Interlaced, meta:...) say nothing about the memory.
bool is_system(const GstCapsFeatures* features) {
  if (features == nullptr) return true;
  if (gst_caps_features_is_any(features)) return false;
  for (guint i = 0; i < gst_caps_features_get_size(features); ++i) {
    const gchar* feature = gst_caps_features_get_nth(features, i);
    if (is_memory(feature) && g_strcmp0(feature, GST_CAPS_FEATURE_MEMORY_SYSTEM_MEMORY) != 0) return false;
  }
  return true;
}

/// A copy (transfer full) with this memory feature in every structure; null: system memory.
GstCaps* with_memory(const GstCaps* caps, const char* memory) {
  GstCaps* copy = gst_caps_copy(caps);
  for (guint i = 0; i < gst_caps_get_size(copy); ++i) {
    GstCapsFeatures* features = gst_caps_features_new_empty();
    const GstCapsFeatures* before = gst_caps_get_features(caps, i);
    for (guint j = 0; j < gst_caps_features_get_size(before); ++j) {
      const gchar* feature = gst_caps_features_get_nth(before, j);
      if (!is_memory(feature)) gst_caps_features_add(features, feature);
    }
    if (memory != nullptr) gst_caps_features_add(features, memory);
    gst_caps_set_features(copy, i, features);
  }
  return copy;
}

/// The structures (transfer full) whose features `fit`; ANY features intersect with any, so they are narrowed to system
/// memory instead of dropped.
template <typename Fits>
GstCaps* only(const GstCaps* caps, Fits fits) {
  if (gst_caps_is_any(caps)) return gst_caps_new_any();
  GstCaps* kept = gst_caps_new_empty();
  for (guint i = 0; i < gst_caps_get_size(caps); ++i) {
    const GstCapsFeatures* features = gst_caps_get_features(caps, i);
    const bool any = gst_caps_features_is_any(features) != 0;
    if (!any && !fits(features)) continue;
    gst_caps_append_structure_full(kept, gst_structure_copy(gst_caps_get_structure(caps, i)),
                                   any ? nullptr : gst_caps_features_copy(features));
  }
  return kept;
}

/// A CAPS query finds its way through queue, tee, identity and capsfilter, where ACCEPT_CAPS may end at a template.
bool peer_takes(GstPad* srcpad, const GstCaps* caps, const char* memory) {
  GstCaps* asked = with_memory(caps, memory);
  GstCaps* answer = gst_pad_peer_query_caps(srcpad, asked);
  const bool takes = gst_caps_can_intersect(answer, asked) != 0;  // some answer more than they were asked
  gst_caps_unref(answer);
  gst_caps_unref(asked);
  return takes;
}

}  // namespace

bool is_gpu_caps(const GstCaps* caps) {
  if (caps == nullptr || gst_caps_is_any(caps) || gst_caps_is_empty(caps)) return false;
  const GstCapsFeatures* features = gst_caps_get_features(caps, 0);
  return features != nullptr && !gst_caps_features_is_any(features) &&
         gst_caps_features_contains(features, feature_name);
}

bool is_system_caps(const GstCaps* caps) {
  for (guint i = 0; i < gst_caps_get_size(caps); ++i) {
    if (!is_system(gst_caps_get_features(caps, i))) return false;
  }
  return true;
}

GstCaps* with_feature(const GstCaps* caps, bool gpu) {
  return with_memory(caps, gpu ? feature_name : nullptr);
}

GstCaps* in_either_memory(const GstCaps* caps) {
  GstCaps* both = with_feature(caps, true);
  gst_caps_append(both, with_feature(caps, false));
  return both;
}

GstCaps* system_only(const GstCaps* caps) {
  return only(caps, [](const GstCapsFeatures* features) { return is_system(features); });
}

GstCaps* from_either_memory(const GstCaps* caps) {
  GstCaps* kept = only(caps, [](const GstCapsFeatures* features) {
    return is_system(features) || gst_caps_features_contains(features, feature_name) != 0;
  });
  if (gst_caps_is_any(kept)) return kept;
  GstCaps* plain = with_feature(kept, false);
  gst_caps_unref(kept);
  return gst_caps_merge(gst_caps_new_empty(), plain);  // what both memories have is there once, in the same order
}

GstCaps* structures_by(const GstCaps* caps, const char* feature, bool with) {
  GstCaps* kept = gst_caps_new_empty();
  for (guint i = 0; i < gst_caps_get_size(caps); ++i) {
    const GstCapsFeatures* features = gst_caps_get_features(caps, i);
    const bool has = features != nullptr && !gst_caps_features_is_any(features) &&
                     gst_caps_features_contains(features, feature) != 0;
    if (has != with) continue;
    gst_caps_append_structure_full(kept, gst_structure_copy(gst_caps_get_structure(caps, i)),
                                   features != nullptr ? gst_caps_features_copy(features) : nullptr);
  }
  return kept;
}

bool peer_names_memory(GstPad* srcpad, const GstCaps* caps, const char* feature) {
  constexpr const char* of_no_one = "memory:GPUMapNobody";
  return peer_takes(srcpad, caps, feature) && !peer_takes(srcpad, caps, of_no_one);
}

namespace {

constexpr const char* reads_query = "gpumap-reads-gpu-memory";

}  // namespace

bool peer_reads_gpu_memory(GstPad* srcpad) {
  // Elements pass on what they do not know, a tee to one branch after the other until one answers.
  GstQuery* query = gst_query_new_custom(GST_QUERY_CUSTOM, gst_structure_new_empty(reads_query));
  const bool reads = gst_pad_peer_query(srcpad, query) != 0;
  gst_query_unref(query);
  return reads;
}

bool answer_reads_gpu_memory(const GstQuery* query) {
  return GST_QUERY_TYPE(query) == GST_QUERY_CUSTOM &&
         gst_structure_has_name(gst_query_get_structure(const_cast<GstQuery*>(query)), reads_query) != 0;
}

}  // namespace gpumap::gst
