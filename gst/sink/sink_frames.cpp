// SPDX-License-Identifier: MIT
#include "gst/sink/sink_frames.hpp"

#include <chrono>
#include <utility>

#include "gst/channel/frame_origin.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/gst_error.hpp"

namespace gpumap::gst {
namespace {

/// From preroll() through GstBaseSink to chain(): the frame is across, and need not wait for the clock.
constexpr GstFlowReturn sent_early = GST_FLOW_CUSTOM_SUCCESS_1;

}  // namespace

bool SinkFrames::src_prerolls() const {
  // On the way to PLAYING most sinks have their frame already, but not those of a live pipeline.
  constexpr std::chrono::milliseconds on_the_way_to_playing(20);
  const auto channel = core_.channel();
  if (channel && (channel->downstream_flow() != GST_FLOW_OK || channel->has_ended_unmet())) return true;
  GstElement* src = channel ? channel->src() : nullptr;
  if (src == nullptr) return false;
  bool prerolls = false;
  if (const auto waits = channel->src_waits(); waits && core_.queue_is_empty()) {
    prerolls = is_prerolling(src) || (*waits >= on_the_way_to_playing && is_changing_state(src));
  }
  gst_object_unref(src);
  return prerolls;
}

/// Nothing where the frame would have to wait for a slot, or did so until `stopped()`.
std::optional<GstFlowReturn> SinkFrames::send(GstBuffer* buffer, SinkCore::Patience patience,
                                              const std::function<bool()>& stopped) {
  try {
    FrameOrigin origin;
    if (core_.stamping()) {
      origin = {due_ns(buffer, sink_->segment, base_.load(std::memory_order_relaxed)), captured_ns(buffer)};
    }
    const auto flow = core_.send(buffer, origin, stopped, patience);
    if (const std::uint64_t drops = core_.given_up(); drops != told_drops_) tell_of_drops(buffer, drops);
    return flow;
  } catch (const std::exception& error) {
    post_error(GST_ELEMENT_CAST(sink_), error);
    return GST_FLOW_ERROR;
  }
}

/// As elements do that are too late: `leaky` gave up this frame, or one that waited longer.
void SinkFrames::tell_of_drops(GstBuffer* buffer, std::uint64_t drops) {
  told_drops_ = drops;
  const GstSegment& segment = sink_->segment;
  const GstClockTime at = GST_BUFFER_PTS(buffer);
  const bool timed = segment.format == GST_FORMAT_TIME;
  GstMessage* message =
      gst_message_new_qos(GST_OBJECT_CAST(sink_), FALSE,
                          timed ? gst_segment_to_running_time(&segment, GST_FORMAT_TIME, at) : GST_CLOCK_TIME_NONE,
                          timed ? gst_segment_to_stream_time(&segment, GST_FORMAT_TIME, at) : GST_CLOCK_TIME_NONE, at,
                          GST_BUFFER_DURATION(buffer));
  gst_message_set_qos_stats(message, GST_FORMAT_BUFFERS, core_.sent(), drops);
  gst_element_post_message(GST_ELEMENT_CAST(sink_), message);
}

namespace {

bool never() {
  return false;
}

}  // namespace

/// The same, and a wait is done without the preroll's lock, which changes of state and flushes take. It ends where the
/// pad is closed: the thread that closes it waits for this one.
std::optional<GstFlowReturn> SinkFrames::send_waiting(GstBuffer* buffer, const std::function<bool()>& stopped) {
  auto flow = send(buffer, SinkCore::Patience::does_not_wait, never);
  if (flow) return flow;
  GST_BASE_SINK_PREROLL_UNLOCK(sink_);
  bool closed = false;
  flow = send(buffer, SinkCore::Patience::waits, [&] {
    closed = GST_PAD_IS_FLUSHING(GST_BASE_SINK_PAD(sink_));
    return closed || stopped();
  });
  GST_BASE_SINK_PREROLL_LOCK(sink_);
  return !flow && closed ? GST_FLOW_FLUSHING : flow;
}

bool SinkFrames::send_at_once(GstBuffer* buffer) {
  const auto flow = send(buffer, SinkCore::Patience::does_not_wait, never);
  if (!flow) return false;
  sent_ = buffer;
  sent_flow_ = *flow;
  rendered_ = true;
  return true;
}

/// The first frame goes across at once, so that what follows the src can preroll; one that finds no slot is rendered in
/// its turn. A frame that waited for the clock when the sink paused waits here.
GstFlowReturn SinkFrames::preroll(GstBuffer* buffer) {
  const auto wanted = [this] { return src_prerolls(); };
  if (buffer == nothing_) {
    // Nothing to send.
  } else if (!preroll_.is_done()) {
    // What is returned here but OK counts as a failed change of state: render() returns what became of it.
    (void)send_at_once(buffer);
  } else {
    while (!preroll_.plays()) {
      switch (preroll_.wait(wanted)) {
        case SinkPreroll::Verdict::flushing:
          return GST_FLOW_FLUSHING;
        case SinkPreroll::Verdict::wanted:
          if (sent_ == buffer || send_at_once(buffer)) return sent_early;
          continue;
        case SinkPreroll::Verdict::plays:
          break;
      }
      break;
    }
  }
  preroll_.finish();
  return GST_FLOW_OK;
}

void SinkFrames::preroll_with_nothing() {
  nothing_ = gst_buffer_new();
  (void)gst_base_sink_do_preroll(sink_, GST_MINI_OBJECT_CAST(nothing_));
  gst_clear_buffer(&nothing_);
}

GstFlowReturn SinkFrames::render(GstBuffer* buffer) {
  rendered_ = true;
  if (std::exchange(sent_, nullptr) == buffer) return sent_flow_;
  // Outside the segment, and so without a time: GstBaseSink renders it without preroll.
  if (!preroll_.is_done()) return *send_waiting(buffer, never);
  while (preroll_.plays()) {
    if (const auto flow = send_waiting(buffer, [&] { return preroll_.is_paused(); })) return *flow;
  }
  switch (preroll_.wait([this] { return src_prerolls(); })) {
    case SinkPreroll::Verdict::wanted:
      return *send_waiting(buffer, never);
    case SinkPreroll::Verdict::plays:
      if (std::exchange(again_, buffer) == buffer) return *send_waiting(buffer, never);
      return GST_FLOW_CUSTOM_ERROR;  // GstBaseSink's sign to wait for the clock anew: the base time has changed
    case SinkPreroll::Verdict::flushing:
      break;
  }
  return GST_FLOW_FLUSHING;
}

/// Before GstBaseSink sees the frame: while paused it waits here, where it can still be wanted.
GstFlowReturn SinkFrames::chain(GstPad* pad, GstBuffer* buffer, GstPadChainFunction base_chain) {
  const SinkCore::Rendering rendering(core_);
  auto verdict = SinkPreroll::Verdict::plays;
  GstFlowReturn flow = GST_FLOW_FLUSHING;
  if (preroll_.is_paused()) {
    GST_BASE_SINK_PREROLL_LOCK(sink_);
    if (!preroll_.plays() && preroll_.is_done() && sink_->playing_async == 0) {
      verdict = preroll_.wait([this] { return src_prerolls(); });
    }
    if (verdict == SinkPreroll::Verdict::wanted) flow = *send_waiting(buffer, never);
    GST_BASE_SINK_PREROLL_UNLOCK(sink_);
  }
  if (verdict != SinkPreroll::Verdict::plays) {
    gst_buffer_unref(buffer);
    return flow;
  }
  rendered_ = false;
  again_ = nullptr;
  flow = base_chain(pad, GST_OBJECT_CAST(sink_), buffer);
  if (flow == sent_early) flow = sent_flow_;
  sent_ = nullptr;
  if (!rendered_ && flow == GST_FLOW_OK) core_.mark_hole();  // too late, and dropped
  return flow;
}

namespace {

/// The state of the gpumapsrc's side changes without a word to this one.
constexpr gint64 look_again_us = 20000;

class PrerollLock {
 public:
  explicit PrerollLock(GstBaseSink* sink) : sink_(sink) { GST_BASE_SINK_PREROLL_LOCK(sink_); }
  ~PrerollLock() { GST_BASE_SINK_PREROLL_UNLOCK(sink_); }
  PrerollLock(const PrerollLock&) = delete;
  PrerollLock& operator=(const PrerollLock&) = delete;

 private:
  GstBaseSink* sink_;
};

}  // namespace

bool SinkPreroll::plays() {
  if (!playing_) {
    // After a flush GstBaseSink can commit to PLAYING without a change of state that this class would be told of.
    GST_OBJECT_LOCK(sink_);
    playing_ = GST_STATE(sink_) == GST_STATE_PLAYING && GST_STATE_PENDING(sink_) == GST_STATE_VOID_PENDING;
    GST_OBJECT_UNLOCK(sink_);
  }
  return playing_;
}

void SinkPreroll::finish() {
  done_ = true;
  sink_->have_preroll = TRUE;
  sink_->need_preroll = FALSE;
  GST_OBJECT_LOCK(sink_);
  const bool nothing_pending = GST_STATE_PENDING(sink_) == GST_STATE_VOID_PENDING;
  GST_OBJECT_UNLOCK(sink_);
  // With nothing to commit GstBaseSink would look at its state and wait after all.
  if (nothing_pending || gst_base_sink_is_async_enabled(sink_) == 0) sink_->playing_async = FALSE;
}

SinkPreroll::Verdict SinkPreroll::wait(const std::function<bool()>& wanted) {
  // What is on its way over there may be enough: the first one is given time.
  bool ask = std::exchange(was_wanted_, false);
  while (true) {
    if (sink_->flushing) return Verdict::flushing;
    const bool plays = this->plays();
    if (plays) return Verdict::plays;
    if (sink_->playing_async != 0) return Verdict::plays;  // a step: GstBaseSink wants a frame to preroll with anew
    if (std::exchange(ask, true) && !plays && wanted()) {
      was_wanted_ = true;
      return Verdict::wanted;
    }
    g_cond_wait_until(&sink_->preroll_cond, &sink_->preroll_lock, g_get_monotonic_time() + look_again_us);
  }
}

SinkPreroll::Verdict SinkPreroll::wait_a_while() {
  g_cond_wait_until(&sink_->preroll_cond, &sink_->preroll_lock, g_get_monotonic_time() + look_again_us);
  return sink_->flushing ? Verdict::flushing : Verdict::plays;
}

void SinkPreroll::leave_to_base() {
  if (!plays()) sink_->need_preroll = TRUE;
}

void SinkPreroll::set_playing(bool playing) {
  const PrerollLock lock(sink_);
  playing_ = playing;
  // GstBaseSink believes itself prerolled while it holds a frame back. Here frames lie in the ring: a sink whose ring
  // is full has nothing to hold, and is prerolled all the same.
  if (done_) sink_->have_preroll = TRUE;
  GST_BASE_SINK_PREROLL_BROADCAST(sink_);
}

void SinkPreroll::hold() {
  const PrerollLock lock(sink_);
  // Any other frame waits in render(): GstBaseSink would keep it without asking the class.
  if (!done_ || playing_ || sink_->clock_id == nullptr) return;
  sink_->need_preroll = TRUE;
  gst_clock_id_unschedule(sink_->clock_id);
}

void SinkPreroll::restart() {
  const PrerollLock lock(sink_);
  playing_ = false;
  done_ = false;
  sink_->have_preroll = FALSE;
}

}  // namespace gpumap::gst
