// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

namespace gpumap::gst {

// What an element learns from the bins that it is in. From any thread.

/// It, or a bin around it, is on its way below PAUSED.
[[nodiscard]] bool is_stopping(GstElement* element);
/// It, or a bin around it, is on its way to another state: before all, a bin whose sinks wait for a frame to preroll.
[[nodiscard]] bool is_changing_state(GstElement* element);
/// The bin around all bins, which is its pipeline; transfer full.
[[nodiscard]] GstElement* top_level(GstElement* element);
[[nodiscard]] bool same_pipeline(GstElement* one, GstElement* other);

}  // namespace gpumap::gst
