// SPDX-License-Identifier: MIT
// What a kernel finds out, as GStreamer's GstAnalyticsRelationMeta.
#pragma once

#include <gst/gst.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpumap/declaration.hpp"

namespace gpumap::gst {

/// Say on `buffer`, which is writable, what the words of a result block say by `declared`; `results` name them. The
/// library has relations.
void add_relations(GstBuffer* buffer, const DeclaredAnalytics& declared,
                   std::span<const std::pair<std::string, ResultType>> results, std::span<const std::uint64_t> words);

}  // namespace gpumap::gst
