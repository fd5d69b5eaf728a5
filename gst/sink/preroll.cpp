// SPDX-License-Identifier: MIT
#include "gst/sink/preroll.hpp"

#include <utility>

namespace gpumap::gst {

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
