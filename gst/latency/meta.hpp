// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <memory>

#include "gpumap/latency.hpp"
#include "gst/latency/latency_meta.h"

namespace gpumap::gst {

/// So that applications can name the type before there is a frame.
void register_latency_meta();
/// The buffer shares `trace`, and shows what it knows by now. Nothing for a null one.
void add_latency_meta(GstBuffer* buffer, std::shared_ptr<FrameTrace> trace);
/// The trace that a buffer shares; null where its frame is not stamped.
[[nodiscard]] std::shared_ptr<FrameTrace> trace_of(GstBuffer* buffer);
/// Show what the trace knows by now.
void refresh_latency_meta(GstBuffer* buffer);

}  // namespace gpumap::gst
