// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <functional>

namespace gpumap::gst {

// What an element learns from the bins that it is in. From any thread.

/// It, or a bin around it, is on its way below PAUSED.
[[nodiscard]] bool is_stopping(GstElement* element);
/// It, or a bin around it, is on its way to another state: before all, a bin whose sinks wait for a frame to preroll.
[[nodiscard]] bool is_changing_state(GstElement* element);
/// A flush takes sinks out of PLAYING. A bin that is on its own way from PAUSED to PLAYING in that moment does not
/// notice and leaves them in PAUSED for ever: wait for the end of that way, but not for long, or until `given_up`.
void wait_for_playing(
    GstElement* element, const std::function<bool()>& given_up = [] { return false; });
/// The bin around all bins, which is its pipeline; transfer full.
[[nodiscard]] GstElement* top_level(GstElement* element);
[[nodiscard]] bool same_pipeline(GstElement* one, GstElement* other);

}  // namespace gpumap::gst
