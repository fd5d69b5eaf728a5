// SPDX-License-Identifier: MIT
#include "gst/elements.hpp"

#include <gst/tag/tag.h>
#include <gst/video/video.h>

#include <exception>

#include "gst/latency/latency_report.hpp"
#include "gst/radio/radio_metas.hpp"

GST_DEBUG_CATEGORY(gpumap_sink_debug);
GST_DEBUG_CATEGORY(gpumap_src_debug);

namespace {

/// GStreamer registers these types and tags at their first use, which in another process is a decoder's: what comes of
/// that decoder through a socket has them, too.
void know_what_decoders_say() {
  g_type_ensure(GST_TYPE_VIDEO_MULTIVIEW_FLAGSET);
  g_type_ensure(GST_TYPE_TAG_IMAGE_TYPE);
  gst_tag_register_musicbrainz_tags();
}

/// GStreamer may bring libunwind along, which then unwinds for this plugin, too. At its first exception it opens a
/// pipe, and where it gets none the process ends: so the first one is not that which says that no descriptor is left.
void throw_once() {
  try {
    throw std::exception();
  } catch (const std::exception&) {
    return;
  }
}

/// An application may register one element alone: the metas of its frames come with it, and the categories of what
/// others share, as gpumapupload does gpumapsink's slots.
GType with_metas(GType element) {
  GST_DEBUG_CATEGORY_INIT(gpumap_sink_debug, "gpumapsink", 0, "gpumap sink");
  GST_DEBUG_CATEGORY_INIT(gpumap_src_debug, "gpumapsrc", 0, "gpumap source");
  know_what_decoders_say();
  throw_once();
  static const gchar* tags[] = {nullptr};
  for (const char* name : {"GpumapResult", "GpumapLateResults"}) {
    if (gst_meta_get_info(name) == nullptr) gst_meta_register_custom(name, tags, nullptr, nullptr, nullptr);
  }
  gpumap::gst::register_latency_meta();
  gpumap::gst::register_radio_metas();
  return element;
}

}  // namespace

GST_ELEMENT_REGISTER_DEFINE(gpumapsink, "gpumapsink", GST_RANK_NONE, with_metas(gst_gpumap_sink_get_type()))
GST_ELEMENT_REGISTER_DEFINE(gpumapsrc, "gpumapsrc", GST_RANK_NONE, with_metas(gst_gpumap_src_get_type()))
GST_ELEMENT_REGISTER_DEFINE(gpumapkernel, "gpumapkernel", GST_RANK_NONE, with_metas(gst_gpumap_kernel_get_type()))
GST_ELEMENT_REGISTER_DEFINE(gpumapupload, "gpumapupload", GST_RANK_NONE, with_metas(gst_gpumap_upload_get_type()))
GST_ELEMENT_REGISTER_DEFINE(gpumapdownload, "gpumapdownload", GST_RANK_NONE, with_metas(gst_gpumap_download_get_type()))
GST_ELEMENT_REGISTER_DEFINE(sigmfsink, "sigmfsink", GST_RANK_NONE, with_metas(gst_sigmf_sink_get_type()))
GST_ELEMENT_REGISTER_DEFINE(sigmfsrc, "sigmfsrc", GST_RANK_NONE, with_metas(gst_sigmf_src_get_type()))

gboolean gpumap_register_elements(GstPlugin* plugin) {
  return static_cast<gboolean>(
      gpumap_register_latency_tracer(plugin) != 0 && GST_ELEMENT_REGISTER(gpumapsink, plugin) != 0 &&
      GST_ELEMENT_REGISTER(gpumapsrc, plugin) != 0 && GST_ELEMENT_REGISTER(gpumapkernel, plugin) != 0 &&
      GST_ELEMENT_REGISTER(gpumapupload, plugin) != 0 && GST_ELEMENT_REGISTER(gpumapdownload, plugin) != 0 &&
      GST_ELEMENT_REGISTER(sigmfsink, plugin) != 0 && GST_ELEMENT_REGISTER(sigmfsrc, plugin) != 0);
}
