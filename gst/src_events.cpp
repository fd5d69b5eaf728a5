// SPDX-License-Identifier: MIT
// What a gpumapsrc does with what lies between frames: caps, segments and the running time that they stand for.
#include <utility>

#include "pipeline_state.hpp"
#include "src_stream.hpp"

namespace gpumap::gst {

/// Two pipelines have two base times: what is due at a moment on the clock there is due at that moment here.
GstClockTimeDiff SrcStream::running_time_shift() const {
  GstElement* sink = channel_->sink();
  GstClockTimeDiff shift = shift_;
  if (sink == nullptr) return shift;
  if (same_pipeline(element_, sink)) {
    // One base time, which the elements are told one after the other: comparing them in between would go wrong.
    shift = 0;
  } else if (channel_->sink_playing()) {
    GstClock* here = gst_element_get_clock(element_);
    GstClock* there = gst_element_get_clock(sink);
    if (there != nullptr) {
      // Before this pipeline plays, its base time is still to come: soon after now.
      const bool known = channel_->src_playing() && here == there;
      const GstClockTime base = known ? gst_element_get_base_time(element_) : gst_clock_get_time(there);
      const bool other_clock = here != nullptr && here != there;
      shift = other_clock ? 0 : GST_CLOCK_DIFF(base, gst_element_get_base_time(sink));
    }
    gst_clear_object(&here);
    gst_clear_object(&there);
  }
  gst_object_unref(sink);
  return shift;
}

void SrcStream::push_segment() {
  GstSegment segment;
  gst_event_copy_segment(segment_, &segment);
  const bool moved = shift_ != 0 && segment.format == GST_FORMAT_TIME &&
                     gst_segment_offset_running_time(&segment, GST_FORMAT_TIME, shift_);
  GstEvent* event = moved ? gst_event_new_segment(&segment) : gst_event_ref(segment_);
  if (moved) gst_event_set_seqnum(event, gst_event_get_seqnum(segment_));
  gst_pad_push_event(pad_, event);
}

/// Base times are known once both sides play, and change when either has paused: look again then.
void SrcStream::follow_base_times() {
  const guint plays = channel_->plays();
  if (plays == plays_) return;
  plays_ = plays;
  const GstClockTimeDiff shift = running_time_shift();
  if (shift == shift_) return;
  shift_ = shift;
  if (segment_ != nullptr) push_segment();
}

void SrcStream::push_stream_start() {
  gchar* id = gst_pad_create_stream_id(pad_, element_, nullptr);
  GstEvent* event = gst_event_new_stream_start(id);
  gst_event_set_group_id(event, gst_util_group_id_next());
  g_free(id);
  gst_pad_push_event(pad_, event);
  started_ = true;
}

/// What is said in the running time here means this time there. Null: a moment before time began there, which is of no
/// use. Takes `qos`.
GstEvent* SrcStream::qos_for_sink(GstEvent* qos) const {
  const GstClockTimeDiff shift = shift_;
  if (shift == 0) return qos;
  GstQOSType type = GST_QOS_TYPE_UNDERFLOW;
  gdouble proportion = 1;
  GstClockTimeDiff late = 0;
  GstClockTime time = 0;
  gst_event_parse_qos(qos, &type, &proportion, &late, &time);
  const auto there = static_cast<GstClockTimeDiff>(time) - shift;
  GstEvent* made = there >= 0 ? gst_event_new_qos(type, proportion, late, static_cast<GstClockTime>(there)) : nullptr;
  if (made != nullptr) gst_event_set_seqnum(made, gst_event_get_seqnum(qos));
  gst_event_unref(qos);
  return made;
}

/// False: the stream is over.
bool SrcStream::push(GstEvent* event) {
  const GstEventType type = GST_EVENT_TYPE(event);
  // Caps go before what they are for. Downstream needs some, and before the segment.
  const bool needs_caps = type == GST_EVENT_SEGMENT || output_.has_caps();
  if (needs_caps && type != GST_EVENT_STREAM_START && type != GST_EVENT_CAPS && !output_.settle()) {
    gst_event_unref(event);
    refuse();
    return false;
  }
  switch (type) {
    case GST_EVENT_STREAM_START:
      started_ = true;
      break;
    case GST_EVENT_CAPS: {
      GstCaps* caps = nullptr;
      gst_event_parse_caps(event, &caps);
      output_.set_caps(caps);
      gst_event_unref(event);
      return true;
    }
    case GST_EVENT_SEGMENT:
      gst_event_take(&segment_, event);
      shift_ = running_time_shift();
      push_segment();
      return true;
    case GST_EVENT_EOS:
      gst_pad_push_event(pad_, event);
      return false;
    default:
      break;
  }
  gst_pad_push_event(pad_, event);
  return true;
}

}  // namespace gpumap::gst
