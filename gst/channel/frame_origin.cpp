// SPDX-License-Identifier: MIT
#include "gst/channel/frame_origin.hpp"

#include <ctime>
#include <limits>

#include "gpumap/latency.hpp"

namespace gpumap::gst {

namespace {

constexpr std::int64_t second = 1'000'000'000;
// From 1900, where NTP begins to count, to 1970.
constexpr std::int64_t ntp_to_unix = 2'208'988'800 * second;

/// The two clocks are read one after the other. A thread that was interrupted in between reads them again.
std::int64_t unix_to_monotonic(std::int64_t time) {
  constexpr std::int64_t usual_gap = 2'000;
  std::int64_t at = 0;
  std::int64_t gap = std::numeric_limits<std::int64_t>::max();
  for (int turn = 0; turn < 3 && gap > usual_gap; ++turn) {
    const std::int64_t before = monotonic_ns();
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const std::int64_t after = monotonic_ns();
    if (after - before >= gap) continue;
    gap = after - before;
    at = time - (now.tv_sec * second + now.tv_nsec) + before + gap / 2;
  }
  return at;
}

}  // namespace

std::int64_t captured_ns(GstBuffer* buffer) {
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta_filtered(buffer, &state, GST_REFERENCE_TIMESTAMP_META_API_TYPE)) {
    const auto* reference = reinterpret_cast<const GstReferenceTimestampMeta*>(meta);
    // No time beyond 146 years is meant, and sums could overflow.
    if (reference->timestamp > static_cast<GstClockTime>(G_MAXINT64) / 2 ||
        gst_caps_get_size(reference->reference) == 0)
      continue;
    const GstStructure* named = gst_caps_get_structure(reference->reference, 0);
    const auto time = static_cast<std::int64_t>(reference->timestamp);
    if (gst_structure_has_name(named, "timestamp/x-monotonic")) return time;
    if (gst_structure_has_name(named, "timestamp/x-unix")) return unix_to_monotonic(time);
    if (gst_structure_has_name(named, "timestamp/x-ntp")) return unix_to_monotonic(time - ntp_to_unix);
  }
  return 0;
}

bool is_monotonic(GstClock* clock) {
  if (clock == nullptr || !GST_IS_SYSTEM_CLOCK(clock)) return false;
  GstClockType type = GST_CLOCK_TYPE_OTHER;
  g_object_get(clock, "clock-type", &type, nullptr);
  GstClockTime internal = 0;
  GstClockTime external = 0;
  GstClockTime numerator = 0;
  GstClockTime denominator = 0;
  gst_clock_get_calibration(clock, &internal, &external, &numerator, &denominator);
  return type == GST_CLOCK_TYPE_MONOTONIC && internal == external && numerator == denominator;
}

std::int64_t due_ns(const GstBuffer* buffer, const GstSegment& segment, GstClockTime base) {
  if (!GST_CLOCK_TIME_IS_VALID(base) || !GST_BUFFER_PTS_IS_VALID(buffer)) return 0;
  if (segment.format != GST_FORMAT_TIME) return 0;
  const GstClockTime running = gst_segment_to_running_time(&segment, GST_FORMAT_TIME, GST_BUFFER_PTS(buffer));
  return GST_CLOCK_TIME_IS_VALID(running) ? static_cast<std::int64_t>(base + running) : 0;
}

GstClockTime monotonic_base_time(GstElement* element) {
  GstClock* clock = gst_element_get_clock(element);
  const bool shared = is_monotonic(clock);
  if (clock != nullptr) gst_object_unref(clock);
  return shared ? gst_element_get_base_time(element) : GST_CLOCK_TIME_NONE;
}

}  // namespace gpumap::gst
