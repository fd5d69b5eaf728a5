// SPDX-License-Identifier: MIT
#include "gst/kernel/metas.hpp"

#include <gst/audio/audio.h>
#include <gst/video/video.h>

#include <algorithm>

namespace gpumap::gst {

namespace {

bool has_tag(const GstMetaInfo& info, GQuark tag) {
  return gst_meta_api_type_has_tag(info.api, tag) != 0;
}

/// Looked up once: each look takes a lock of the whole process.
struct Quarks {
  GQuark memory = g_quark_from_static_string(GST_META_TAG_MEMORY_STR);
  GQuark memory_reference = g_quark_from_static_string(GST_META_TAG_MEMORY_REFERENCE_STR);
  GQuark rate = g_quark_from_static_string(GST_META_TAG_AUDIO_RATE_STR);
  GQuark channels = g_quark_from_static_string(GST_META_TAG_AUDIO_CHANNELS_STR);
  GQuark colors = g_quark_from_static_string(GST_META_TAG_VIDEO_COLORSPACE_STR);
  GQuark size = g_quark_from_static_string(GST_META_TAG_VIDEO_SIZE_STR);
  GQuark copy = g_quark_from_static_string("gst-copy");
};

const Quarks& quarks() {
  static const Quarks found;
  return found;
}

/// The same field in both, or in neither.
bool agree(const GstStructure* one, const GstStructure* other, const char* field) {
  return g_strcmp0(gst_structure_get_string(one, field), gst_structure_get_string(other, field)) == 0;
}

std::pair<gint, gint> size_of(const GstStructure* structure) {
  std::pair<gint, gint> size;
  gst_structure_get_int(structure, "width", &size.first);
  gst_structure_get_int(structure, "height", &size.second);
  return size;
}

void copy(GstBuffer* out, GstMeta* meta, GstBuffer* in) {
  GstMetaTransformCopy all{FALSE, 0, static_cast<gsize>(-1)};
  if (meta->info->transform_func != nullptr) {
    meta->info->transform_func(out, meta, in, quarks().copy, &all);
  }
}

/// A length or a place along one axis, of `shown` pixels that become `size`.
guint scaled(gint64 length, gint shown, gint size) {
  return static_cast<guint>(length * size / shown);
}

void move_region(GstBuffer* out, const GstVideoRegionOfInterestMeta& region, const MetaRule::Picture& picture) {
  const gint64 left = std::max<gint64>(gint64{region.x} - picture.x, 0);
  const gint64 top = std::max<gint64>(gint64{region.y} - picture.y, 0);
  const gint64 right = std::min<gint64>(gint64{region.x} + region.w - picture.x, picture.shown_width);
  const gint64 bottom = std::min<gint64>(gint64{region.y} + region.h - picture.y, picture.shown_height);
  if (left >= right || top >= bottom) return;  // not shown
  GstVideoRegionOfInterestMeta* moved = gst_buffer_add_video_region_of_interest_meta_id(
      out, region.roi_type, scaled(left, picture.shown_width, picture.width),
      scaled(top, picture.shown_height, picture.height), scaled(right - left, picture.shown_width, picture.width),
      scaled(bottom - top, picture.shown_height, picture.height));
  moved->id = region.id;
  moved->parent_id = region.parent_id;
  for (const GList* param = region.params; param != nullptr; param = param->next) {
    gst_video_region_of_interest_meta_add_param(moved, gst_structure_copy(static_cast<GstStructure*>(param->data)));
  }
}

void move(GstBuffer* out, GstMeta* meta, GstBuffer* in, const MetaRule::Picture& picture) {
  if (meta->info->api == GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE) {
    move_region(out, *reinterpret_cast<GstVideoRegionOfInterestMeta*>(meta), picture);
    return;
  }
  // Of the rest GStreamer knows how to scale, not to crop.
  if (picture.x != 0 || picture.y != 0 || meta->info->transform_func == nullptr) return;
  GstVideoInfo from;
  GstVideoInfo to;
  gst_video_info_set_format(&from, GST_VIDEO_FORMAT_RGB, static_cast<guint>(picture.shown_width),
                            static_cast<guint>(picture.shown_height));
  gst_video_info_set_format(&to, GST_VIDEO_FORMAT_RGB, static_cast<guint>(picture.width),
                            static_cast<guint>(picture.height));
  GstVideoMetaTransform sizes{&from, &to};
  meta->info->transform_func(out, meta, in, gst_video_meta_transform_scale_get_quark(), &sizes);
}

}  // namespace

MetaRule meta_rule(const std::optional<Crop>& crop, bool keeps_bytes, const GstCaps* in, const GstCaps* out) {
  const GstStructure* from = gst_caps_get_structure(in, 0);
  const GstStructure* to = gst_caps_get_structure(out, 0);
  MetaRule rule;
  rule.keeps_bytes = keeps_bytes;
  rule.keeps_colors = keeps_bytes || (g_strcmp0(gst_structure_get_name(from), gst_structure_get_name(to)) == 0 &&
                                      agree(from, to, "format") && agree(from, to, "colorimetry"));
  const auto [width, height] = size_of(from);
  const auto [out_width, out_height] = size_of(to);
  if (width <= 0 || height <= 0 || out_width <= 0 || out_height <= 0) return rule;
  MetaRule::Picture picture{.shown_width = width, .shown_height = height, .width = out_width, .height = out_height};
  if (crop) {
    picture.x = crop->width.start;
    picture.y = crop->height.start;
    picture.shown_width = crop->width.shown_of(width);
    picture.shown_height = crop->height.shown_of(height);
  }
  // Any other kernel may have turned the picture, or put several into one.
  if (crop || !picture.is_moved()) rule.picture = picture;
  return rule;
}

void copy_metas(GstBuffer* out, GstBuffer* in, const MetaRule& rule) {
  const Quarks& tags = quarks();
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(in, &state)) {
    const GstMetaInfo& info = *meta->info;
    if (has_tag(info, tags.memory) || has_tag(info, tags.memory_reference)) continue;
    if (!rule.keeps_bytes) {
      if (info.api == GST_AUDIO_META_API_TYPE) continue;  // where each channel's plane lies
      if (has_tag(info, tags.rate) || has_tag(info, tags.channels)) continue;
      if (has_tag(info, tags.colors) && !rule.keeps_colors) continue;
      const bool has_size = has_tag(info, tags.size) || info.api == GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE;
      if (has_size && !rule.picture) continue;
      if (has_size && rule.picture->is_moved()) {
        move(out, meta, in, *rule.picture);
        continue;
      }
    }
    copy(out, meta, in);
  }
}

}  // namespace gpumap::gst
