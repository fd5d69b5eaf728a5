// SPDX-License-Identifier: MIT
#include "gst/channel/sticky_events.hpp"

#include <algorithm>

namespace gpumap::gst {

bool is_sticky(GstEvent* event) {  // GST_EVENT_IS_STICKY mixes enumerations, which is deprecated in C++20
  return (gst_event_type_get_flags(GST_EVENT_TYPE(event)) & GST_EVENT_TYPE_STICKY) != 0;
}

void StickyEvents::remember(GstEvent* event) {
  if (!is_sticky(event)) return;
  const GstEventType type = GST_EVENT_TYPE(event);
  ended_ = type == GST_EVENT_EOS;
  if (ended_) return;
  if (type == GST_EVENT_STREAM_START) {
    // As on a pad, caps and segment hold until new ones come.
    std::erase_if(events_, [](GstEvent* old) {
      const GstEventType kind = GST_EVENT_TYPE(old);
      const bool holds = kind == GST_EVENT_STREAM_START || kind == GST_EVENT_CAPS || kind == GST_EVENT_SEGMENT;
      if (!holds) gst_event_unref(old);
      return !holds;
    });
  }
  const bool many = (static_cast<unsigned>(type) & GST_EVENT_TYPE_STICKY_MULTI) != 0;
  const auto old = std::find_if(events_.begin(), events_.end(), [&](GstEvent* other) {
    return GST_EVENT_TYPE(other) == type &&
           (!many || gst_event_has_name(event, gst_structure_get_name(gst_event_get_structure(other))));
  });
  if (old != events_.end()) {
    gst_event_replace(&*old, event);
  } else {
    events_.push_back(gst_event_ref(event));
  }
}

void StickyEvents::flush() {
  std::erase_if(events_, [](GstEvent* old) {
    const bool ends = GST_EVENT_TYPE(old) == GST_EVENT_SEGMENT || GST_EVENT_TYPE(old) == GST_EVENT_STREAM_GROUP_DONE;
    if (ends) gst_event_unref(old);
    return ends;
  });
}

void StickyEvents::forget() {
  for (GstEvent* event : events_) gst_event_unref(event);
  events_.clear();
}

void StickyEvents::give_back(const std::function<void(GstEvent*)>& take) {
  std::for_each(events_.rbegin(), events_.rend(), take);
  events_.clear();
}

}  // namespace gpumap::gst
