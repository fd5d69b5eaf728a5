// SPDX-License-Identifier: MIT
#include "elements.hpp"

#include "kernel.hpp"
#include "latency_meta.hpp"
#include "latency_tracer.hpp"
#include "sink.hpp"
#include "src.hpp"

gboolean gpumap_register_elements(GstPlugin* plugin) {
  static const gchar* tags[] = {nullptr};
  if (gst_meta_get_info("GpumapResult") == nullptr) {
    gst_meta_register_custom("GpumapResult", tags, nullptr, nullptr, nullptr);
  }
  gpumap::gst::register_latency_meta();
  return static_cast<gboolean>(
      gpumap_register_latency_tracer(plugin) != 0 &&
      gst_element_register(plugin, "gpumapsink", GST_RANK_NONE, gst_gpumap_sink_get_type()) != 0 &&
      gst_element_register(plugin, "gpumapsrc", GST_RANK_NONE, gst_gpumap_src_get_type()) != 0 &&
      gst_element_register(plugin, "gpumapkernel", GST_RANK_NONE, gst_gpumap_kernel_get_type()) != 0);
}
