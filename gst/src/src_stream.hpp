// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gpumap/link.hpp"
#include "gst/channel/channel.hpp"
#include "gst/channel/inlet.hpp"
#include "gst/channel/instant_rate.hpp"
#include "gst/property_table.hpp"
#include "gst/ptr.hpp"
#include "gst/src/output.hpp"
#include "gst/src/preroll_clock.hpp"

namespace gpumap::gst {

/// Two pipelines have two base times, and perhaps two clocks: what is due at a moment there is due at that moment here.
/// Keeps what is to be added to the running time of the gpumapsink's pipeline for that of the gpumapsrc's.
/// Thread safety: value() from any thread, the rest in the streaming thread.
class TimeShift {
 public:
  /// `src`: the gpumapsrc, which owns this.
  explicit TimeShift(GstElement* src) : src_(src) {}

  void reset();
  /// A flush resets the running time of the gpumapsink's pipeline, or of this one. From any thread, before a frame
  /// comes behind it.
  void begin_anew_there(const Channel& channel);
  void begin_anew_here();
  /// A flush has dropped what an encoder or a muxer has: what comes behind it is due when the clocks say. While no
  /// frame comes.
  void forget_recorded();
  /// Look at both base times (and, once a second, at two clocks), which pauses, flushes and late starts change. True
  /// where the value has changed. `anew`: a segment begins, whose first frame may be due at another moment.
  [[nodiscard]] bool update(const Channel& channel, bool anew);
  /// Before the first frame, of running time `first` there: counts by the pipeline's PrerollClock, if it has one, so
  /// that this frame is not due before time begins here, and others at their distances. What was given in a preroll
  /// stays where it is.
  void hold(const Channel& channel, GstClockTimeDiff first);
  /// A frame or a gap, in the running time there.
  struct Piece {
    GstClockTimeDiff begin = 0;
    GstClockTime duration = GST_CLOCK_TIME_NONE;
    bool needs_others = false;  ///< before it, as compressed pictures that are no key frames do
  };
  /// By how much the next one is due later than the value says. Nothing: it is not to be recorded. The value does not
  /// change in the middle of a recording, but by settle(): an encoder would give frames that it reorders into the
  /// segment behind them. Nor is a frame due before those in front of it, although the time here stood still in a pause
  /// and that there did not. What a `live` producer gave in the pause is left out then; other streams go on.
  [[nodiscard]] std::optional<GstClockTimeDiff> later_by(const Piece& next, const std::function<bool()>& live);
  [[nodiscard]] bool is_recorded() const noexcept { return recorded_ != Recorded::no; }
  /// From here on the value says when a frame is due.
  void settle() noexcept;
  /// What the last frame was due later by, with the value. From any thread.
  [[nodiscard]] GstClockTimeDiff of_last_frame() const noexcept { return shift_ + later_; }
  /// Once, for the first frame since a reset of the time here for which both pipelines have a time.
  [[nodiscard]] bool may_hold() noexcept;
  [[nodiscard]] GstClockTimeDiff value() const noexcept { return shift_; }
  /// The running time here while the clock says `now`; it stands still in PAUSED.
  [[nodiscard]] GstClockTimeDiff now_here(const Channel& channel, GstClockTime now) const;
  /// The running time of the gpumapsink's pipeline. From any thread.
  [[nodiscard]] GstClockTimeDiff now_there(const Channel& channel) const;

 private:
  void forget_hold();
  [[nodiscard]] GstClockTimeDiff compute(const Channel& channel, bool anew);
  [[nodiscard]] GstClockTimeDiff compute_from(const Channel::FarTime& there, const Channel& channel, bool anew);

  GstElement* src_;
  std::atomic<GstClockTimeDiff> shift_{0}, later_{0};
  GstClockTimeDiff now_ = 0;  ///< what the clocks say; the value is that, but in a recording
  Recorded recorded_ = Recorded::no;
  bool played_ = false;         ///< since the last flush here
  bool stood_still_ = false;    ///< so may the time here have, or a segment began; and no frame has come since
  bool leaves_out_ = false;     ///< what was due before the last piece that is recorded
  bool waits_for_key_ = false;  ///< what others need was left out
  std::optional<GstClockTimeDiff> waits_since_;  ///< behind what was left out, by when pieces are due
  std::shared_ptr<PrerollClock> preroll_;
  GstClockTimeDiff recorded_until_ = 0;  ///< running time here, where the last piece ends
  GstClockTimeDiff recorded_last_ = -1;  ///< likewise, where it begins
  GstClockTimeDiff behind_ = 0;          ///< frames are due by so much later than the clocks say
  bool may_hold_ = true;
  std::optional<GstClockTimeDiff> given_;  ///< to frames that went ahead while the gpumapsink's pipeline did not play
  Channel::SinkTime there_;
  GstClockTime here_ = GST_CLOCK_TIME_NONE;
  bool playing_ = false;
  bool estimated_ = false;  ///< a side was not playing yet
  bool two_clocks_ = false;
  gint64 looked_at_us_ = 0;  ///< of two clocks
  /// Base times of the gpumapsink's pipeline and of this one, which have them until they play again.
  std::atomic<GstClockTime> ended_there_{GST_CLOCK_TIME_NONE}, ended_here_{GST_CLOCK_TIME_NONE};
};

struct SrcSettings {
  std::string channel = "default";
  std::string socket_path;    ///< connect to another process there instead; empty: do not
  std::string allowed_users;  ///< whose producers are believed beside those of the own one, see users_of()
  OnLost on_lost = OnLost::wait;
  LinkLeak leak = LinkLeak::no;
  guint timeout_ms = 0;  ///< 0: wait for ever
  guint busy_poll_us = 0;
  ThreadSettings threads;  ///< of the streaming thread, and of the link's
  bool is_live = false;
  bool do_timestamp = false;
  gint num_buffers = -1;  ///< -1: no end
};

/// What a gpumapsrc does: takes frames and events out of the channel and pushes them on, in the thread of the pad's
/// task. Thread safety: as each member says.
class SrcStream {
 public:
  SrcStream(GstElement* element, GstPad* pad);
  ~SrcStream();
  SrcStream(const SrcStream&) = delete;
  SrcStream& operator=(const SrcStream&) = delete;

  /// From READY on upstream of the channel's sink learns what downstream takes. State changes only, as all up to
  /// stop().
  void announce(const std::string& channel);
  void withdraw();
  /// Meet the channel. Throws Error(invalid) when it has a src already.
  void start(const SrcSettings& settings);
  void stop();

  /// Why nothing waits and nothing is pushed. From any thread.
  enum Flushing : unsigned {
    inactive = 1,  ///< the pad is not active
    open = 2,      ///< a FLUSH_START came
    ending = 4,    ///< its FLUSH_STOP is on its way
  };
  void set_flushing(Flushing why, bool flushing);
  void set_playing(bool playing);
  /// Of the pad. False, with an error on the bus: there is no thread for it.
  [[nodiscard]] bool activate(bool active);
  /// Takes an event that the application sends downstream. What is serialized goes out behind the frame of the moment;
  /// at EOS upstream of the sink is told. One that was sent to a pipeline in which the sink is, too, comes through the
  /// ring, behind what is queued, and this one is dropped. False: not started. From any thread.
  bool send_downstream(GstEvent* event);
  /// Posts a warning where there was never a gpumapsink. From any thread.
  void tell_if_alone();
  /// Takes an event from downstream for the element that feeds the sink. False: there is none, or it refused.
  bool send_upstream(GstEvent* event);
  /// Downstream took no more, for nothing was linked there. Now something may be. From any thread.
  void relinked();
  /// The pad at which frames enter the channel, transfer full, or null. From any thread.
  [[nodiscard]] GstPad* far_pad();
  /// Upstream in another process. False: there is none, or it does not answer in time. From any thread.
  [[nodiscard]] bool ask_far(GstQuery* query);
  /// Of the channel's ring; 0 where there is none yet. From any thread.
  [[nodiscard]] std::uint32_t slots();
  /// As Channel::add_sink_latency(). From any thread.
  void add_sink_latency(GstQuery* answered);
  /// As upstream_gives_gpu_memory() asks. From any thread.
  [[nodiscard]] bool gives_gpu_memory() const { return output_.may_give_gpu_caps(); }
  /// See SrcOutput::answer_context(). From any thread.
  [[nodiscard]] bool answer_context(GstQuery* query) { return output_.answer_context(query); }
  /// The streaming thread, which GStreamer lends from a pool, goes back there.
  void leave_thread() noexcept { scheduled_.reset(); }
  /// As it was set when this started.
  [[nodiscard]] bool is_live() const noexcept { return live_; }

  /// Transfer full. From any thread.
  [[nodiscard]] GstStructure* stats();

 private:
  // The streaming thread.
  void step();
  void schedule_thread();
  [[nodiscard]] bool wait_while_paused();
  [[nodiscard]] bool end_asked();
  void push_sent();
  [[nodiscard]] bool wants_frames();
  void refuse();
  [[noreturn]] void time_out() const;
  void have_enough();
  void give_up(GstFlowReturn flow);
  void finish();
  [[nodiscard]] bool has_given_all() const {
    return settings_.num_buffers >= 0 &&
           frames_.load(std::memory_order_relaxed) >= static_cast<guint64>(settings_.num_buffers);
  }
  // Frames.
  void push(Channel::Next& frame);
  [[nodiscard]] GstClockTime earliest_from(GstBuffer* buffer) const;
  [[nodiscard]] bool joined_late(const Channel::Next& first) const;
  [[nodiscard]] std::optional<GstClockTimeDiff> running_there(GstClockTime time) const;
  void hold_for_encoder(GstBuffer* first);
  [[nodiscard]] bool has_live_producer();
  [[nodiscard]] std::optional<GstClockTimeDiff> later_by(GstClockTime time, GstClockTime dts, GstClockTime duration,
                                                         bool needs_others);
  void mend_segment(GstBuffer* buffer);
  void stamp_time(GstBuffer* buffer);
  // Events: events.cpp.
  void push(GstEvent* event);
  void push_stream_start();
  [[nodiscard]] bool place(GstSegment& segment, GstClockTime from);
  [[nodiscard]] bool keep_from_past(GstSegment& segment, GstBuffer* first);
  void push_segment(GstBuffer* first = nullptr, GstClockTime from = GST_CLOCK_TIME_NONE);
  void begin_anew();
  void tell_of_segment_start();
  void tell_of_segment_done(GstEvent* event);
  [[nodiscard]] bool negotiate();
  [[nodiscard]] bool upstream_gives(GstCaps* wanted);
  [[nodiscard]] bool forgives_refusal();
  [[nodiscard]] GstEvent* qos_for_sink(GstEvent* qos) const;
  enum class Pipeline { here, there };
  [[nodiscard]] GstEvent* ask_for_key_frame_in(Pipeline which, GstEvent* event) const;
  [[nodiscard]] bool is_due_some_day(GstClockTime time, GstClockTime duration) const;
  void leave_out_odd_times(GstBuffer* buffer);

  // The sink's thread.
  void on_event(GstEvent* event);
  [[nodiscard]] GstEvent* flush_stop_for_here(GstEvent* event);

  // Any thread.
  enum class From { sink, application };
  void send_now(GstEvent* event, From from);
  void begin_flush(GstEvent* start = nullptr);
  void end_flush(GstEvent* stop);
  void flush_stop(GstEvent* event, From from);
  [[nodiscard]] bool start_task();
  void restart_task();
  void tell_of_no_thread() const;

  [[nodiscard]] std::shared_ptr<Channel> channel();
  /// Which GPU has the slots, as far as the sink says.
  [[nodiscard]] std::string device();
  /// The sink is in the pipeline of this element.
  [[nodiscard]] bool has_sink_beside();
  void take_rate(GstEvent* event);
  void begin_rate();
  [[nodiscard]] InstantRate rate() const;

  GstElement* element_;
  GstPad* pad_;
  SrcSettings settings_;
  SrcOutput output_;
  TimeShift shift_;
  ThreadSchedule schedule_;
  std::unique_ptr<Scheduled> scheduled_;          ///< of the streaming thread, which alone uses it
  bool started_ = false;                          ///< stream-start went out
  bool ended_ = false;                            ///< EOS came through the ring
  bool drops_ = false;                            ///< downstream has had enough, until the next stream or segment
  bool is_recorded_whole_ = false;                ///< so it has until a flush, or the next start
  GstEvent* segment_ = nullptr;                   ///< as it came from the sink
  bool shifted_ = false;                          ///< it is to come again, before the next frame
  bool joins_ = false;                            ///< no frame of the sink has come yet
  GstClockTimeDiff stamped_ = -1;                 ///< the running time of the last stamp
  bool asked_for_key_ = false;                    ///< since frames that need one were left out
  GstClockTime begins_at_ = GST_CLOCK_TIME_NONE;  ///< where it began when it came again; none: where the sink's does
  GstClockTime past_from_ = 0, past_until_ = 0;   ///< frames of these times were due before time began here
  bool prerolls_past_ = false;                    ///< one of them began the segment that holds until this plays
  GstClockTime prerolled_from_ = 0;               ///< when that one is due there
  GstClockTime prerolled_ = 0;                    ///< by how much later the last frame in that segment is due
  GstClockTime latest_ = GST_CLOCK_TIME_NONE;     ///< no time of a far producer's may be later; none: any may
  bool told_odd_time_ = false;                    ///< that one was later
  Deadline forgiven_until_ = no_deadline;         ///< refused frames that downstream has agreed to before; none now
  bool owes_segment_ = false;                     ///< a flush took it from what follows, and the sink's stream goes on
  std::atomic<guint64> frames_{0}, bytes_{0};
  std::atomic<bool> live_{false};
  std::atomic<bool> unlinked_{false};            ///< downstream took no more, for nothing was linked there
  std::atomic<bool> left_flushing_{false};       ///< what follows may wait for a FLUSH_STOP that came to no active pad
  std::atomic<bool> flushes_downstream_{false};  ///< a FLUSH_START was pushed, its FLUSH_STOP not yet
  std::atomic<bool> is_timed_{true};             ///< the segment's format
  std::atomic<bool> has_new_rate_{false};        ///< a segment is to say so
  std::atomic<guint32> sought_{GST_SEQNUM_INVALID};  ///< the last seek from here
  std::atomic<int> flushes_beginning_{0};            ///< threads within a FLUSH_START
  std::atomic<int> flushes_open_{0};                 ///< that came without their FLUSH_STOP

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Channel> channel_;    ///< changes only while the task is stopped
  std::shared_ptr<Channel> announced_;  ///< from READY on
  std::shared_ptr<Loans> loans_;        ///< of the ring of the moment
  bool playing_ = false;
  bool played_ = false;      ///< since the start
  GstEvent* eos_ = nullptr;  ///< that the application sent, as:
  std::vector<Ptr<GstEvent>> sent_;
  InstantRate rate_;
  std::atomic<bool> asked_{false};  ///< there may be such an event: written under the lock, with it
  unsigned flushing_ = inactive;
};

// What the src pads of gpumapsrc and gpumapupload answer. Mostly upstream of the sink pad knows.

struct SrcSettings;
class SrcStream;

/// Answer a query on the src pad. `settings`: the properties, for what is asked before the start. From any thread.
[[nodiscard]] gboolean answer_src_query(SrcStream& stream, const SrcSettings& settings, GstPad* pad, GstQuery* query);
/// Answer a CAPS query on `pad`: what frames are of now, in either memory, and which media types upstream of `sinkpad`
/// can give. So an element with pads of several kinds (a muxer) is linked at the right one, as behind a queue, and a
/// branch may be added or replaced while frames flow. Formats that do not fit are refused once frames flow, with the
/// reason and the remedy, which a link has no words for. From any thread.
[[nodiscard]] gboolean answer_caps(GstPad* pad, GstPad* sinkpad, GstQuery* query);

}  // namespace gpumap::gst
