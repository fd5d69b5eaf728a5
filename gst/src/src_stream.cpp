// SPDX-License-Identifier: MIT
#include "gst/src/src_stream.hpp"

#include <fmt/format.h>
#include <gst/video/video-event.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"
#include "gst/channel/ends.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/gst_error.hpp"
#include "gst/latency/latency_report.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

namespace gpumap::gst {

SrcStream::SrcStream(GstElement* element, GstPad* pad)
    : element_(element),
      pad_(pad),
      output_(element, pad,
              {.upstream_gives = [this](GstCaps* wanted) { return upstream_gives(wanted); },
               .moment =
                   [this] {
                     const std::lock_guard lock(mutex_);
                     return SrcOutput::Moment{.flushing = flushing_ != 0, .playing = playing_};
                   },
               .device = [this] { return device(); }}),
      shift_(element) {}

SrcStream::~SrcStream() {
  withdraw();
  gst_clear_event(&segment_);
  gst_clear_event(&eos_);
}

std::string SrcStream::device() {
  Ptr<GstPad> far(far_pad());
  if (!far) {
    // Not started: whom it will meet.
    gchar* channel = nullptr;
    gchar* socket_path = nullptr;
    g_object_get(element_, "channel", &channel, "socket-path", &socket_path, nullptr);
    const Ptr<gchar> name(channel);
    const Ptr<gchar> path(socket_path);
    far.reset(pad_of_sole_sink(element_, channel != nullptr ? channel : "", socket_path != nullptr ? socket_path : ""));
  }
  const Ptr<GstElement> sink(far ? gst_pad_get_parent_element(far.get()) : nullptr);
  gchar* selector = nullptr;
  if (sink) g_object_get(sink.get(), "device", &selector, nullptr);
  const Ptr<gchar> owned(selector);
  return selector != nullptr ? selector : "auto";
}

void SrcStream::announce(const std::string& channel) {
  withdraw();
  announced_ = channel_of(End::src, element_, channel);
  announced_->announce_src_pad(pad_);
}

void SrcStream::withdraw() {
  if (announced_) announced_->withdraw_src_pad(pad_);
  announced_.reset();
}

void SrcStream::start(const SrcSettings& settings) {
  if (flushes_downstream_.exchange(false)) left_flushing_ = true;  // it stopped within a flush
  auto channel = channel_of(End::src, element_, settings.channel);
  std::string holder;
  if (!channel->attach_src(
          element_, pad_, [this](GstEvent* event) { on_event(event); }, holder)) {
    throw FiguredError(
        Error(ErrorCode::invalid, fmt::format("channel \"{}\" has a gpumapsrc already ({})", settings.channel, holder),
              "put a tee after that one, or give each pair a channel name of its own"),
        {{"channel", settings.channel}, {"holder", holder}});
  }
  channel->set_src_spin(std::chrono::microseconds(settings.busy_poll_us));
  withdraw();  // it may have been renamed, or moved, since READY
  announced_ = channel;
  announced_->announce_src_pad(pad_);
  settings_ = settings;
  schedule_ = settings.threads.schedule();
  live_ = settings.is_live;
  started_ = false;
  ended_ = false;
  drops_ = is_recorded_whole_ = false;
  stamped_ = -1;
  unlinked_ = false;
  const bool crosses = !settings.socket_path.empty();
  output_.begin({.elements = {},
                 .where = crosses ? fmt::format(" of socket-path {}", printable(settings.socket_path))
                                  : fmt::format(" of channel \"{}\"", channel->name()),
                 .is_elsewhere = crosses});
  owes_segment_ = false;
  latest_ = GST_CLOCK_TIME_NONE;
  told_odd_time_ = false;
  shift_.reset();
  shifted_ = false;
  joins_ = true;
  begins_at_ = GST_CLOCK_TIME_NONE;
  past_from_ = past_until_ = 0;
  prerolls_past_ = false;
  prerolled_ = 0;
  frames_ = 0;
  bytes_ = 0;
  flushes_open_ = 0;
  {
    const std::lock_guard lock(mutex_);
    flushing_ &= ~static_cast<unsigned>(open);
    played_ = false;
    channel_ = std::move(channel);
  }
  begin_rate();
}

void SrcStream::stop() {
  channel_->detach_src();
  {
    const std::lock_guard lock(mutex_);
    channel_.reset();
    loans_.reset();
    gst_clear_event(&eos_);
    sent_.clear();
    asked_ = false;
  }
  gst_clear_event(&segment_);
  shift_.reset();  // all sources of a pipeline stop before one starts again
  output_.reset();
}

GstStructure* SrcStream::stats() {
  std::shared_ptr<Loans> loans;
  {
    const std::lock_guard lock(mutex_);
    loans = loans_;
  }
  GstStructure* made = gst_structure_new(
      "gpumapsrc-stats", "frames", G_TYPE_UINT64, frames_.load(std::memory_order_relaxed), "bytes", G_TYPE_UINT64,
      bytes_.load(std::memory_order_relaxed), "kept-slots", G_TYPE_UINT, loans ? loans->count() : 0, "host-copies",
      G_TYPE_UINT64, output_.host_copies(), "gpu-copies", G_TYPE_UINT64, output_.gpu_copies(), nullptr);
  if (const auto channel = this->channel()) add_latency(made, channel->log().get());
  return made;
}

std::shared_ptr<Channel> SrcStream::channel() {
  const std::lock_guard lock(mutex_);
  return channel_;
}

std::uint32_t SrcStream::slots() {
  const auto channel = this->channel();
  return channel ? channel->slots() : 0;
}

void SrcStream::add_sink_latency(GstQuery* answered) {
  if (const auto channel = this->channel()) channel->add_sink_latency(answered);
}

void SrcStream::set_flushing(Flushing why, bool flushing) {
  {
    const std::lock_guard lock(mutex_);
    flushing_ = flushing ? flushing_ | why : flushing_ & ~static_cast<unsigned>(why);
    // Under the lock: of two that come at once the channel is told what holds.
    if (channel_) channel_->set_src_flushing(flushing_ != 0);
  }
  changed_.notify_all();
}

void SrcStream::set_playing(bool playing) {
  {
    const std::lock_guard lock(mutex_);
    playing_ = playing;
    played_ = played_ || playing;
  }
  changed_.notify_all();
  if (const auto channel = this->channel()) {
    channel->set_src_playing(playing);
    channel->interrupt_src();
  }
}

void SrcStream::tell_if_alone() {
  const auto channel = this->channel();
  if (!channel || channel->slots() > 0 || frames_ > 0) return;
  if (const Ptr<GstElement> sink{channel->sink()}) return;
  post_warning(element_,
               FiguredError(Error(ErrorCode::not_found,
                                  fmt::format("gpumapsrc waits: no gpumapsink has channel \"{}\"; {}",
                                              printable(channel->name()), ends_here(End::sink)),
                                  "start one in this process with the same channel, or give both the same socket-path"),
                            {{"channel", channel->name()}}));
}

bool SrcStream::send_downstream(GstEvent* event) {
  const auto channel = this->channel();
  if (!channel) {
    gst_event_unref(event);
    return false;
  }
  if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) end_unmet_sinks(event, element_);
  const Ptr<GstElement> sink(channel->sink());
  if (sink && is_sent_to_both(event, element_, sink.get())) {
    GST_DEBUG_OBJECT(element_, "%s of the pipeline: left to the one that comes through the ring",
                     GST_EVENT_TYPE_NAME(event));
    gst_event_unref(event);
    return true;
  }
  if ((gst_event_type_get_flags(GST_EVENT_TYPE(event)) & GST_EVENT_TYPE_SERIALIZED) == 0 ||
      GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_STOP) {
    send_now(event, From::application);
    return true;
  }
  {
    const std::lock_guard lock(mutex_);
    if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) {
      gst_event_take(&eos_, event);
    } else {
      sent_.emplace_back(event);
    }
    asked_ = true;
  }
  changed_.notify_all();
  channel->interrupt_src();
  return true;
}

bool SrcStream::start_task() {
  const auto call = [](gpointer self) { static_cast<SrcStream*>(self)->step(); };
  if (gst_pad_start_task(pad_, call, this, nullptr) != 0) return true;
  // The thread pool has the task in its queue nevertheless: a thread that comes later finds it stopped. It takes the
  // lock of the pad, which therefore lives as long as the task.
  GST_OBJECT_LOCK(pad_);
  GstTask* task = std::exchange(GST_PAD_TASK(pad_), nullptr);
  GST_OBJECT_UNLOCK(pad_);
  g_object_weak_ref(
      G_OBJECT(task), [](gpointer pad, GObject*) { gst_object_unref(pad); }, gst_object_ref(pad_));
  gst_task_stop(task);
  gst_object_unref(task);
  return false;
}

bool SrcStream::activate(bool active) {
  set_flushing(inactive, !active);
  if (!active) return gst_pad_stop_task(pad_) != 0;
  if (start_task()) return true;
  set_flushing(inactive, true);
  tell_of_no_thread();
  return false;
}

void SrcStream::tell_of_no_thread() const {
  post_error(element_, Error(ErrorCode::no_memory,
                             "gpumapsrc gets no thread, for the system's limit is reached: raise "
                             "the limit of processes (ulimit -u; pids.max of a container), or "
                             "run fewer threads"));
}

GstPad* SrcStream::far_pad() {
  const auto channel = this->channel();
  GstElement* sink = channel ? channel->sink() : nullptr;
  if (sink == nullptr) return nullptr;
  GstPad* pad = gst_element_get_static_pad(sink, "sink");
  gst_object_unref(sink);
  return pad;
}

bool SrcStream::ask_far(GstQuery* query) {
  const auto channel = this->channel();
  const auto far = channel ? channel->far_sink() : nullptr;
  return far && far->query(query);
}

void SrcStream::time_out() const {
  if (!settings_.socket_path.empty()) {
    throw FiguredError(Error(ErrorCode::open_read,
                             fmt::format("no frame from socket-path {} for {} ms", printable(settings_.socket_path),
                                         settings_.timeout_ms),
                             "start a gpumapsink with the same socket-path, see what feeds it, or raise timeout"),
                       {{"socket-path", settings_.socket_path}, {"timeout-ms", settings_.timeout_ms}});
  }
  GstElement* sink = channel_->sink();
  const bool alone = sink == nullptr;
  gst_clear_object(&sink);
  throw FiguredError(Error(alone ? ErrorCode::not_found : ErrorCode::open_read,
                           fmt::format("no {} on channel \"{}\" for {} ms", alone ? "gpumapsink" : "frame",
                                       channel_->name(), settings_.timeout_ms),
                           alone ? "start one in this process with the same channel, or raise timeout"
                                 : "see what feeds its gpumapsink, or raise timeout"),
                     {{"channel", channel_->name()}, {"timeout-ms", settings_.timeout_ms}});
}

void SrcStream::refuse() {
  gst_pad_pause_task(pad_);
  // While a pipeline goes down, what follows may have stopped already and then takes no caps: that is no error. Nor is
  // a flush.
  if (is_stopping(element_) || GST_PAD_IS_FLUSHING(pad_)) return;
  // Where what follows has said why, another reason would mislead.
  const Ptr<GstPad> peer(gst_pad_get_peer(pad_));
  const Ptr<GstElement> next(peer ? gst_pad_get_parent_element(peer.get()) : nullptr);
  if (!next || !has_posted_error(next.get())) {
    GST_ELEMENT_ERROR(element_, STREAM, FORMAT, ("%s", message_of(output_.refusal()).c_str()), (nullptr));
  }
  channel_->set_downstream_flow(GST_FLOW_NOT_NEGOTIATED);
  gst_pad_push_event(pad_, gst_event_new_eos());
}

/// Enough of this stream; another may come. As behind a queue, upstream hears of it and sends EOS; a producer that goes
/// on for others does not. A part that was sought for ends where the producer says so.
void SrcStream::have_enough() {
  drops_ = true;
  channel_->set_downstream_flow(GST_FLOW_EOS, true);
  if (channel_->far_sink() == nullptr || segment_ == nullptr) return;
  GstSegment segment;
  gst_event_copy_segment(segment_, &segment);
  if ((segment.flags & GST_SEGMENT_FLAG_SEGMENT) != 0) return;
  GstEvent* eos = gst_event_new_eos();
  gst_event_set_seqnum(eos, gst_event_get_seqnum(segment_));
  ended_ = true;
  g_object_notify(G_OBJECT(element_), "stats");
  gst_pad_push_event(pad_, eos);
}

/// As a queue does: upstream hears of it, and decides.
void SrcStream::give_up(GstFlowReturn flow) {
  if (flow == GST_FLOW_EOS) {
    have_enough();
    return;
  }
  gst_pad_pause_task(pad_);
  // A bin that goes down stops its own pads first, which then refuse events or caps: an error, by GStreamer's
  // reckoning.
  const bool failed = flow == GST_FLOW_ERROR || flow == GST_FLOW_NOT_NEGOTIATED;
  if (flow == GST_FLOW_FLUSHING || (failed && is_stopping(element_))) return;
  const bool told = has_sink_beside();
  if (flow == GST_FLOW_NOT_LINKED) {
    output_.note_loss();
    // Linked since the frame went: upstream need not hear of it.
    if (gst_pad_needs_reconfigure(pad_) != 0) {
      restart_task();
      return;
    }
  }
  channel_->set_downstream_flow(flow);
  const bool unlinked = flow == GST_FLOW_NOT_LINKED;
  unlinked_ = unlinked;
  if (unlinked) {  // not unlinked_: an event that says "linked" may have cleared it already
    // Linked a moment ago: the event that says so found nothing to start again.
    if (gst_pad_needs_reconfigure(pad_) != 0) {
      relinked();
      return;
    }
    // An upstream with other branches goes on without this one; else it says so itself.
    if (told) return;
  }
  GST_ELEMENT_FLOW_ERROR(element_, flow);
  gst_pad_push_event(pad_, gst_event_new_eos());
}

/// num-buffers have been given.
void SrcStream::finish() {
  gst_pad_pause_task(pad_);
  channel_->set_downstream_flow(GST_FLOW_EOS);
  g_object_notify(G_OBJECT(element_), "stats");
  gst_pad_push_event(pad_, gst_event_new_eos());
}

/// A live source gives nothing while paused, but for the end. False: flushing.
bool SrcStream::wait_while_paused() {
  if (!settings_.is_live) return true;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return playing_ || flushing_ != 0 || eos_ != nullptr; });
  return flushing_ == 0;
}

/// The application asked for the end.
bool SrcStream::end_asked() {
  if (!asked_) return false;
  GstEvent* eos = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::swap(eos, eos_);
  }
  if (eos == nullptr) return false;
  if (!started_) push_stream_start();
  push_sent();
  channel_->set_downstream_flow(GST_FLOW_EOS);
  g_object_notify(G_OBJECT(element_), "stats");
  gst_pad_push_event(pad_, eos);
  return true;
}

/// What the application sent goes out behind the frame of the moment, once there is a segment for it.
void SrcStream::push_sent() {
  if (segment_ == nullptr || !asked_) return;
  std::vector<Ptr<GstEvent>> sent;
  {
    const std::lock_guard lock(mutex_);
    sent.swap(sent_);
    asked_ = eos_ != nullptr;
  }
  for (Ptr<GstEvent>& event : sent) gst_pad_push_event(pad_, event.release());
}

/// Whether time without a frame counts: while playing, and before that while someone waits for the preroll.
bool SrcStream::wants_frames() {
  if (ended_) return false;
  {
    const std::lock_guard lock(mutex_);
    if (played_) return playing_;
  }
  return is_changing_state(element_);
}

/// Behind the first frame that plays: when the last sink has its frame, GStreamer may start a thread for its pool from
/// this one, which would have its CPUs for good.
void SrcStream::schedule_thread() {
  if (frames_ == 0) return;
  {
    const std::lock_guard lock(mutex_);
    if (!playing_) return;
  }
  scheduled_ = std::make_unique<Scheduled>(schedule_);
}

void SrcStream::step() {
  if (!wait_while_paused() || end_asked()) {
    gst_pad_pause_task(pad_);
    return;
  }
  if (left_flushing_.exchange(false)) end_flush(gst_event_new_flush_stop(FALSE));
  if (has_new_rate_.exchange(false) && segment_ != nullptr && !ended_) owes_segment_ = true;
  if (std::exchange(owes_segment_, false)) push_segment();
  if (has_given_all()) {
    if (!started_) push_stream_start();
    finish();
    return;
  }
  push_sent();
  if (!scheduled_ && schedule_.changes()) schedule_thread();
  try {
    const bool limited = settings_.timeout_ms != 0 && wants_frames();
    const Deadline deadline = limited ? Clock::now() + std::chrono::milliseconds(settings_.timeout_ms) : no_deadline;
    Channel::Next next = channel_->next(deadline);
    switch (next.kind) {
      case Channel::Next::Kind::frame:
        // Paused meanwhile, perhaps.
        if (wait_while_paused()) {
          push(next);
        } else {
          gst_pad_pause_task(pad_);
        }
        break;
      case Channel::Next::Kind::event:
        if (next.first_of_sink) {
          begin_rate();
          joins_ = true;
        }
        push(next.event);
        break;
      case Channel::Next::Kind::timeout:
        if (wants_frames()) time_out();
        break;
      case Channel::Next::Kind::interrupted:
        break;
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

// How a frame leaves a gpumapsrc.

/// do-timestamp: as a live source, the running time of the moment. That goes back a little where a pause has begun, and
/// stamps do not, nor do two have one. Before there is a clock frames keep the times that they have.
void SrcStream::stamp_time(GstBuffer* buffer) {
  const Ptr<GstClock> clock(gst_element_get_clock(element_));
  if (!clock) return;
  stamped_ = std::max(stamped_ + 1, shift_.now_here(*channel_, gst_clock_get_time(clock.get())));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  if (segment_ != nullptr) gst_event_copy_segment(segment_, &segment);
  const bool timed = segment.format == GST_FORMAT_TIME;
  GST_BUFFER_PTS(buffer) =
      timed ? gst_segment_position_from_running_time(
                  &segment, GST_FORMAT_TIME,
                  static_cast<guint64>(std::max<GstClockTimeDiff>(rate().upstream_of(stamped_ - shift_.value()), 0)))
            : static_cast<GstClockTime>(stamped_);
  GST_BUFFER_DTS(buffer) = GST_CLOCK_TIME_NONE;
}

/// See place().
bool SrcStream::is_due_some_day(GstClockTime time, GstClockTime duration) const {
  if (!GST_CLOCK_TIME_IS_VALID(latest_) || !GST_CLOCK_TIME_IS_VALID(time)) return true;
  return time <= latest_ && (!GST_CLOCK_TIME_IS_VALID(duration) || duration <= latest_ - time);
}

void SrcStream::leave_out_odd_times(GstBuffer* buffer) {
  const GstClockTime duration = GST_BUFFER_DURATION(buffer);
  if (is_due_some_day(GST_BUFFER_PTS(buffer), duration) && is_due_some_day(GST_BUFFER_DTS(buffer), duration)) return;
  GST_BUFFER_PTS(buffer) = GST_BUFFER_DTS(buffer) = GST_BUFFER_DURATION(buffer) = GST_CLOCK_TIME_NONE;
  if (std::exchange(told_odd_time_, true)) return;
  post_warning(element_, FiguredError(Error(ErrorCode::invalid,
                                            fmt::format("frames of the gpumapsink at socket-path {} have times that no "
                                                        "clock can wait for: these are left out",
                                                        printable(settings_.socket_path)),
                                            "see what feeds it"),
                                      {{"socket-path", settings_.socket_path}}));
}

/// Before which moment no frame lies from `buffer` on. Compressed frames may come in another order than that of their
/// times.
GstClockTime SrcStream::earliest_from(GstBuffer* buffer) const {
  constexpr GstClockTime longest_reordering = GST_SECOND;
  const GstClockTime time = GST_BUFFER_PTS(buffer);
  const Ptr<GstCaps> caps(gst_pad_get_current_caps(pad_));
  if (!caps || !GST_CLOCK_TIME_IS_VALID(time)) return GST_CLOCK_TIME_NONE;
  const std::string_view name(gst_structure_get_name(gst_caps_get_structure(caps.get(), 0)));
  if (name == "video/x-raw" || name == "audio/x-raw" || name.substr(0, 6) == "image/") return time;
  return GST_BUFFER_DTS_IS_VALID(buffer) ? std::min(GST_BUFFER_DTS(buffer), time)
                                         : time - std::min(time, longest_reordering);
}

namespace {

GstClockTime moved(GstClockTime time, GstClockTimeDiff later) {
  if (!GST_CLOCK_TIME_IS_VALID(time)) return time;
  return static_cast<GstClockTime>(std::max<GstClockTimeDiff>(static_cast<GstClockTimeDiff>(time) + later, 0));
}

}  // namespace

/// When what is of `time` is due in the gpumapsink's pipeline; nothing where frames have no times or go backwards.
std::optional<GstClockTimeDiff> SrcStream::running_there(GstClockTime time) const {
  if (segment_ == nullptr || !is_timed_) return std::nullopt;
  const GstSegment* segment = nullptr;
  gst_event_parse_segment(segment_, &segment);
  guint64 running = 0;
  const int sign = gst_segment_to_running_time_full(segment, GST_FORMAT_TIME, time, &running);
  if (sign == 0 || segment->rate < 0) return std::nullopt;
  return sign * static_cast<GstClockTimeDiff>(running);
}

/// An encoder may need many frames before its pipeline plays, and gives them in another order. Were some of them due
/// before time began here, or others behind them due before them once it has begun, a muxer would leave these out.
void SrcStream::hold_for_encoder(GstBuffer* first) {
  const auto due_there = settings_.is_live ? std::nullopt : running_there(GST_BUFFER_PTS(first));
  if (due_there) shift_.hold(*channel_, *due_there);
}

/// Whether what comes live passes, if nobody takes it: an answer that another process does not give is no.
bool SrcStream::has_live_producer() {
  const Ptr<GstQuery> query(gst_query_new_latency());
  const Ptr<GstPad> far(far_pad());
  if (far ? peer_query(far.get(), query.get()) != PeerAnswer::yes : !ask_far(query.get())) return false;
  gboolean live = FALSE;
  gst_query_parse_latency(query.get(), &live, nullptr, nullptr);
  return live != FALSE;
}

/// By how much these times are to be later, see TimeShift::later_by(). What would leave the segment so gets one of its
/// own.
std::optional<GstClockTimeDiff> SrcStream::later_by(GstClockTime time, GstClockTime dts, GstClockTime duration,
                                                    bool needs_others) {
  if (settings_.do_timestamp || !shift_.is_recorded()) return 0;
  const auto begin = running_there(GST_CLOCK_TIME_IS_VALID(dts) ? dts : time);
  if (!begin) return 0;
  const GstClockTimeDiff placed = shift_.value();
  const auto by = shift_.later_by({*begin, duration, needs_others}, [this] { return has_live_producer(); });
  if (shift_.value() != placed) shifted_ = true;
  if (!by || !GST_CLOCK_TIME_IS_VALID(time)) return by;
  const GstSegment* segment = nullptr;
  gst_event_parse_segment(segment_, &segment);
  const double later = segment->rate * static_cast<double>(*by);
  const double room = static_cast<double>(segment->stop) - static_cast<double>(time);
  if (later <= 0 || !GST_CLOCK_TIME_IS_VALID(segment->stop) || later < room) {
    const auto to_zero = static_cast<GstClockTimeDiff>(std::min<GstClockTime>(time, G_MAXINT64));
    return std::max<GstClockTimeDiff>(std::llround(later), -to_zero);
  }
  shift_.settle();
  shifted_ = true;
  return 0;
}

/// Before `buffer`: the segment, where the running time is another one since the last frame.
void SrcStream::mend_segment(GstBuffer* buffer) {
  const GstClockTime time = GST_BUFFER_PTS(buffer);
  const bool is_past = !prerolls_past_ && time >= past_from_ && time < past_until_;
  const bool is_earlier = time < begins_at_ && GST_CLOCK_TIME_IS_VALID(begins_at_);
  const bool begins_to_play = prerolls_past_ && channel_->src_playing();
  if ((shifted_ || is_past || is_earlier || begins_to_play) && segment_ != nullptr) push_segment(buffer);
  if (prerolls_past_ && time > prerolled_from_) prerolled_ = time - prerolled_from_;
}

/// Whether frames of this stream have gone before the first one here: this came to it late.
bool SrcStream::joined_late(const Channel::Next& first) const {
  return channel_->far_sink() != nullptr ? channel_->far_joined_late() : first.sequence != 0;
}

void SrcStream::push(Channel::Next& frame) {
  if (drops_ || is_recorded_whole_) return;
  if (!started_) push_stream_start();
  static_cast<void>(output_.check_reconfigure());
  if (!negotiate()) return;
  if (std::exchange(joins_, false) && joined_late(frame)) shifted_ = true;
  const bool comes_again = shifted_;
  const GstClockTimeDiff placed = shift_.value();
  if (shift_.update(*channel_, false)) shifted_ = true;
  if (loans_ != frame.loans) {  // this thread alone writes it
    const std::lock_guard lock(mutex_);
    loans_ = frame.loans;
  }
  if (output_.take_loss()) frame.after_hole = true;
  const SrcOutput::Memory memory = output_.memory_for(frame, *channel_);
  const std::uint64_t bytes = frame.lease.info().bytes;
  GstBuffer* buffer = loans_->recalled() ? nullptr : output_.wrap(std::move(frame), memory);
  // Behind a copy, too: only now it is known to be whole.
  if (buffer == nullptr || loans_->recalled()) {
    GST_INFO_OBJECT(element_, "a frame is lost: the producer has taken it back");
    gst_clear_buffer(&buffer);
    output_.note_loss();
    return;
  }
  leave_out_odd_times(buffer);
  if (settings_.do_timestamp) stamp_time(buffer);
  if (shift_.may_hold()) {
    hold_for_encoder(buffer);
    shifted_ = comes_again || shift_.value() != placed;  // an encoder of sound begins anew at each segment
  }
  const bool needs_others = GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_DELTA_UNIT) != 0;
  const auto later =
      later_by(GST_BUFFER_PTS(buffer), GST_BUFFER_DTS(buffer), GST_BUFFER_DURATION(buffer), needs_others);
  if (!later) {
    GST_INFO_OBJECT(element_, "a frame of a live stream came in a pause, and is not recorded");
    gst_buffer_unref(buffer);
    output_.note_loss();
    if (needs_others && !std::exchange(asked_for_key_, true)) {
      send_upstream(gst_video_event_new_upstream_force_key_unit(GST_CLOCK_TIME_NONE, TRUE, 0));
    }
    return;
  }
  asked_for_key_ = false;
  const guint64 number = frames_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (*later != 0) {
    GST_BUFFER_PTS(buffer) = moved(GST_BUFFER_PTS(buffer), *later);
    GST_BUFFER_DTS(buffer) = moved(GST_BUFFER_DTS(buffer), *later);
  }
  mend_segment(buffer);
  GST_LOG_OBJECT(element_, "frame %" G_GUINT64_FORMAT "%s: %" GST_PTR_FORMAT, number,
                 memory == SrcOutput::Memory::copy ? ", copied" : "", static_cast<void*>(buffer));
  const GstFlowReturn flow = output_.push(buffer);
  if (flow == GST_FLOW_NOT_NEGOTIATED && forgives_refusal()) {
    GST_INFO_OBJECT(element_, "other caps are to come: frame %" G_GUINT64_FORMAT " is lost", number);
    output_.note_loss();
  } else if (flow == GST_FLOW_NOT_NEGOTIATED) {
    refuse();
  } else if (flow != GST_FLOW_OK) {
    give_up(flow);
  }
}

}  // namespace gpumap::gst
