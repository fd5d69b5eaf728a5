// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include "gst/ptr.hpp"

namespace gpumap::gst {

/// An instant change of the rate in the gpumapsink's pipeline: from a moment on its sinks play at `rate` times the
/// segment's, while upstream counts running times as before. The sinks of another pipeline get segments that say so: a
/// sink that receives the change answers with the lock of its pipeline's state, and waits for the frame that it
/// renders, so that a stop of the pipeline would wait for that frame, too.
struct InstantRate {
  gdouble rate = 1;
  GstSegmentFlags flags = GST_SEGMENT_FLAG_NONE;
  GstClockTimeDiff upstream = 0;  ///< the moment, as upstream counts
  GstClockTimeDiff actual = 0;    ///< the same in the running time of the pipeline

  /// What follows `before` by an INSTANT_RATE_CHANGE. The moment is the one that the event names, else `now`: a running
  /// time of the gpumapsink's pipeline. `before` where GStreamer takes no such rate.
  [[nodiscard]] static InstantRate of(GstEvent* event, const InstantRate& before, GstClockTimeDiff now);
  /// `event`, with the moment.
  [[nodiscard]] Ptr<GstEvent> named_in(GstEvent* event) const;

  [[nodiscard]] bool changes() const noexcept { return rate != 1 || upstream != actual; }
  [[nodiscard]] GstClockTimeDiff upstream_of(GstClockTimeDiff actual_time) const noexcept;
  /// Gives it to a segment in time, whose running time moves by `shift` as well. False: neither changes it, or
  /// GStreamer takes no such segment.
  [[nodiscard]] bool place(GstSegment& segment, GstClockTimeDiff shift) const;
};

}  // namespace gpumap::gst
