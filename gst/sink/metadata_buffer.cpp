// SPDX-License-Identifier: MIT
#include "gst/sink/metadata_buffer.hpp"

#include <gst/video/video.h>

#include "gst/analytics/analytics_metas.hpp"
#include "gst/memory/video_layout.hpp"

namespace gpumap::gst {

namespace {

/// GStreamer copies these with the memory only.
void copy_metas_on_memory(GstBuffer* to, GstBuffer* from) {
  static const GQuark on_memory = g_quark_from_static_string(GST_META_TAG_MEMORY_STR);
  static const GQuark copying = g_quark_from_static_string("gst-copy");
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(from, &state)) {
    if (!gst_meta_api_type_has_tag(meta->info->api, on_memory) || meta->info->transform_func == nullptr) continue;
    GstMetaTransformCopy whole{FALSE, 0, static_cast<gsize>(-1)};
    meta->info->transform_func(to, meta, from, copying, &whole);
  }
}

/// Upstream's own functions to map its planes know upstream's memory, which stays behind: the bytes of a slot lie as
/// offsets and strides say, and GStreamer's own functions read them so.
void map_planes_by_layout(GstBuffer* carrier) {
  static const GstVideoMeta usual = [] {
    GstBuffer* any = gst_buffer_new();
    const GstVideoMeta made = *gst_buffer_add_video_meta(any, GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_GRAY8, 1, 1);
    gst_buffer_unref(any);
    return made;
  }();
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta_filtered(carrier, &state, GST_VIDEO_META_API_TYPE)) {
    auto* layout = reinterpret_cast<GstVideoMeta*>(meta);
    layout->map = usual.map;
    layout->unmap = usual.unmap;
  }
}

enum class Metas { none, layout, others };

/// Layout: GstVideoMeta alone, which every frame of a pool has and which looks at no memory.
Metas metas_of(GstBuffer* buffer) {
  gpointer state = nullptr;
  auto found = Metas::none;
  while (GstMeta* meta = gst_buffer_iterate_meta(buffer, &state)) {
    if (meta->info->api != GST_VIDEO_META_API_TYPE) return Metas::others;
    found = Metas::layout;
  }
  return found;
}

}  // namespace

GstBuffer* carrier_of(GstBuffer* from) {
  GstBuffer* carrier = gst_buffer_new();
  const Metas metas = metas_of(from);
  // Some (GstAudioMeta) look at how much memory there is: it is lent meanwhile.
  for (guint i = 0; metas == Metas::others && i < gst_buffer_n_memory(from); ++i) {
    gst_buffer_append_memory(carrier, gst_buffer_get_memory(from, i));
  }
  gst_buffer_copy_into(carrier, from, metas == Metas::none ? copy_flags_and_times : copy_all_but_memory, 0,
                       static_cast<gsize>(-1));
  if (metas != Metas::none) {
    copy_metas_on_memory(carrier, from);
    map_planes_by_layout(carrier);
  }
  if (metas == Metas::others) {
    copy_tensors(carrier, from);
    gst_buffer_remove_all_memory(carrier);
  }
  GST_BUFFER_FLAG_UNSET(carrier, GST_BUFFER_FLAG_TAG_MEMORY);
  return carrier;
}

}  // namespace gpumap::gst
