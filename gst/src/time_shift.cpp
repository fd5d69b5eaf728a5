// SPDX-License-Identifier: MIT
// By what frames are due at another running time here than in the pipeline of their gpumapsink.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "gpumap/latency.hpp"
#include "gst/channel/frame_origin.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/ptr.hpp"
#include "gst/src/src_stream.hpp"

namespace gpumap::gst {

namespace {

constexpr gint64 between_looks_us = 1000000;
/// Two clocks are read one after the other: a difference below this may be the time in between.
constexpr GstClockTimeDiff clock_error = 2 * GST_MSECOND;
/// Streams without key frames are damaged for a while behind what was left out, and whole again.
constexpr GstClockTimeDiff longest_wait_for_key = GST_SECOND;

/// The base time of an element's pipeline.
struct Base {
  GstClockTime time = GST_CLOCK_TIME_NONE;  ///< invalid: it does not play
  bool settled = false;                     ///< it plays; otherwise look again
};

/// `old`: a base time that a flush has ended. The pipeline has it still until its sinks have a frame, and these go
/// ahead. A flush that does not reset the time takes sinks out of PLAYING as well, but the base time holds. Look at the
/// clock afterwards: a pipeline that begins to play meanwhile sets its clock before its base time, and both before its
/// state.
Base base_of(GstElement* element, bool playing, GstClockTime old) {
  const bool settled = playing && !is_changing_state(element);
  const bool plays = settled || is_in_playing(element);
  const GstClockTime base = base_time_of(element);
  if (plays || (playing && base != old)) return {base, settled};
  // A live pipeline lets its elements play while the sink of one branch still waits for its first frame.
  const GstClockTime coming = coming_base_time(element);
  return {coming != old ? coming : GST_CLOCK_TIME_NONE, false};
}

/// Such a pipeline has no running time. As a producer it begins at each segment; a consumer takes times as they are.
bool plays_without_clock(const Base& base, const Ptr<GstClock>& clock) {
  return GST_CLOCK_TIME_IS_VALID(base.time) && !clock;
}

/// While its pipeline does not play, the base time that this would have if it began now, at the running time at which
/// it stopped.
GstClockTimeDiff base_or_now(const Base& base, GstElement* element, GstClockTime now) {
  if (GST_CLOCK_TIME_IS_VALID(base.time)) return static_cast<GstClockTimeDiff>(base.time);
  const Ptr<GstElement> pipeline(top_level(element));
  const GstClockTime stopped = gst_element_get_start_time(pipeline.get());
  return GST_CLOCK_DIFF(GST_CLOCK_TIME_IS_VALID(stopped) ? stopped : 0, now);
}

/// The running time here while the clock here says `now`, at the moment `monotonic`.
GstClockTimeDiff running_time_of(GstElement* src, const Base& base, PrerollClock* preroll, GstClockTime now,
                                 GstClockTimeDiff monotonic) {
  const GstClockTimeDiff own = static_cast<GstClockTimeDiff>(now) - base_or_now(base, src, now);
  return preroll != nullptr ? preroll->running_time(monotonic, own, base.settled) : own;
}

}  // namespace

void TimeShift::reset() {
  now_ = 0;
  forget_hold();
  settle();
  there_ = {};
  here_ = GST_CLOCK_TIME_NONE;
  playing_ = false;
  estimated_ = false;
  two_clocks_ = false;
  looked_at_us_ = 0;
  ended_there_ = GST_CLOCK_TIME_NONE;
  ended_here_ = GST_CLOCK_TIME_NONE;
}

void TimeShift::forget_recorded() {
  recorded_until_ = behind_ = 0;
  recorded_last_ = -1;
  stood_still_ = leaves_out_ = waits_for_key_ = false;
  waits_since_.reset();
}

void TimeShift::forget_hold() {
  forget_recorded();
  preroll_.reset();
  played_ = false;
  given_.reset();
  may_hold_ = true;
}

bool TimeShift::may_hold() noexcept {
  if (!may_hold_) return false;
  may_hold_ = !there_.playing;
  if (may_hold_) given_ = shift_;
  return !may_hold_;
}

void TimeShift::hold(const Channel& channel, GstClockTimeDiff first) {
  preroll_ = PrerollClock::join(src_, estimated_, given_.has_value());
  if (!preroll_) return;
  const GstClockTimeDiff now = monotonic_ns();
  const GstClockTimeDiff there = now_there(channel);
  const GstClockTimeDiff wanted = std::max(-first, given_.value_or(-there));
  const bool may_move = preroll_->begin_at(now - there - wanted);
  now_ = compute(channel, false);
  if (may_move) {  // by the time between the two clocks that were read
    preroll_->move_begin(now_ - wanted);
    now_ = wanted;
  }
  settle();
}

std::optional<GstClockTimeDiff> TimeShift::later_by(const Piece& next, const std::function<bool()>& live) {
  constexpr GstClockTime longest = GST_SECOND;  // else one piece of many hours would keep all others from following
  const auto due = [&] { return next.begin + now_ + behind_; };
  if (std::exchange(stood_still_, false)) {
    leaves_out_ = playing_ && live();
    const bool goes_on = !leaves_out_ && (!playing_ || recorded_ >= Recorded::alone);
    behind_ = goes_on ? behind_ + std::max<GstClockTimeDiff>(recorded_until_ - due(), 0) : 0;
  }
  if (leaves_out_ && due() <= recorded_last_) {
    waits_for_key_ = true;
    return std::nullopt;
  }
  leaves_out_ = false;
  if (waits_for_key_ && next.needs_others) {
    if (!waits_since_) waits_since_ = due();
    if (due() - *waits_since_ < longest_wait_for_key) return std::nullopt;
  }
  waits_for_key_ = false;
  waits_since_.reset();
  // Before both pipelines have a time: none is due before time begins.
  if (may_hold_ && recorded_ >= Recorded::alone && due() < 0) {
    given_ = -next.begin;
    if (recorded_ == Recorded::alone) return -due();
    now_ = -next.begin - behind_;  // the others of the only source follow, in the same segment
    settle();
    return 0;
  }
  const GstClockTime length = GST_CLOCK_TIME_IS_VALID(next.duration) ? std::min(next.duration, longest) : 0;
  recorded_last_ = std::max(recorded_last_, due());
  recorded_until_ = std::max(recorded_until_, due() + static_cast<GstClockTimeDiff>(length));
  later_ = now_ + behind_ - shift_;
  return later_;
}

void TimeShift::settle() noexcept {
  shift_ = now_ + behind_;
  later_ = 0;
}

void TimeShift::begin_anew_there(const Channel& channel) {
  const Ptr<GstElement> sink(channel.sink());
  if (sink) ended_there_ = base_time_of(sink.get());
}

void TimeShift::begin_anew_here() {
  forget_hold();
  ended_here_ = base_time_of(src_);
}

GstClockTimeDiff TimeShift::now_here(const Channel& channel, GstClockTime now) const {
  return static_cast<GstClockTimeDiff>(now) - base_or_now(base_of(src_, channel.src_playing(), ended_here_), src_, now);
}

GstClockTimeDiff TimeShift::now_there(const Channel& channel) const {
  const Ptr<GstElement> sink(channel.sink());
  if (!sink) {
    const auto far = channel.far_time();
    return far ? far->running_time(monotonic_ns()) : 0;
  }
  const Ptr<GstClock> clock(gst_element_get_clock(sink.get()));
  if (!clock) return 0;
  const GstClockTime now = gst_clock_get_time(clock.get());
  const Base base = base_of(sink.get(), channel.sink_playing(), ended_there_);
  return static_cast<GstClockTimeDiff>(now) - base_or_now(base, sink.get(), now);
}

GstClockTimeDiff TimeShift::compute_from(const Channel::FarTime& there, const Channel& channel, bool anew) {
  const Base base_here = base_of(src_, channel.src_playing(), ended_here_);
  const Ptr<GstClock> here(gst_element_get_clock(src_));
  const GstClockTimeDiff now = monotonic_ns();
  const bool shared = !here || is_monotonic(here.get());
  const GstClockTime now_here = shared ? static_cast<GstClockTime>(now) : gst_clock_get_time(here.get());
  two_clocks_ = !shared;
  estimated_ = !there.clockless && (!there.playing || !base_here.settled);
  looked_at_us_ = g_get_monotonic_time();
  played_ = played_ || base_here.settled;
  if (plays_without_clock(base_here, here) || (there.clockless && !anew)) return now_;
  if (base_here.settled) ended_here_ = GST_CLOCK_TIME_NONE;
  // Running times: sums of clocks' times might overflow.
  return running_time_of(src_, base_here, preroll_.get(), now_here, now) - there.running_time(now);
}

GstClockTimeDiff TimeShift::compute(const Channel& channel, bool anew) {
  const Ptr<GstElement> sink(channel.sink());
  if (!sink) {
    const auto far = channel.far_time();
    return far ? compute_from(*far, channel, anew) : now_;
  }
  GstClockTimeDiff shift = now_;
  estimated_ = false;
  Base base_there = base_of(sink.get(), channel.sink_playing(), ended_there_);
  const Base base_here = base_of(src_, channel.src_playing(), ended_here_);
  played_ = played_ || base_here.settled;
  const Ptr<GstClock> here(gst_element_get_clock(src_));
  const Ptr<GstClock> there(gst_element_get_clock(sink.get()));
  two_clocks_ = here && there && here != there;
  const bool clockless = plays_without_clock(base_there, there);
  if (clockless) base_there = {GST_CLOCK_TIME_NONE, true};
  if (same_pipeline(src_, sink.get())) {
    shift = 0;
  } else if (plays_without_clock(base_here, here) || (clockless && !anew)) {
    // As it is.
  } else if (is_stopping(sink.get()) || (!here && !there)) {
    estimated_ = true;  // what is left of a stream that ends is due when it always was; or neither side has played yet
  } else {
    estimated_ = !base_there.settled || !base_here.settled;
    if (base_there.settled) ended_there_ = GST_CLOCK_TIME_NONE;
    if (base_here.settled) ended_here_ = GST_CLOCK_TIME_NONE;
    // A side that has not played yet has no clock. Its running time will begin when it plays: now, as far as is known.
    const GstClockTime now_there = gst_clock_get_time(there ? there.get() : here.get());
    const GstClockTime now_here = two_clocks_ ? gst_clock_get_time(here.get()) : now_there;
    const GstClockTimeDiff run_there =
        static_cast<GstClockTimeDiff>(now_there) - base_or_now(base_there, sink.get(), now_there);
    const bool shared = is_monotonic(here ? here.get() : there.get());
    const GstClockTimeDiff monotonic = shared ? static_cast<GstClockTimeDiff>(now_here) : monotonic_ns();
    shift = running_time_of(src_, base_here, preroll_.get(), now_here, monotonic) - run_there;
  }
  looked_at_us_ = g_get_monotonic_time();
  return shift;
}

bool TimeShift::update(const Channel& channel, bool anew) {
  const Channel::SinkTime there = channel.sink_time();
  if (there.is_later) return false;
  const GstClockTime here = base_time_of(src_);
  const bool playing = channel.src_playing();
  const bool here_changed = here != here_ || playing != playing_;
  const bool changed = there != there_ || here_changed;
  const bool again = two_clocks_ && g_get_monotonic_time() - looked_at_us_ > between_looks_us;
  const bool known = estimated_ && !is_changing_state(src_) && there.playing && playing;
  if (!changed && !again && !known && !anew) return false;
  there_ = there;
  here_ = here;
  playing_ = playing;
  const bool goes_on = played_ && !anew;
  const Ptr<GstElement> sink(channel.sink());
  recorded_ = sink && same_pipeline(src_, sink.get()) ? Recorded::no : recorded_of(src_);  // one time, and no shift
  const GstClockTimeDiff now = compute(channel, anew);
  // Between two looks at the same clocks only their drift counts.
  if (again && !changed && !known && !anew && std::llabs(now - now_) < clock_error) return false;
  now_ = now;
  if (recorded_ != Recorded::no && goes_on) {
    stood_still_ = stood_still_ || here_changed || !playing;
    return false;
  }
  // A producer that is faster than time may begin anew before the end of what it gave. Of several sources each would go
  // on behind its own, and they would lose each other.
  stood_still_ = stood_still_ || (anew && recorded_ == Recorded::sole && recorded_last_ >= 0);
  const GstClockTimeDiff before = shift_;
  settle();
  return shift_ != before;
}

}  // namespace gpumap::gst
