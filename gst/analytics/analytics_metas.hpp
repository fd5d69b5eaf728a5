// SPDX-License-Identifier: MIT
// GstTensorMeta and GstAnalyticsRelationMeta of a buffer, where the GStreamer at hand has them.
#pragma once

#include <gst/gst.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gst/analytics/analytics_api.hpp"

namespace gpumap::gst {

/// libgstanalytics, opened at run time. Elements that use it find the same copy of it.
struct AnalyticsLibrary {
#define GPUMAP_GST_ANALYTICS_MEMBER(result, name, ...) result (*name)(__VA_ARGS__) = nullptr;
  GPUMAP_GST_TENSORS(GPUMAP_GST_ANALYTICS_MEMBER)
  GPUMAP_GST_RELATIONS(GPUMAP_GST_ANALYTICS_MEMBER)
  GPUMAP_GST_ORIENTED(GPUMAP_GST_ANALYTICS_MEMBER)  ///< null before GStreamer 1.26, where the others are
#undef GPUMAP_GST_ANALYTICS_MEMBER
  /// What is missing and how to get it; empty where it all is there. Of tensors, and of what relation metas take.
  std::string tensors_problem, relations_problem;

  /// The process's. Thread-safe.
  [[nodiscard]] static const AnalyticsLibrary& get();
};

/// For add_tensors(). Row-major, its elements side by side.
struct NewTensor {
  std::string id;
  NumberType type = NumberType::f32;
  std::span<const std::uint64_t> dims;
  GstBuffer* data = nullptr;  ///< transfer full, of as many bytes as the elements take
};

/// Put a meta of these on `buffer`, which is writable. Tensors of the same ids that other metas there have go: each id
/// is there once. The library has tensors.
void add_tensors(GstBuffer* buffer, std::span<const NewTensor> tensors);

/// A new meta of `tensors` (transfer full, each), beside others that are there. The library has tensors.
void add_tensor_meta(GstBuffer* buffer, const std::vector<GstTensor*>& tensors);

/// The first of that name; null: there is none. Borrowed from `buffer`.
[[nodiscard]] const GstTensor* find_tensor(GstBuffer* buffer, const std::string& id);
/// The names of all, as in "boxes, scores"; "none" where there are none.
[[nodiscard]] std::string tensor_ids(GstBuffer* buffer);
/// Empty: a type that no kernel knows, of 4 bits or the like.
[[nodiscard]] std::optional<NumberType> type_of(const GstTensor& tensor);

/// Give `to` the tensors of `from` where GStreamer's own copying leaves them behind, as that of 1.26 does.
void copy_tensors(GstBuffer* to, GstBuffer* from);

/// Say on `buffer`, which is writable, what the words of a result block say by `declared`; `results` name them. The
/// library has relations.
void add_relations(GstBuffer* buffer, const DeclaredAnalytics& declared,
                   std::span<const std::pair<std::string, ResultType>> results, std::span<const std::uint64_t> words);

}  // namespace gpumap::gst
