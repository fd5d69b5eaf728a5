// SPDX-License-Identifier: MIT
#include "gst/sink/carrier.hpp"

#include <gst/video/video.h>

#include "gst/analytics/tensors.hpp"
#include "gst/memory/copy_flags.hpp"

namespace gpumap::gst {

namespace {

/// GStreamer copies these with the memory only.
void copy_metas_on_memory(GstBuffer* to, GstBuffer* from) {
  static const GQuark on_memory = g_quark_from_static_string(GST_META_TAG_MEMORY_STR);
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(from, &state)) {
    if (!gst_meta_api_type_has_tag(meta->info->api, on_memory) || meta->info->transform_func == nullptr) continue;
    GstMetaTransformCopy whole{FALSE, 0, static_cast<gsize>(-1)};
    meta->info->transform_func(to, meta, from, g_quark_from_static_string("gst-copy"), &whole);
  }
}

/// Than GstVideoMeta, which every frame of a pool has and which looks at no memory.
bool has_other_metas(GstBuffer* buffer) {
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(buffer, &state)) {
    if (meta->info->api != GST_VIDEO_META_API_TYPE) return true;
  }
  return false;
}

}  // namespace

GstBuffer* carrier_of(GstBuffer* from) {
  GstBuffer* carrier = gst_buffer_new();
  const bool has_metas = has_other_metas(from);
  // Some (GstAudioMeta) look at how much memory there is: it is lent meanwhile.
  for (guint i = 0; has_metas && i < gst_buffer_n_memory(from); ++i) {
    gst_buffer_append_memory(carrier, gst_buffer_get_memory(from, i));
  }
  gst_buffer_copy_into(carrier, from, copy_all_but_memory, 0, static_cast<gsize>(-1));
  copy_metas_on_memory(carrier, from);
  copy_tensors(carrier, from);
  if (has_metas) gst_buffer_remove_all_memory(carrier);
  GST_BUFFER_FLAG_UNSET(carrier, GST_BUFFER_FLAG_TAG_MEMORY);
  return carrier;
}

}  // namespace gpumap::gst
