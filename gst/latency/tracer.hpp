// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <memory>
#include <string>

#include "gpumap/latency.hpp"

namespace gpumap::gst {

/// The log of a channel that a tracer (GST_TRACERS="gpumaplatency") follows, so that its frames are stamped; null where
/// none does. From any thread.
[[nodiscard]] std::shared_ptr<LatencyLog> traced_log(const std::string& channel);

}  // namespace gpumap::gst

/// The tracer "gpumaplatency", with parameters interval (ms; 0: at the end only) and channel (only this one).
gboolean gpumap_register_latency_tracer(GstPlugin* plugin);
