// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <cstdint>

namespace gpumap::gst {

/// When a frame was due and when it was captured, ns on CLOCK_MONOTONIC; 0: not known.
struct FrameOrigin {
  std::int64_t due_ns = 0;
  std::int64_t captured_ns = 0;
};

/// The time of `buffer`'s GstReferenceTimestampMeta, if its reference is the time of day (timestamp/x-unix,
/// timestamp/x-ntp) or CLOCK_MONOTONIC (timestamp/x-monotonic); 0 for other clocks, which cannot be compared here.
[[nodiscard]] std::int64_t captured_ns(GstBuffer* buffer);

/// When the frame's running time in `segment` comes, in ns on CLOCK_MONOTONIC, of a pipeline whose running time is 0 at
/// `base` there; 0 where it has none, and where `base` is invalid (paused, or another clock).
[[nodiscard]] std::int64_t due_ns(const GstBuffer* buffer, const GstSegment& segment, GstClockTime base);
/// The base time of `element`, in the clock of due_ns(); invalid where its pipeline has another clock.
[[nodiscard]] GstClockTime monotonic_base_time(GstElement* element);

/// Whether the clock's time is CLOCK_MONOTONIC's, as that of GStreamer's own system clock is.
[[nodiscard]] bool is_monotonic(GstClock* clock);

}  // namespace gpumap::gst
