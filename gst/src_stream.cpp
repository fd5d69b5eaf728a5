// SPDX-License-Identifier: MIT
#include "src_stream.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "error.hpp"
#include "gpumap/error.hpp"

namespace gpumap::gst {

namespace {

/// While a pipeline goes down, what follows may have stopped already and then takes no caps: that is no error.
bool is_stopping(GstElement* element) {
  bool stopping = false;
  for (GstObject* at = GST_OBJECT_CAST(gst_object_ref(element)); at != nullptr;) {
    if (GST_IS_ELEMENT(at)) stopping = stopping || GST_STATE_TARGET(at) < GST_STATE_PAUSED;
    GstObject* parent = gst_object_get_parent(at);
    gst_object_unref(at);
    at = parent;
  }
  return stopping;
}

bool same_pipeline(GstElement* one, GstElement* other) {
  const auto top = [](GstElement* element) {
    GstObject* at = GST_OBJECT_CAST(gst_object_ref(element));
    while (GstObject* parent = gst_object_get_parent(at)) {
      gst_object_unref(at);
      at = parent;
    }
    gst_object_unref(at);
    return at;  // for comparing only
  };
  return top(one) == top(other);
}

}  // namespace

SrcStream::~SrcStream() {
  gst_clear_event(&segment_);
}

void SrcStream::start(const SrcSettings& settings) {
  auto channel = Channel::open(settings.channel);
  std::string holder;
  if (!channel->attach_src(
          element_, [this](GstEvent* event) { on_flush(event); }, holder)) {
    throw Error(ErrorCode::invalid,
                fmt::format("channel \"{}\" has a gpumapsrc already ({}): put a tee after that one, "
                            "or give each pair a channel name of its own",
                            settings.channel, holder));
  }
  channel->set_src_spin(std::chrono::microseconds(settings.busy_poll_us));
  settings_ = settings;
  started_ = false;
  shift_ = 0;
  plays_ = 0;
  frames_ = 0;
  bytes_ = 0;
  const std::lock_guard lock(mutex_);
  channel_ = std::move(channel);
}

void SrcStream::stop() {
  channel_->detach_src();
  {
    const std::lock_guard lock(mutex_);
    channel_.reset();
  }
  gst_clear_event(&segment_);
  output_.reset();
}

std::shared_ptr<Channel> SrcStream::channel() {
  const std::lock_guard lock(mutex_);
  return channel_;
}

void SrcStream::set_flushing(bool flushing) {
  {
    const std::lock_guard lock(mutex_);
    flushing_ = flushing;
  }
  changed_.notify_all();
  if (const auto channel = this->channel()) channel->set_src_flushing(flushing);
}

void SrcStream::set_playing(bool playing) {
  {
    const std::lock_guard lock(mutex_);
    playing_ = playing;
  }
  changed_.notify_all();
  if (const auto channel = this->channel()) channel->set_src_playing(playing);
}

bool SrcStream::start_task() {
  return gst_pad_start_task(
             pad_, [](gpointer self) { static_cast<SrcStream*>(self)->step(); }, this, nullptr) != 0;
}

GstPad* SrcStream::far_pad() {
  const auto channel = this->channel();
  GstElement* sink = channel ? channel->sink() : nullptr;
  if (sink == nullptr) return nullptr;
  GstPad* pad = gst_element_get_static_pad(sink, "sink");
  gst_object_unref(sink);
  return pad;
}

void SrcStream::on_flush(GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START) {
    gst_pad_push_event(pad_, event);
    set_flushing(true);
    return;
  }
  GST_PAD_STREAM_LOCK(pad_);
  gst_pad_push_event(pad_, event);
  if (const auto channel = this->channel()) channel->set_downstream_flow(GST_FLOW_OK);
  set_flushing(false);
  if (GST_PAD_MODE(pad_) == GST_PAD_MODE_PUSH) (void)start_task();
  GST_PAD_STREAM_UNLOCK(pad_);
}

/// Two pipelines have two base times: what is due at a moment on the clock there is due at that moment here.
GstClockTimeDiff SrcStream::running_time_shift() const {
  GstElement* sink = channel_->sink();
  if (sink == nullptr) return shift_;
  GstClockTimeDiff shift = shift_;
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

/// Upstream (filesrc) may name no caps; downstream needs some, and before the segment.
bool SrcStream::name_caps() {
  if (output_.has_caps()) return true;
  GstCaps* caps = gst_caps_new_empty_simple("application/octet-stream");
  const bool accepted = output_.negotiate(caps);
  gst_caps_unref(caps);
  return accepted;
}

/// False: the stream is over.
bool SrcStream::push(GstEvent* event) {
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_STREAM_START:
      started_ = true;
      break;
    case GST_EVENT_CAPS: {
      GstCaps* caps = nullptr;
      gst_event_parse_caps(event, &caps);
      const bool accepted = output_.negotiate(caps);
      gst_event_unref(event);
      if (!accepted && !is_stopping(element_)) {
        GST_ELEMENT_ERROR(element_, STREAM, FORMAT,
                          ("what follows gpumapsrc takes these frames neither as memory:GPUMap nor as system memory: "
                           "put a converter in between"),
                          (nullptr));
        channel_->set_downstream_flow(GST_FLOW_NOT_NEGOTIATED);
      }
      return accepted;
    }
    case GST_EVENT_SEGMENT:
      if (!name_caps()) {
        gst_event_unref(event);
        return false;
      }
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

GstFlowReturn SrcStream::push(Channel::Next& frame) {
  if (!started_) push_stream_start();
  if (gst_pad_check_reconfigure(pad_) && !output_.renegotiate()) return GST_FLOW_NOT_NEGOTIATED;
  if (!name_caps()) return GST_FLOW_NOT_NEGOTIATED;
  follow_base_times();
  frames_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(frame.lease.info().bytes, std::memory_order_relaxed);
  return gst_pad_push(pad_, output_.wrap(std::move(frame.lease), frame.carrier.release()));
}

void SrcStream::time_out() const {
  GstElement* sink = channel_->sink();
  const bool alone = sink == nullptr;
  gst_clear_object(&sink);
  throw Error(ErrorCode::io,
              alone ? fmt::format("no gpumapsink on channel \"{}\" for {} ms: start one in this process with the same "
                                  "channel, or raise timeout",
                                  channel_->name(), settings_.timeout_ms)
                    : fmt::format("no frame on channel \"{}\" for {} ms: see what feeds its gpumapsink, or raise "
                                  "timeout",
                                  channel_->name(), settings_.timeout_ms));
}

void SrcStream::end(GstFlowReturn flow) {
  gst_pad_pause_task(pad_);
  if (flow == GST_FLOW_FLUSHING) return;
  channel_->set_downstream_flow(flow);
  if (flow == GST_FLOW_NOT_LINKED || flow < GST_FLOW_EOS) GST_ELEMENT_FLOW_ERROR(element_, flow);
  gst_pad_push_event(pad_, gst_event_new_eos());
}

/// A live source gives nothing while paused. False: flushing.
bool SrcStream::wait_while_paused() {
  if (!settings_.is_live) return true;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return playing_ || flushing_; });
  return !flushing_;
}

void SrcStream::step() {
  if (!wait_while_paused()) {
    gst_pad_pause_task(pad_);
    return;
  }
  try {
    const Deadline deadline =
        settings_.timeout_ms != 0 ? Clock::now() + std::chrono::milliseconds(settings_.timeout_ms) : no_deadline;
    Channel::Next next = channel_->next(deadline);
    switch (next.kind) {
      case Channel::Next::Kind::frame:
        if (const GstFlowReturn flow = push(next); flow != GST_FLOW_OK) end(flow);
        break;
      case Channel::Next::Kind::event:
        if (!push(next.event)) gst_pad_pause_task(pad_);
        break;
      case Channel::Next::Kind::timeout:
        time_out();
      case Channel::Next::Kind::flushing:
        gst_pad_pause_task(pad_);
        break;
    }
  } catch (const std::exception& error) {
    post_error(element_, error);
    gst_pad_pause_task(pad_);
    channel_->set_downstream_flow(GST_FLOW_ERROR);
    gst_pad_push_event(pad_, gst_event_new_eos());
  }
}

}  // namespace gpumap::gst
