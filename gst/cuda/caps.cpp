// SPDX-License-Identifier: MIT
#include "gst/cuda/caps.hpp"

#include <fmt/format.h>

#include "gst/memory/caps.hpp"
#include "gst/vulkan/caps.hpp"

namespace gpumap::gst {

namespace {

// What the allocator of libgstcuda 1.22 lays out. For any other format it ends the process, so nothing else may reach
// it: GRAY8 and v210 come later, if at all. Of the second ones it puts the last plane of an odd height where its
// copies for the CPU do not reach; of NV21 it allocates, from 1.24 on, a row too few.
constexpr const char* cuda_caps =
    "video/x-raw(memory:CUDAMemory), format={ NV12, P010_10LE, P016_LE, Y444, Y444_16LE, BGRA, RGBA, RGBx, BGRx, "
    "ARGB, ABGR, RGB, BGR, BGR10A2_LE, RGB10A2_LE, Y42B, I422_10LE, I422_12LE, YUY2, UYVY, RGBP, BGRP, GBR, GBRA }; "
    "video/x-raw(memory:CUDAMemory), format={ I420, YV12, I420_10LE, NV21 }, height=[2,2147483646,2]";

bool asks_for_cuda(const GstCapsFeatures* features) {
  return features != nullptr && !gst_caps_features_is_any(features) &&
         gst_caps_features_contains(features, cuda_feature_name);
}

}  // namespace

bool is_cuda_caps(const GstCaps* caps) {
  if (caps == nullptr || gst_caps_is_any(caps) || gst_caps_is_empty(caps)) return false;
  return asks_for_cuda(gst_caps_get_features(caps, 0));
}

bool is_cuda_only(const GstCaps* caps) {
  if (!is_cuda_caps(caps)) return false;
  for (guint i = 1; i < gst_caps_get_size(caps); ++i) {
    if (!asks_for_cuda(gst_caps_get_features(caps, i))) return false;
  }
  return true;
}

GstCaps* offer_cuda(GstCaps* caps) {
  if (gst_caps_is_any(caps)) return caps;
  GstCaps* offered = structures_by(caps, feature_name, true);
  GstCaps* others = structures_by(caps, feature_name, false);
  GstCaps* asked = gst_caps_new_empty();
  for (guint i = 0; i < gst_caps_get_size(offered); ++i) {
    // Interlaced in other ways than the GPU's elements know it, or with metas of its own: they are not asked about it.
    if (gst_caps_features_get_size(gst_caps_get_features(offered, i)) != 1) continue;
    gst_caps_append_structure_full(asked, gst_structure_copy(gst_caps_get_structure(offered, i)),
                                   gst_caps_features_new(cuda_feature_name, nullptr));
  }
  GstCaps* known = gst_caps_from_string(cuda_caps);
  gst_caps_append(offered, gst_caps_intersect_full(asked, known, GST_CAPS_INTERSECT_FIRST));
  gst_caps_append(offered, others);
  gst_caps_unref(asked);
  gst_caps_unref(known);
  gst_caps_unref(caps);
  return offered;
}

GstCaps* nearest_memory(GstPad* srcpad, GstCaps* caps) {
  GstCaps* nearest = nullptr;
  for (const char* feature : {feature_name, cuda_feature_name, vulkan_feature_names[0], vulkan_feature_names[1]}) {
    nearest = structures_by(caps, feature, true);
    if (!gst_caps_is_empty(nearest) && peer_names_memory(srcpad, nearest, feature)) break;
    gst_clear_caps(&nearest);
  }
  if (nearest == nullptr) nearest = system_only(caps);
  if (gst_caps_is_empty(nearest)) {
    gst_caps_unref(nearest);
    return caps;
  }
  gst_caps_unref(caps);
  return nearest;
}

GstCaps* without_system_memory(const GstCaps* caps) {
  if (gst_caps_is_any(caps)) return nullptr;
  GstCaps* theirs = gst_caps_new_empty();
  for (const char* feature : {cuda_feature_name, vulkan_feature_names[0], vulkan_feature_names[1]}) {
    gst_caps_append(theirs, structures_by(caps, feature, true));
  }
  GstCaps* ours = structures_by(caps, feature_name, true);
  if (gst_caps_is_empty(theirs) || !gst_caps_is_empty(ours)) gst_clear_caps(&theirs);
  gst_caps_unref(ours);
  return theirs;
}

std::string cuda_refusal_text(const std::string& obstacle, const std::string& format) {
  if (!obstacle.empty()) {
    return fmt::format(
        "what follows gpumapkernel takes memory:CUDAMemory only, and that cannot be given: {}; or ask for "
        "system memory (video/x-raw) after gpumapkernel",
        obstacle);
  }
  return fmt::format(
      "what follows gpumapkernel takes memory:CUDAMemory only, and the kernel gives nothing that fits in "
      "there of {}: CUDA memory holds raw video, but no GRAY8, GRAY16_LE, v210 or Y210, and I420, YV12, "
      "I420_10LE and NV21 only with an even height: use kernel=convert and ask for RGBA, BGRA or RGB, or for "
      "system memory (video/x-raw) after gpumapkernel",
      format);
}

}  // namespace gpumap::gst
