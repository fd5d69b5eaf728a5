// SPDX-License-Identifier: MIT
#include "caps.hpp"

namespace gpumap::gst {

namespace {

bool is_system(const GstCapsFeatures* features) {
  return features == nullptr || (!gst_caps_features_is_any(features) &&
                                 gst_caps_features_is_equal(features, GST_CAPS_FEATURES_MEMORY_SYSTEM_MEMORY));
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
  GstCaps* copy = gst_caps_copy(caps);
  for (guint i = 0; i < gst_caps_get_size(copy); ++i) {
    gst_caps_set_features(copy, i, gpu ? gst_caps_features_new(feature_name, nullptr) : nullptr);
  }
  return copy;
}

GstCaps* system_only(const GstCaps* caps) {
  if (gst_caps_is_any(caps)) return gst_caps_new_any();
  GstCaps* kept = gst_caps_new_empty();
  for (guint i = 0; i < gst_caps_get_size(caps); ++i) {
    const GstCapsFeatures* features = gst_caps_get_features(caps, i);
    // ANY features intersect with system memory, so narrow them instead of dropping them.
    if (!is_system(features) && !gst_caps_features_is_any(features)) continue;
    gst_caps_append_structure(kept, gst_structure_copy(gst_caps_get_structure(caps, i)));
  }
  return kept;
}

}  // namespace gpumap::gst
