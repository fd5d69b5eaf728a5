// SPDX-License-Identifier: MIT
#include "gst/channel/instant_rate.hpp"

#include <algorithm>

#include "gst/channel/event_text.hpp"

namespace gpumap::gst {
namespace {

constexpr const char* upstream_field = "gpumap-upstream-time";
constexpr const char* actual_field = "gpumap-actual-time";

/// Sums of what another process names may lie outside of what can be counted.
GstClockTimeDiff countable(double time) {
  constexpr double most = 200.0 * 366 * 24 * 3600 * GST_SECOND;
  return static_cast<GstClockTimeDiff>(std::clamp(time, -most, most));
}

/// Adds `shift` to the running time of all that lies in `segment`. GStreamer's own function measures a negative shift
/// from the start of the segment, also where it is played backwards, from its stop on.
bool shift_running_time(GstSegment& segment, GstClockTimeDiff shift) {
  const auto earlier = shift < 0 ? static_cast<GstClockTime>(-shift) : 0;
  if (segment.rate > 0 || earlier <= segment.base || !GST_CLOCK_TIME_IS_VALID(segment.stop)) {
    return gst_segment_offset_running_time(&segment, segment.format, shift) != 0;
  }
  const double cut = static_cast<double>(earlier - segment.base) * -segment.rate;
  segment.base = 0;
  const GstClockTime most = segment.stop - std::min(segment.offset, segment.stop);
  segment.offset += cut < static_cast<double>(most) ? static_cast<GstClockTime>(cut) : most;
  return true;
}

}  // namespace

InstantRate InstantRate::of(GstEvent* event, const InstantRate& before, GstClockTimeDiff now) {
  InstantRate next;
  gst_event_parse_instant_rate_change(event, &next.rate, &next.flags);
  if (!is_playable_rate(next.rate) || next.rate < 0) return before;
  const GstStructure* const structure = gst_event_get_structure(event);
  if (gst_structure_get_int64(structure, upstream_field, &next.upstream) != 0 &&
      gst_structure_get_int64(structure, actual_field, &next.actual) != 0) {
    return next;
  }
  next.actual = now;
  next.upstream = before.upstream_of(now);
  return next;
}

Ptr<GstEvent> InstantRate::named_in(GstEvent* event) const {
  Ptr<GstEvent> named(gst_event_copy(event));
  gst_structure_set(gst_event_writable_structure(named.get()), upstream_field, G_TYPE_INT64, upstream, actual_field,
                    G_TYPE_INT64, actual, nullptr);
  return named;
}

GstClockTimeDiff InstantRate::upstream_of(GstClockTimeDiff actual_time) const noexcept {
  if (!changes()) return actual_time;
  return countable(static_cast<double>(upstream) +
                   (static_cast<double>(actual_time) - static_cast<double>(actual)) * rate);
}

bool InstantRate::place(GstSegment& segment, GstClockTimeDiff shift) const {
  const bool applies = changes() && is_playable_rate(segment.rate * rate);
  if (applies) {
    const auto base = static_cast<double>(segment.base);
    const double begin = static_cast<double>(actual) + (base - static_cast<double>(upstream)) / rate;
    shift = countable(static_cast<double>(shift) + begin - base);
    segment.rate *= rate;
    constexpr unsigned instant = GST_SEGMENT_INSTANT_FLAGS;
    segment.flags = static_cast<GstSegmentFlags>((segment.flags & ~instant) | (flags & instant));
  }
  return (shift != 0 && shift_running_time(segment, shift)) || applies;
}

}  // namespace gpumap::gst
