// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "gst/analytics/analytics_api.hpp"

namespace gpumap::gst {

/// libgstanalytics, opened at run time. Elements that use it find the same copy of it.
struct AnalyticsLibrary {
#define GPUMAP_GST_ANALYTICS_MEMBER(result, name, ...) result (*name)(__VA_ARGS__) = nullptr;
  GPUMAP_GST_TENSORS(GPUMAP_GST_ANALYTICS_MEMBER)
  GPUMAP_GST_RELATIONS(GPUMAP_GST_ANALYTICS_MEMBER)
#undef GPUMAP_GST_ANALYTICS_MEMBER
  /// What is missing and how to get it; empty where it all is there. Of tensors, and of what relation metas take.
  std::string tensors_problem, relations_problem;

  /// The process's. Thread-safe.
  [[nodiscard]] static const AnalyticsLibrary& get();
};

}  // namespace gpumap::gst
