// SPDX-License-Identifier: MIT
#include <gst/video/video-event.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/channel/ends.hpp"
#include "gst/channel/event_text.hpp"
#include "gst/channel/frame_origin.hpp"
#include "gst/channel/instant_rate.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/cuda/gst_cuda_context.hpp"
#include "gst/gst_error.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"
#include "gst/src/src_stream.hpp"

// What a gpumapsrc does with what lies between frames: caps, segments, flushes, the end; and with events from
// downstream.

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

namespace gpumap::gst {
namespace {

/// Until when what is in `segment` is due within 200 years. A clock of GStreamer's never ends the wait for what is due
/// in more than 292, and the sink that waits does not stop.
GstClockTime latest_time_of(const GstSegment& segment) {
  constexpr double most = 200.0 * 366 * 24 * 3600 * GST_SECOND;
  if (segment.format != GST_FORMAT_TIME) return GST_CLOCK_TIME_NONE;
  const double room = (most - static_cast<double>(segment.base)) * std::abs(segment.rate);
  if (segment.rate < 0) {
    const bool has_stop = GST_CLOCK_TIME_IS_VALID(segment.stop);
    const double end = has_stop ? static_cast<double>(segment.stop)
                                : static_cast<double>(segment.start) + static_cast<double>(segment.duration);
    return end <= room ? static_cast<GstClockTime>(most) : 0;
  }
  const double latest = static_cast<double>(segment.start) + static_cast<double>(segment.offset) + room;
  return static_cast<GstClockTime>(std::clamp(latest, 0.0, most));
}

/// What is before `from` is over: videorate and audiorate fill a segment from its start on. False: it stays as it is.
bool begin_at(GstSegment& segment, GstClockTime from) {
  if (segment.format != GST_FORMAT_TIME || segment.rate < 0 || !GST_CLOCK_TIME_IS_VALID(from)) return false;
  const GstClockTime running = gst_segment_to_running_time(&segment, GST_FORMAT_TIME, from);
  if (from <= segment.start || !GST_CLOCK_TIME_IS_VALID(running)) return false;
  if (segment.applied_rate > 0) segment.time = gst_segment_to_stream_time(&segment, GST_FORMAT_TIME, from);
  segment.start = segment.position = from;
  segment.base = running;
  segment.offset = 0;
  return true;
}

GstFormat format_of(GstEvent* event) {
  const GstSegment* segment = nullptr;
  gst_event_parse_segment(event, &segment);
  return segment->format;
}

}  // namespace

/// The segment, in the running time here, and with the rate there; from `from` on, where that is known. True: that is
/// another one than the sink's.
bool SrcStream::place(GstSegment& segment, GstClockTime from) {
  gst_event_copy_segment(segment_, &segment);
  begins_at_ = begin_at(segment, from) ? from : GST_CLOCK_TIME_NONE;
  const bool moved = segment.format == GST_FORMAT_TIME && rate().place(segment, shift_.value());
  latest_ = channel_->far_sink() != nullptr ? latest_time_of(segment) : GST_CLOCK_TIME_NONE;
  return moved || GST_CLOCK_TIME_IS_VALID(begins_at_);
}

/// A picture that was due before time began here is due as it begins: GStreamer's mixers of video assert that running
/// times are none below 0. True: the segment is for `first`, the frame behind it, alone.
bool SrcStream::keep_from_past(GstSegment& segment, GstBuffer* first) {
  past_from_ = past_until_ = 0;
  prerolls_past_ = false;
  if (segment.format != GST_FORMAT_TIME || segment.rate < 0 || shift_.value() >= 0 || segment.base > prerolled_) {
    return false;
  }
  const Ptr<GstCaps> caps(gst_pad_get_current_caps(pad_));
  if (!caps || gst_structure_has_name(gst_caps_get_structure(caps.get(), 0), "video/x-raw") == 0) return false;
  past_from_ = segment.start;
  past_until_ = segment.start + segment.offset + (prerolled_ - segment.base);
  const GstClockTime time = first == nullptr ? GST_CLOCK_TIME_NONE : GST_BUFFER_PTS(first);
  if (!GST_CLOCK_TIME_IS_VALID(time) || time < past_from_ || time >= past_until_) return false;
  segment.offset = time - segment.start;
  // What comes behind it is due behind it until time begins: a sink that steps loses its step at a segment.
  prerolls_past_ = !channel_->src_playing();
  segment.base = prerolled_;  // none goes back
  if (prerolls_past_) {
    prerolled_from_ = time - std::min(time, prerolled_);
    return false;
  }
  // videorate fills a segment up to its end.
  segment.stop = std::min(segment.stop, time + (GST_BUFFER_DURATION_IS_VALID(first) ? GST_BUFFER_DURATION(first) : 1));
  return true;
}

/// `first`: the frame behind it, where the running time is another one from that on; or `from`, where a gap is behind.
void SrcStream::push_segment(GstBuffer* first, GstClockTime from) {
  GstSegment segment;
  const GstClockTimeDiff shift = shift_.value();
  bool moved = place(segment, first == nullptr ? from : earliest_from(first));
  shifted_ = keep_from_past(segment, first);
  moved = moved || shifted_;
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

/// A gpumapsink has begun anew behind the end of its last stream. Sinks take nothing after EOS but a flush, which would
/// empty a file. The running time goes on: the pipeline may have other branches, and the time shift places the new
/// frames. Those of bytes it cannot place, and what follows gives them times from 0 on.
void SrcStream::begin_anew() {
  if (comes_to_file(element_)) {
    is_recorded_whole_ = true;
    post_warning(element_, Error(ErrorCode::invalid,
                                 "the producer has begun another stream, which is left out here: the one before has "
                                 "ended in a file, which a flush would empty",
                                 "stop this pipeline, give it another file, and start it again"));
    return;
  }
  GST_INFO_OBJECT(element_, "a new stream after EOS: flushing what follows");
  ended_ = false;
  shift_.forget_recorded();
  gst_pad_push_event(pad_, gst_event_new_flush_start());
  end_flush(gst_event_new_flush_stop(static_cast<gboolean>(!is_timed_)));
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
  if (type == GST_EVENT_INSTANT_RATE_CHANGE) {
    take_rate(event);
    return;
  }
  if (ended_ && type == GST_EVENT_STREAM_START && !is_recorded_whole_) begin_anew();
  if (is_recorded_whole_) {
    gst_event_unref(event);
    return;
  }
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
      is_timed_ = format_of(segment_) == GST_FORMAT_TIME;
      owes_segment_ = false;
      prerolled_ = 0;
      static_cast<void>(shift_.update(*channel_, true));
      push_segment();
      if (!has_sink_beside()) tell_of_segment_start();
      // Upstream may be another one now, with another latency.
      gst_element_post_message(element_, gst_message_new_latency(GST_OBJECT_CAST(element_)));
      return;
    case GST_EVENT_GAP: {
      GstClockTime time = GST_CLOCK_TIME_NONE;
      GstClockTime duration = GST_CLOCK_TIME_NONE;
      gst_event_parse_gap(event, &time, &duration);
      if (!is_due_some_day(time, duration)) {
        gst_event_unref(event);
        return;
      }
      // It is due when a frame of its time would be.
      if (shift_.update(*channel_, false)) shifted_ = true;
      const auto later = later_by(time, time, duration, true);  // nor does it end a wait for a key frame
      if (!later) {
        gst_event_unref(event);
        return;
      }
      if (*later != 0) {
        GstGapFlags flags{};
        gst_event_parse_gap_flags(event, &flags);
        time = static_cast<GstClockTime>(static_cast<GstClockTimeDiff>(time) + *later);
        GstEvent* const made = gst_event_new_gap(time, duration);
        gst_event_set_gap_flags(made, flags);
        gst_event_set_seqnum(made, gst_event_get_seqnum(event));
        gst_event_unref(event);
        event = made;
      }
      if (shifted_ && segment_ != nullptr) push_segment(nullptr, time);
      break;
    }
    case GST_EVENT_SEGMENT_DONE:
      if (!has_sink_beside()) tell_of_segment_done(event);
      break;
    case GST_EVENT_CUSTOM_DOWNSTREAM:
      event = ask_for_key_frame_in(Pipeline::here, event);
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

/// Takes `event`. From any thread.
void SrcStream::take_rate(GstEvent* event) {
  const Ptr<GstEvent> owned(event);
  const auto channel = this->channel();
  if (!channel) return;
  // The pipeline tells all its sinks, also those behind a socket of its own.
  const Ptr<GstPad> far(pad_of_sole_sink(element_, settings_.channel, settings_.socket_path));
  const Ptr<GstElement> sink(far ? gst_pad_get_parent_element(far.get()) : nullptr);
  if (sink && same_pipeline(element_, sink.get())) return;
  const InstantRate next = InstantRate::of(event, rate(), shift_.now_there(*channel));
  const std::lock_guard lock(mutex_);
  rate_ = next;
  has_new_rate_ = true;
}

/// The sink's, before a segment comes. Sinks in the pipeline of that one hear of it themselves.
void SrcStream::begin_rate() {
  const bool beside = has_sink_beside();
  const std::lock_guard lock(mutex_);
  rate_ = channel_ && !beside ? channel_->rate() : InstantRate();
  has_new_rate_ = false;
}

InstantRate SrcStream::rate() const {
  const std::lock_guard lock(mutex_);
  return rate_;
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
  send_now(event, From::sink);
}

/// A flush from another pipeline does not reset the running time of this one, whose other branches would stand still
/// until it is again what it was. The time shift places the frames. A seek of this whole pipeline resets it in all
/// branches; and frames of bytes have no times to shift: a demuxer behind gives them times, and behind a seek from here
/// from 0 on. Takes `event`.
GstEvent* SrcStream::flush_stop_for_here(GstEvent* event) {
  if (has_sink_beside()) return event;
  gboolean resets = FALSE;
  gst_event_parse_flush_stop(event, &resets);
  if (resets == 0) return event;
  if (const auto channel = this->channel()) shift_.begin_anew_there(*channel);
  begin_rate();
  if (is_of_noted_seek(element_, event) || (!is_timed_ && gst_event_get_seqnum(event) == sought_)) {
    shift_.begin_anew_here();
    return event;
  }
  GstEvent* made = gst_event_new_flush_stop(FALSE);
  gst_event_set_seqnum(made, gst_event_get_seqnum(event));
  gst_event_unref(event);
  return made;
}

void SrcStream::send_now(GstEvent* event, From from) {
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
      ++flushes_beginning_;
      ++flushes_open_;
      begin_flush(event);
      set_flushing(open, true);
      --flushes_beginning_;
      return;
    case GST_EVENT_FLUSH_STOP:
      flush_stop(event, from);
      return;
    case GST_EVENT_INSTANT_RATE_CHANGE:
      if (has_sink_beside()) {
        gst_pad_push_event(pad_, event);
        return;
      }
      take_rate(event);
      if (const auto channel = this->channel()) channel->interrupt_src();
      return;
    default:
      gst_pad_push_event(pad_, event);
  }
}

/// Ends a flush of what follows. Another one that has begun in another thread goes on: that thread may wait for this
/// one, and a frame that came in between for that thread's pipeline. Takes `stop`.
void SrcStream::end_flush(GstEvent* stop) {
  gst_pad_push_event(pad_, stop);
  {
    const std::lock_guard lock(mutex_);
    if (flushes_beginning_ == 0 && (flushing_ & open) == 0) return;
  }
  GST_INFO_OBJECT(element_, "another flush has begun");
  begin_flush();
  set_flushing(open, true);
}

void SrcStream::begin_flush(GstEvent* start) {
  if (GST_PAD_MODE(pad_) == GST_PAD_MODE_PUSH) flushes_downstream_ = true;
  gst_pad_push_event(pad_, start != nullptr ? start : gst_event_new_flush_start());
}

void SrcStream::flush_stop(GstEvent* event, From from) {
  // Without a FLUSH_START before it the task still waits for a frame, and holds the lock.
  set_flushing(ending, true);
  set_flushing(open, false);
  // So does a frame that came between the end of another flush and this one.
  const bool is_open = flushes_open_ > 0;
  if (is_open) --flushes_open_;
  if (is_open && !flushes_downstream_) begin_flush();
  GST_PAD_STREAM_LOCK(pad_);
  {
    const std::lock_guard lock(mutex_);
    gst_clear_event(&eos_);
    sent_.clear();
  }
  ended_ = false;
  shift_.forget_recorded();
  output_.forget_keeping();
  drops_ = is_recorded_whole_ = false;
  stamped_ = -1;
  unlinked_ = false;  // the task is started below, and finds out anew
  const auto is_active = [this] { return GST_PAD_MODE(pad_) == GST_PAD_MODE_PUSH; };
  const bool was_active = is_active();
  if (was_active) flushes_downstream_ = false;
  end_flush(from == From::sink ? flush_stop_for_here(event) : event);
  // A pad that is not active, as ahead of PAUSED, lets the start of a flush through and not its end.
  if (!was_active || !is_active()) left_flushing_ = true;
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
  const GstClockTimeDiff shift = shift_.of_last_frame();
  const InstantRate rate = this->rate();
  if (shift == 0 && !rate.changes()) return qos;
  GstQOSType type = GST_QOS_TYPE_UNDERFLOW;
  gdouble proportion = 1;
  GstClockTimeDiff late = 0;
  GstClockTime time = 0;
  gst_event_parse_qos(qos, &type, &proportion, &late, &time);
  const GstClockTimeDiff there = rate.upstream_of(static_cast<GstClockTimeDiff>(time) - shift);
  late = std::max(late, -there);  // GStreamer asserts that nothing is earlier than 0
  GstEvent* made = there >= 0 ? gst_event_new_qos(type, proportion, late, static_cast<GstClockTime>(there)) : nullptr;
  if (made != nullptr) gst_event_set_seqnum(made, gst_event_get_seqnum(qos));
  gst_event_unref(qos);
  return made;
}

/// What asks for a key frame names the running time from which one is wanted: that of the pipeline which it comes to,
/// the gpumapsink's or this one. Takes `event`.
GstEvent* SrcStream::ask_for_key_frame_in(Pipeline which, GstEvent* event) const {
  GstClockTime time = GST_CLOCK_TIME_NONE;
  const GstStructure* const asked = gst_event_get_structure(event);
  if (asked == nullptr || gst_video_event_is_force_key_unit(event) == 0 ||
      gst_structure_get_clock_time(asked, "running-time", &time) == 0 || !GST_CLOCK_TIME_IS_VALID(time)) {
    return event;
  }
  const auto named = static_cast<GstClockTimeDiff>(time);
  const GstClockTimeDiff shift = shift_.of_last_frame();
  const GstClockTimeDiff moved = which == Pipeline::here ? named + shift : rate().upstream_of(named - shift);
  event = gst_event_make_writable(event);
  gst_structure_set(gst_event_writable_structure(event), "running-time", GST_TYPE_CLOCK_TIME,
                    static_cast<GstClockTime>(std::max<GstClockTimeDiff>(moved, 0)), nullptr);
  return event;
}

bool SrcStream::send_upstream(GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_SEEK) {
    sought_ = gst_event_get_seqnum(event);
    note_seek(element_, event);
  }
  if (GST_EVENT_TYPE(event) == GST_EVENT_QOS) {
    event = qos_for_sink(event);
    if (event == nullptr) return true;
  }
  if (GST_EVENT_TYPE(event) == GST_EVENT_CUSTOM_UPSTREAM) {
    event = ask_for_key_frame_in(Pipeline::there, event);
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

namespace {

/// For how long the ring holds frames back before upstream has to wait; without end where that is not known.
GstClockTime held_at_most(SrcStream& stream, GstPad* pad) {
  const guint64 slots = stream.slots();
  const Ptr<GstCaps> caps(gst_pad_get_current_caps(pad));
  if (!caps) return GST_CLOCK_TIME_NONE;
  gint frames = 0;
  gint seconds = 0;
  const bool known =
      gst_structure_get_fraction(gst_caps_get_structure(caps.get(), 0), "framerate", &frames, &seconds) != 0 &&
      frames > 0 && seconds > 0 && slots > 0;
  return known ? gst_util_uint64_scale(slots * static_cast<guint64>(seconds), GST_SECOND, static_cast<guint64>(frames))
               : GST_CLOCK_TIME_NONE;
}

/// As upstream of the gpumapsink answers.
bool ask_upstream(SrcStream& stream, GstPad* pad, GstQuery* query) {
  const Ptr<GstPad> far(stream.far_pad());
  if (!far) return stream.ask_far(query);
  const PeerAnswer answer = peer_query(far.get(), query);
  if (answer == PeerAnswer::loop) {
    GST_ELEMENT_ERROR(GST_OBJECT_PARENT(pad), CORE, NEGOTIATION,
                      ("this gpumapsrc is upstream of the gpumapsink whose frames it takes: give one of them another "
                       "channel"),
                      (nullptr));
  }
  return answer == PeerAnswer::yes;
}

gboolean answer_latency(SrcStream& stream, GstPad* pad, GstQuery* query) {
  gboolean live = FALSE;
  GstClockTime min = 0;
  GstClockTime max = GST_CLOCK_TIME_NONE;
  const Ptr<GstQuery> upstream(gst_query_new_latency());
  if (ask_upstream(stream, pad, upstream.get())) {
    stream.add_sink_latency(upstream.get());
    gst_query_parse_latency(upstream.get(), &live, &min, &max);
  }
  // The ring adds no delay of its own: a frame can be taken the moment it is published. But it can hold frames back.
  const GstClockTime held = held_at_most(stream, pad);
  max = GST_CLOCK_TIME_IS_VALID(max) && GST_CLOCK_TIME_IS_VALID(held) ? max + held : GST_CLOCK_TIME_NONE;
  gst_query_set_latency(query, static_cast<gboolean>(live || stream.is_live()), min, max);
  return TRUE;
}

/// The media types in `caps`, in every memory (transfer full).
GstCaps* media_types_of(const GstCaps* caps) {
  GstCaps* all = of_each_structure(caps, [](GstCaps* made, const GstStructure* structure, const auto*) {
    gst_caps_append_structure(made, gst_structure_new_empty(gst_structure_get_name(structure)));
  });
  const Ptr<GstCaps> types(gst_caps_merge(gst_caps_new_empty(), all));  // each once
  return offer_cuda(in_either_memory(types.get()));
}

}  // namespace

gboolean answer_caps(GstPad* pad, GstPad* sinkpad, GstQuery* query) {
  const Ptr<GstQuery> upstream(gst_query_new_caps(nullptr));
  GstCaps* given = nullptr;
  if (peer_query(sinkpad, upstream.get()) == PeerAnswer::yes) gst_query_parse_caps_result(upstream.get(), &given);
  Ptr<GstCaps> answer(given == nullptr || gst_caps_is_any(given) ? gst_caps_new_any() : media_types_of(given));
  if (const Ptr<GstCaps> now{gst_pad_get_current_caps(pad)}) {
    const Ptr<GstCaps> plain(from_either_memory(now.get(), cuda_feature_name));
    answer.reset(gst_caps_merge(offer_cuda(in_either_memory(plain.get())), answer.release()));
  }
  GstCaps* filter = nullptr;
  gst_query_parse_caps(query, &filter);
  if (filter != nullptr) answer.reset(gst_caps_intersect_full(filter, answer.get(), GST_CAPS_INTERSECT_FIRST));
  gst_query_set_caps_result(query, answer.get());
  return TRUE;
}

gboolean answer_src_query(SrcStream& stream, const SrcSettings& settings, GstPad* pad, GstQuery* query) {
  GstObject* parent = GST_OBJECT_PARENT(pad);
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_LATENCY:
      return answer_latency(stream, pad, query);
    case GST_QUERY_SCHEDULING:
      gst_query_set_scheduling(query, GST_SCHEDULING_FLAG_SEQUENTIAL, 1, -1, 0);
      gst_query_add_scheduling_mode(query, GST_PAD_MODE_PUSH);
      return TRUE;
    case GST_QUERY_CAPS: {
      Ptr<GstPad> far(stream.far_pad());
      if (!far) far.reset(pad_of_sole_sink(GST_ELEMENT_CAST(parent), settings.channel, settings.socket_path));
      if (!far || !gst_pad_is_linked(far.get())) break;
      return answer_caps(pad, far.get(), query);
    }
    case GST_QUERY_ACCEPT_CAPS:
    case GST_QUERY_ALLOCATION:
      break;
    case GST_QUERY_CONTEXT:
      if (stream.answer_context(query)) return TRUE;
      return static_cast<gboolean>(ask_upstream(stream, pad, query));
    default:
      if (asks_for_gpu_memory(query)) return static_cast<gboolean>(stream.gives_gpu_memory());
      // upstream's to answer, as through a queue
      return static_cast<gboolean>(ask_upstream(stream, pad, query));
  }
  return gst_pad_query_default(pad, parent, query);
}

}  // namespace gpumap::gst
