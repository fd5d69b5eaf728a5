// SPDX-License-Identifier: MIT
// What a gpumapsrc does with what lies between frames: caps, segments, flushes, the end; and with events from
// downstream.
#include <algorithm>
#include <chrono>
#include <utility>

#include "gst/channel/ends.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/ptr.hpp"
#include "gst/src/src_stream.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

namespace gpumap::gst {

namespace {

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

void SrcStream::push_segment() {
  GstSegment segment;
  gst_event_copy_segment(segment_, &segment);
  const GstClockTimeDiff shift = shift_.value();
  const bool moved = shift != 0 && segment.format == GST_FORMAT_TIME && shift_running_time(segment, shift);
  GstEvent* event = moved ? gst_event_new_segment(&segment) : gst_event_ref(segment_);
  if (moved) gst_event_set_seqnum(event, gst_event_get_seqnum(segment_));
  GST_DEBUG_OBJECT(element_, "segment, running time shifted by %" GST_STIME_FORMAT, GST_STIME_ARGS(shift));
  gst_pad_push_event(pad_, event);
}

void SrcStream::push_stream_start() {
  gchar* id = gst_pad_create_stream_id(pad_, element_, nullptr);
  GstEvent* event = gst_event_new_stream_start(id);
  gst_event_set_group_id(event, gst_util_group_id_next());
  g_free(id);
  gst_pad_push_event(pad_, event);
  started_ = true;
}

/// A gpumapsink has begun anew behind the end of its last stream. Sinks take nothing after EOS but a flush. The running
/// time goes on: the pipeline may have other branches, and the time shift places the new frames.
void SrcStream::begin_anew() {
  GST_INFO_OBJECT(element_, "a new stream after EOS: flushing what follows");
  ended_ = false;
  gst_pad_push_event(pad_, gst_event_new_flush_start());
  gst_pad_push_event(pad_, gst_event_new_flush_stop(FALSE));
  mend_states_soon(element_);  // this thread has the pad's lock
}

/// Caps go before what they are for.
bool SrcStream::negotiate() {
  if (!output_.negotiate()) {
    refuse();
    return false;
  }
  if (!output_.awaits_caps()) forgiven_until_ = no_deadline;
  channel_->set_kept_slots(std::max(channel_->kept_slots(), output_.kept_buffers()));
  return true;
}

/// Who cannot be asked may give anything; a producer in another process does not hear what one client asks for.
bool SrcStream::upstream_gives(GstCaps* wanted) {
  const Ptr<GstQuery> query(gst_query_new_caps(wanted));
  const Ptr<GstPad> far(far_pad());
  if (!far) return channel_->far_sink() == nullptr;
  if (peer_query(far.get(), query.get()) != PeerAnswer::yes) return true;
  GstCaps* given = nullptr;
  gst_query_parse_caps_result(query.get(), &given);
  return given == nullptr || gst_caps_can_intersect(given, wanted) != 0;
}

/// Downstream refused a frame. Until upstream gives the caps that downstream wants now, those that were made before are
/// left out; but an upstream that says it could and never does is not waited for without end.
bool SrcStream::forgives_refusal() {
  constexpr std::chrono::seconds patience(10);
  if (!output_.awaits_caps() && !output_.await_caps()) return false;
  if (forgiven_until_ == no_deadline) forgiven_until_ = Clock::now() + patience;
  return Clock::now() < forgiven_until_;
}

void SrcStream::push(GstEvent* event) {
  const GstEventType type = GST_EVENT_TYPE(event);
  GST_DEBUG_OBJECT(element_, "%" GST_PTR_FORMAT, static_cast<void*>(event));
  if (ended_ && type == GST_EVENT_STREAM_START) begin_anew();
  if (type == GST_EVENT_STREAM_START || type == GST_EVENT_SEGMENT || type == GST_EVENT_EOS) drops_ = false;
  // Downstream needs some caps, and before the segment.
  const bool needs_caps = type == GST_EVENT_SEGMENT || output_.has_caps();
  if (needs_caps && type != GST_EVENT_STREAM_START && type != GST_EVENT_CAPS && !negotiate()) {
    gst_event_unref(event);
    return;
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
      return;
    }
    case GST_EVENT_SEGMENT:
      gst_event_take(&segment_, event);
      owes_segment_ = false;
      static_cast<void>(shift_.update(*channel_, true));
      push_segment();
      if (!has_sink_beside()) tell_of_segment_start();
      // Upstream may be another one now, with another latency.
      gst_element_post_message(element_, gst_message_new_latency(GST_OBJECT_CAST(element_)));
      return;
    case GST_EVENT_SEGMENT_DONE:
      if (!has_sink_beside()) tell_of_segment_done(event);
      break;
    case GST_EVENT_EOS:
      ended_ = true;
      g_object_notify(G_OBJECT(element_), "stats");
      break;
    default:
      break;
  }
  gst_pad_push_event(pad_, event);
}

bool SrcStream::has_sink_beside() {
  const auto channel = this->channel();
  const Ptr<GstElement> sink(channel ? channel->sink() : nullptr);
  return sink && same_pipeline(element_, sink.get());
}

/// The producer says in its own pipeline that a part of the stream begins that was sought for, and that it is done.
/// This element says it in this one, where the application may have sought.
void SrcStream::tell_of_segment_start() {
  GstSegment segment;
  gst_event_copy_segment(segment_, &segment);
  if ((segment.flags & GST_SEGMENT_FLAG_SEGMENT) == 0) return;
  const auto start = static_cast<gint64>(segment.rate > 0 ? segment.start : segment.stop);
  GstMessage* message = gst_message_new_segment_start(GST_OBJECT_CAST(element_), segment.format, start);
  gst_message_set_seqnum(message, gst_event_get_seqnum(segment_));
  gst_element_post_message(element_, message);
}

void SrcStream::tell_of_segment_done(GstEvent* event) {
  GstFormat format = GST_FORMAT_UNDEFINED;
  gint64 position = 0;
  gst_event_parse_segment_done(event, &format, &position);
  GstMessage* message = gst_message_new_segment_done(GST_OBJECT_CAST(element_), format, position);
  gst_message_set_seqnum(message, gst_event_get_seqnum(event));
  gst_element_post_message(element_, message);
}

void SrcStream::on_event(GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_STOP) event = flush_stop_for_here(event);
  send_now(event, From::sink);
}

/// A flush from another pipeline does not reset the running time of this one, whose other branches would stand still
/// until it is again what it was. The time shift places the frames. Takes `event`.
GstEvent* SrcStream::flush_stop_for_here(GstEvent* event) {
  if (has_sink_beside()) return event;
  gboolean resets = FALSE;
  gst_event_parse_flush_stop(event, &resets);
  if (const auto channel = this->channel(); channel && resets != 0) shift_.begin_anew_there(*channel);
  GstEvent* made = gst_event_new_flush_stop(FALSE);
  gst_event_set_seqnum(made, gst_event_get_seqnum(event));
  gst_event_unref(event);
  return made;
}

void SrcStream::send_now(GstEvent* event, From from) {
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
      if (GST_PAD_MODE(pad_) == GST_PAD_MODE_PUSH) flushes_downstream_ = true;
      gst_pad_push_event(pad_, event);
      set_flushing(open, true);
      return;
    case GST_EVENT_FLUSH_STOP:
      flush_stop(event, from);
      return;
    default:
      gst_pad_push_event(pad_, event);
  }
}

void SrcStream::flush_stop(GstEvent* event, From from) {
  // Without a FLUSH_START before it the task still waits for a frame, and holds the lock.
  set_flushing(ending, true);
  set_flushing(open, false);
  GST_PAD_STREAM_LOCK(pad_);
  {
    const std::lock_guard lock(mutex_);
    gst_clear_event(&eos_);
    sent_.clear();
  }
  ended_ = false;
  output_.forget_keeping();
  drops_ = false;
  unlinked_ = false;  // the task is started below, and finds out anew
  // A pad that is not active lets nothing through.
  if (GST_PAD_MODE(pad_) == GST_PAD_MODE_PUSH) flushes_downstream_ = false;
  gst_pad_push_event(pad_, event);
  // Upstream of the sink sends the next one itself behind a flush of its own.
  owes_segment_ = from == From::application && segment_ != nullptr;
  if (const auto channel = this->channel()) {
    channel->forget_held();
    channel->set_downstream_flow(GST_FLOW_OK);
  }
  set_flushing(ending, false);
  restart_task();
  GST_PAD_STREAM_UNLOCK(pad_);
  mend_states_after_flush(element_);
}

/// Under the lock that activation takes: a task that is started behind it would run on a pad that is not active. Where
/// there is no task yet, activation makes it: GStreamer posts a message of that, which no lock may be held over.
void SrcStream::restart_task() {
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    GST_OBJECT_LOCK(pad_);
    const bool has_task = GST_PAD_TASK(pad_) != nullptr;
    GST_OBJECT_UNLOCK(pad_);
    failed = (flushing_ & inactive) == 0 && has_task && !start_task();
  }
  if (failed) tell_of_no_thread();
}

void SrcStream::relinked() {
  const auto channel = this->channel();
  // A flush may come in between, and then the end of what follows: that is not undone.
  if (channel && unlinked_.exchange(false) && channel->relinked()) restart_task();
}

/// What is said in the running time here means this time there. Null: a moment before time began there, which is of no
/// use. Takes `qos`.
GstEvent* SrcStream::qos_for_sink(GstEvent* qos) const {
  const GstClockTimeDiff shift = shift_.value();
  if (shift == 0) return qos;
  GstQOSType type = GST_QOS_TYPE_UNDERFLOW;
  gdouble proportion = 1;
  GstClockTimeDiff late = 0;
  GstClockTime time = 0;
  gst_event_parse_qos(qos, &type, &proportion, &late, &time);
  const auto there = static_cast<GstClockTimeDiff>(time) - shift;
  late = std::max(late, -there);  // GStreamer asserts that nothing is earlier than 0
  GstEvent* made = there >= 0 ? gst_event_new_qos(type, proportion, late, static_cast<GstClockTime>(there)) : nullptr;
  if (made != nullptr) gst_event_set_seqnum(made, gst_event_get_seqnum(qos));
  gst_event_unref(qos);
  return made;
}

bool SrcStream::send_upstream(GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_QOS) {
    event = qos_for_sink(event);
    if (event == nullptr) return true;
  }
  const auto channel = this->channel();
  GstPad* sinkpad = far_pad();
  if (sinkpad == nullptr) {
    const auto far = channel ? channel->far_sink() : nullptr;
    if (far) return channel->send_upstream(event, [&](GstEvent* sent) { return far->send(sent); });
    gst_event_unref(event);
    return false;
  }
  const auto push = [&](GstEvent* sent) {
    const EventOnItsWay way(sinkpad, sent);
    if (!way.came_round()) return gst_pad_push_event(sinkpad, sent) != 0;
    gst_event_unref(sent);
    return false;
  };
  const bool handled = channel ? channel->send_upstream(event, push) : push(event);
  gst_object_unref(sinkpad);
  return handled;
}

}  // namespace gpumap::gst
