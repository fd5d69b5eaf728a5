// SPDX-License-Identifier: MIT
#include "gst/analytics/analytics_library.hpp"

#include "gst/runtime_library.hpp"

namespace gpumap::gst {

namespace {

AnalyticsLibrary open_library() {
  AnalyticsLibrary made;
  RuntimeLibrary library("libgstanalytics-1.0.so.0");
  const std::string packages = "libgstreamer-plugins-bad1.0-0 of GStreamer ";
#define GPUMAP_GST_ANALYTICS_LOAD(result, name, ...) library.find(#name, made.name);
  GPUMAP_GST_TENSORS(GPUMAP_GST_ANALYTICS_LOAD)
  made.tensors_problem = library.problem(packages + "1.26 or newer", "1.26");
  GPUMAP_GST_RELATIONS(GPUMAP_GST_ANALYTICS_LOAD)
  made.relations_problem = library.problem(packages + "1.24 or newer", "1.24");
#undef GPUMAP_GST_ANALYTICS_LOAD
  return made;
}

}  // namespace

const AnalyticsLibrary& AnalyticsLibrary::get() {
  static const auto* const library = new AnalyticsLibrary(open_library());
  return *library;
}

}  // namespace gpumap::gst
