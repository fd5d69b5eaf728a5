// SPDX-License-Identifier: MIT
#pragma once

#include <mutex>
#include <vector>

#include "pipeline.hpp"

namespace gpumap::gst::test {

/// Absolute clock time at which a buffer, or a gap, is due at a pad: running time plus base time. Filled by a probe.
struct Due {
  std::mutex mutex;
  std::vector<GstClockTime> times, running;

  void watch(GstElement* element, const char* pad_name, GstPadProbeType what = GST_PAD_PROBE_TYPE_BUFFER) {
    const Pad pad(gst_element_get_static_pad(element, pad_name));
    gst_pad_add_probe(pad.get(), what, note, this, nullptr);
  }
  [[nodiscard]] std::size_t count() {
    const std::lock_guard lock(mutex);
    return times.size();
  }
  static GstPadProbeReturn note(GstPad* pad, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<Due*>(user);
    GstClockTime time = GST_CLOCK_TIME_NONE;
    if ((GST_PAD_PROBE_INFO_TYPE(info) & GST_PAD_PROBE_TYPE_BUFFER) != 0) {
      time = GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info));
    } else {
      GstEvent* const gap = GST_PAD_PROBE_INFO_EVENT(info);
      if (GST_EVENT_TYPE(gap) != GST_EVENT_GAP) return GST_PAD_PROBE_OK;
      gst_event_parse_gap(gap, &time, nullptr);
    }
    GstEvent* event = gst_pad_get_sticky_event(pad, GST_EVENT_SEGMENT, 0);
    const GstSegment* segment = nullptr;
    gst_event_parse_segment(event, &segment);
    const GstClockTime running = gst_segment_to_running_time(segment, GST_FORMAT_TIME, time);
    gst_event_unref(event);
    const Element element(gst_pad_get_parent_element(pad));
    const std::lock_guard lock(self->mutex);
    self->running.push_back(running);
    self->times.push_back(GST_CLOCK_TIME_IS_VALID(running) ? running + gst_element_get_base_time(element.get())
                                                           : GST_CLOCK_TIME_NONE);
    return GST_PAD_PROBE_OK;
  }
};

}  // namespace gpumap::gst::test
