// SPDX-License-Identifier: MIT
#include "gst/vulkan/caps.hpp"

#include <algorithm>

#include "gst/memory/caps.hpp"

namespace gpumap::gst {

namespace {

// libgstvulkan ends the process for formats that it does not know. Those here it has an image for from 1.22 on, and
// each GPU can copy. Buffers have no room between rows, whatever the caps say: so they are offered where none is to be.
constexpr const char* image_caps = "video/x-raw(memory:VulkanImage), format={ RGBA, BGRA, RGBx, BGRx, NV12 }";
constexpr const char* buffer_caps =
    "video/x-raw(memory:VulkanBuffer), format={ RGBA, BGRA, RGBx, BGRx, NV12 }, width=[4,2147483644,4]";

bool asks_for(const GstCapsFeatures* features, const char* name) {
  return features != nullptr && !gst_caps_features_is_any(features) && gst_caps_features_contains(features, name);
}

}  // namespace

bool is_vulkan_caps(const GstCaps* caps) {
  if (caps == nullptr || gst_caps_is_any(caps) || gst_caps_is_empty(caps)) return false;
  const GstCapsFeatures* features = gst_caps_get_features(caps, 0);
  return std::any_of(vulkan_feature_names.begin(), vulkan_feature_names.end(),
                     [features](const char* name) { return asks_for(features, name); });
}

GstCaps* offer_vulkan(GstCaps* caps) {
  if (gst_caps_is_any(caps)) return caps;
  GstCaps* known = gst_caps_from_string(image_caps);
  gst_caps_append(known, gst_caps_from_string(buffer_caps));
  GstCaps* ours = structures_by(caps, feature_name, true);
  GstCaps* vulkan = gst_caps_new_empty();
  for (guint i = 0; i < gst_caps_get_size(ours); ++i) {
    // Interlaced in other ways than the GPU's elements know it, or with metas of its own: they are not asked about it.
    if (gst_caps_features_get_size(gst_caps_get_features(ours, i)) != 1) continue;
    for (const char* name : vulkan_feature_names) {
      GstCaps* asked = gst_caps_new_empty();
      gst_caps_append_structure_full(asked, gst_structure_copy(gst_caps_get_structure(ours, i)),
                                     gst_caps_features_new(name, nullptr));
      gst_caps_append(vulkan, gst_caps_intersect_full(asked, known, GST_CAPS_INTERSECT_FIRST));
      gst_caps_unref(asked);
    }
  }
  gst_caps_unref(ours);
  gst_caps_unref(known);
  // Before system memory, behind that of other GPU elements.
  GstCaps* offered = gst_caps_new_empty();
  GstCaps* system = gst_caps_new_empty();
  for (guint i = 0; i < gst_caps_get_size(caps); ++i) {
    GstCaps* one = gst_caps_copy_nth(caps, i);
    gst_caps_append(is_system_caps(one) ? system : offered, one);
  }
  gst_caps_append(offered, vulkan);
  gst_caps_append(offered, system);
  gst_caps_unref(caps);
  return offered;
}

}  // namespace gpumap::gst
