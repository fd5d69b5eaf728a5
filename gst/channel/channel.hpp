// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gpumap/latency.hpp"
#include "gpumap/ring.hpp"
#include "gst/channel/alarm.hpp"
#include "gst/channel/channel_ring.hpp"
#include "gst/channel/instant_rate.hpp"
#include "gst/channel/sticky_events.hpp"
#include "gst/memory/slot_usage.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

/// Stands for the sink, and for the elements upstream of it, when these are in another process. Any thread.
class FarSink {
 public:
  FarSink() = default;
  virtual ~FarSink() = default;
  FarSink(const FarSink&) = delete;
  FarSink& operator=(const FarSink&) = delete;
  [[nodiscard]] virtual bool send(GstEvent* event) = 0;  ///< upstream; takes it. False: it was not handled.
  [[nodiscard]] virtual bool query(GstQuery* query) = 0;
  /// In the src's thread: waits for the next frame and puts it into `ring`, or returns at a nudge after the first
  /// `nudges`, or when something else came. False: another thread brings frames now; wait at the ring for it.
  [[nodiscard]] virtual bool bring(const Ring& ring, std::uint64_t nudges, Deadline deadline) = 0;
  virtual void nudge() noexcept = 0;  ///< something changed for who waits in bring(). Under the channel's lock, as:
  [[nodiscard]] virtual std::uint64_t nudges() const noexcept = 0;
};

/// Stands for the src where those are in other processes. Any thread.
class FarSrc {
 public:
  FarSrc() = default;
  virtual ~FarSrc() = default;
  FarSrc(const FarSrc&) = delete;
  FarSrc& operator=(const FarSrc&) = delete;
  /// Something was put into the channel: takes, in this thread, what can go on without a wait.
  virtual void hand_on() = 0;
  /// For slots of frames that left the ring. Each returns false when no slot was freed.
  [[nodiscard]] virtual bool make_room() = 0;                ///< drops the oldest frame that no client has taken
  [[nodiscard]] virtual bool end_stall(Deadline since) = 0;  ///< disconnects clients that hold slots, if none was free
  /// For a message: which client holds the oldest frame, and its remedy; empty: none does.
  [[nodiscard]] virtual std::string who_stalls() = 0;
};

/// Where a gpumapsink and a gpumapsrc meet, and where the order of frames and events is kept:
///
///     the sink's side                    meanwhile                               the src's side
///     publish a frame                    in the ring                             next(), in their order
///     push_event(), push_ring(),         beside the ring, each with the          next(), once the frames before it
///     retire_ring()                      sequence of the frame behind it         are taken
///     pass(): an event out of band       —                                       the event handler, at once
///     flush(FLUSH_START)                 —                                       the event handler, at once
///     flush(FLUSH_STOP)                  all is dropped but what is sticky       the event handler, at once
///     EOS                                as an event; a sink that leaves         next()
///                                        before it drops what waits
///
/// In one process gpumapsink has the one side and gpumapsrc the other. Across a socket each process has a channel, and
/// both meet in it with what stands for the other one: FarSrc is the outlet, which takes frames in the sink's own
/// thread and shows them to clients, FarSink the inlet, which the src's own thread calls for a frame. Between the two
/// the link keeps the same order (lib/link/wire.hpp): each message has the frame that it precedes, each frame the
/// number of messages before it, a FLUSH_START overtakes, and at a FLUSH_STOP the server takes frames back. Frames need
/// no lock of the channel's for their order. Thread safety: every member from any thread; next() from one thread at a
/// time.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  /// The src side's handler of events that overtake the queue: flushes, and events that are not serialized. Takes the
  /// event. Called in the thread that sends it.
  using EventHandler = std::function<void(GstEvent*)>;

  /// `bin`: the number of the bin that has both ends, see channel_of(); 0: they may be anywhere in the process.
  [[nodiscard]] static std::shared_ptr<Channel> open(const std::string& name, std::uintptr_t bin = 0);
  explicit Channel(std::string name) : name_(std::move(name)) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Sink side.
  /// False: the side is taken; `holder` gets the name of the element that has it. Without a src, frames and events that
  /// the sink before left are dropped.
  [[nodiscard]] bool attach_sink(GstElement* sink, std::string& holder);
  /// `drained`: after EOS, queued frames and events still go to the src; otherwise they are dropped. Those of a stream
  /// that no src has seen yet wait here, even when both elements are gone, until a src or another sink comes, for
  /// `linger` at most.
  void detach_sink(bool drained, GstClockTime linger);
  void push_ring(const std::shared_ptr<ChannelRing>& channel_ring);
  [[nodiscard]] std::size_t rings_waiting() const;  ///< rings that the src has not come to
  /// Of a src that takes no more: those that it has not come to are left out, and their frames. Another ring follows,
  /// or none.
  void leave_out_rings();
  void retire_ring();  ///< let its memory go once its last frame has been taken
  /// Adds a reference. False: too many events wait already; try again once frames have been taken. Where nothing takes
  /// them, as behind a src that is not linked, those that do not hold are left out.
  [[nodiscard]] bool push_event(GstEvent* event);
  /// Within a flush: drops now what the end of the flush will drop.
  void make_room_in_flush() { drop_all(true); }
  void flush(GstEvent* event);  ///< FLUSH_START or FLUSH_STOP; takes it
  void pass(GstEvent* event);   ///< an event that is not serialized, past the queue; takes it
  /// Sends an event upstream of the sink by `push`, which takes it. No lock is held meanwhile: a seek waits for
  /// streaming threads, and these may wait for a change of state. Seeks with a flush take turns, see SeekTurn.
  [[nodiscard]] bool send_upstream(GstEvent* event, const std::function<bool(GstEvent*)>& push);
  /// Waits for the seeks of send_upstream(). A source that is stopped and started while it seeks would wait for its new
  /// streaming thread until the pipeline plays.
  void await_seeks(Deadline deadline);
  /// What upstream of the sink answers to the latency query.
  struct Latency {
    bool answered = false, live = false;
    GstClockTime least = 0, most = GST_CLOCK_TIME_NONE;
    bool operator==(const Latency&) const = default;
  };
  /// The sink's pipeline distributes its latency, perhaps as before: tells the src's pipeline where that is another one
  /// and `latency` is not what it was told last. Else two pipelines that give each other streams would go on for ever.
  void tell_latency(Latency latency);
  /// The flow that downstream of the src last returned: the sink hands EOS and errors on to its own upstream.
  [[nodiscard]] GstFlowReturn downstream_flow() const noexcept { return flow_.load(std::memory_order_relaxed); }

  /// Calls `call` once, in the src's thread, when the src next has nothing to take; null: cancels that.
  void when_src_waits(std::function<void()> call);
  /// Whether the src takes no more frames: downstream had enough, or failed. False when nothing is linked, or when it
  /// is only so for this stream.
  [[nodiscard]] bool src_has_enough() const noexcept {
    const GstFlowReturn flow = downstream_flow();
    return flow != GST_FLOW_OK && flow != GST_FLOW_NOT_LINKED && !enough_.load(std::memory_order_relaxed);
  }

  /// The application ends the sink's pipeline, and no src has come: from here on its frames are dropped, so that
  /// upstream comes to its end. Until a src or another sink comes.
  void end_unmet() noexcept { ended_unmet_ = true; }
  [[nodiscard]] bool has_ended_unmet() const noexcept { return ended_unmet_.load(std::memory_order_relaxed); }

  void set_far_sink(std::shared_ptr<FarSink> far);
  [[nodiscard]] std::shared_ptr<FarSink> far_sink() const;
  /// Receives events that overtake the queue while no src is attached; null: they are dropped.
  void set_event_handler(EventHandler on_event);
  void set_far_src(std::shared_ptr<FarSrc> far);  ///< null: a src in this process takes the frames
  /// Of a sink that serves other processes; else null.
  [[nodiscard]] std::shared_ptr<FarSrc> far_src() const;
  /// Something was put into the channel: tells a far src.
  void hand_on() const;

  /// Each side says when it starts and stops playing: its base time is valid only in between.
  void set_sink_playing(bool playing) noexcept { sink_playing_.store(playing, std::memory_order_release); }
  void set_src_playing(bool playing) noexcept { src_playing_.store(playing, std::memory_order_release); }
  [[nodiscard]] bool sink_playing() const noexcept { return sink_playing_.load(std::memory_order_acquire); }
  [[nodiscard]] bool src_playing() const noexcept { return src_playing_.load(std::memory_order_acquire); }

  /// From when the sink's running time counts; as constructed when there is no sink.
  struct SinkTime {
    const GstElement* sink = nullptr;  ///< for comparing only
    GstClockTime base = GST_CLOCK_TIME_NONE;
    bool playing = false;
    bool is_later = false;  ///< what the src takes now is of a sink in another process before this one
    bool operator==(const SinkTime&) const = default;
  };
  [[nodiscard]] SinkTime sink_time() const;
  /// The same for a sink in another process.
  struct FarTime {
    bool playing = false;
    bool clockless = false;        ///< it plays without a clock, and so without a running time: `playing` is false
    GstClockTimeDiff base = 0;     ///< base time while playing
    GstClockTimeDiff stopped = 0;  ///< the running time at which it stopped
    GstClockTimeDiff ahead = 0;    ///< how far its clock is ahead of CLOCK_MONOTONIC
    [[nodiscard]] GstClockTimeDiff running_time(GstClockTimeDiff monotonic_now) const noexcept {
      return playing ? monotonic_now + ahead - base : stopped;
    }
    bool operator==(const FarTime&) const = default;
  };
  /// Whether that sink had given frames before the first one that came here, and which is not published yet.
  void set_far_joined_late(bool late) noexcept { far_joined_late_ = late; }
  [[nodiscard]] bool far_joined_late() const noexcept { return far_joined_late_; }
  void set_far_time(const std::optional<FarTime>& time);  ///< empty: another sink follows that one
  [[nodiscard]] std::optional<FarTime> far_time() const;

  /// Of a sink in this process. `event`, an instant change of the rate at its running time `now`, with that moment;
  /// transfer full.
  [[nodiscard]] GstEvent* change_rate(GstEvent* event, GstClockTimeDiff now);
  [[nodiscard]] InstantRate rate() const;

  /// Slots of the ring that the sink puts frames into now; 0: there is no ring.
  [[nodiscard]] std::uint32_t slots() const;
  /// How many slots the ring should have beyond the property's, because downstream of the src keeps that many.
  [[nodiscard]] std::uint32_t kept_slots() const noexcept { return kept_slots_.load(std::memory_order_relaxed); }
  void set_kept_slots(std::uint32_t slots) noexcept { kept_slots_.store(slots, std::memory_order_relaxed); }
  /// How long the sink gathers a frame before it goes on. From any thread, as the next.
  void set_latency(GstClockTime latency) noexcept { latency_ = latency; }
  /// Adds that to the answer of what is upstream of the sink.
  void add_sink_latency(GstQuery* answered) const;

  // Src side.
  /// The pad behind which caps are decided (borrowed), from READY on: upstream of the sink may query caps before the
  /// src starts. The first pad stays until it is withdrawn, or another src attaches.
  void announce_src_pad(GstPad* pad);
  void withdraw_src_pad(GstPad* pad);
  [[nodiscard]] GstPad* src_pad() const;  ///< transfer full, or null
  [[nodiscard]] bool attach_src(GstElement* src, GstPad* pad, EventHandler on_event, std::string& holder);
  void detach_src();
  /// `of_this_stream`: the flow holds for this stream only; the next stream or segment resets it.
  void set_downstream_flow(GstFlowReturn flow, bool of_this_stream = false) noexcept;
  /// An element is linked behind the src again. False: the flow has changed since then, and stays as it is.
  [[nodiscard]] bool relinked() noexcept;
  void set_src_flushing(bool flushing);
  /// For how long the src has been waiting for a frame; empty: it does not wait.
  [[nodiscard]] std::optional<std::chrono::microseconds> src_waits() const noexcept;
  void forget_held();    ///< ends a flush at the src: drops a frame from before it; while next() is not called
  void interrupt_src();  ///< next() returns `interrupted` once
  void set_src_spin(std::chrono::nanoseconds spin);
  /// The log that receives the ways of the channel's frames; null: they are not followed.
  void set_log(std::shared_ptr<LatencyLog> log);
  [[nodiscard]] std::shared_ptr<LatencyLog> log() const;
  enum class Linked { yes, or_not };
  /// Whether the src is in the sink's pipeline. Then the sinks behind the src do for the bin what a sink does. From the
  /// src's READY on.
  [[nodiscard]] bool has_src_beside(Linked linked) const;
  /// The other side's element, transfer full, or null.
  [[nodiscard]] GstElement* sink() const;
  [[nodiscard]] GstElement* src() const;

  struct Next {
    enum class Kind { frame, event, timeout, interrupted, flushing } kind = Kind::timeout;
    ReadLease lease;                    ///< frame
    std::uint64_t sequence = 0;         ///< frame: its number on the channel
    Ptr<GstBuffer> carrier;             ///< frame
    std::shared_ptr<FrameTrace> trace;  ///< frame; null: its way is not followed
    std::shared_ptr<Loans> loans;       ///< frame: counts its slot as lent to downstream
    bool after_hole = false;            ///< frame: frames before it are missing
    GstEvent* event = nullptr;          ///< event; transfer full
    bool first_of_sink = false;         ///< event: no event of that sink has come before
  };
  [[nodiscard]] Next next(Deadline deadline);
  /// The next frame, where it is there, in `ring`, written, and no event goes before it. As next(), whose thread may
  /// change between two calls. Nothing: see next().
  [[nodiscard]] std::optional<Next> next_frame(const Ring& ring);
  [[nodiscard]] bool has_waiting() const;  ///< something that next() has not given
  /// The ring that frames come from now; null: there is none. In the thread that calls next(): the ring of its last
  /// frame.
  [[nodiscard]] std::shared_ptr<Ring> src_ring() const;
  [[nodiscard]] std::uint64_t frames_before_src_ring() const;  ///< of the channel's sink, on earlier rings

 private:
  struct Item {
    std::uint64_t before = 0;                   ///< delivered before this sequence of the ring in front of it
    GstEvent* event = nullptr;                  ///< or:
    std::shared_ptr<ChannelRing> channel_ring;  ///< or: the ring of the following frames; neither: there is none
    bool first_of_sink = false;                 ///< see Next
  };

  [[nodiscard]] static bool begins_stream(const GstEvent* event);
  void add(Item item);
  [[nodiscard]] bool join_gap(GstEvent* gap);
  [[nodiscard]] Next frame_of(ChannelRing& channel_ring, ReadLease&& lease);
  void drop_all(bool keep_sticky);
  static void drop_superseded(std::deque<Item>& items);
  void drop_all_locked(bool keep_sticky);
  void forget_rate();
  [[nodiscard]] Next take_next(Deadline deadline);
  void clear(std::deque<Item>& items);
  void end_flush();
  void begin_to_wait();
  void nudge_src();   ///< under mutex_
  void show_again();  ///< under mutex_, as the next two
  void forget_delivered();
  void keep_or_drop();
  void end_keeping(guint64 number);

  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  GstElement* sink_ = nullptr;
  GstElement* src_ = nullptr;
  GstPad* src_pad_ = nullptr;
  EventHandler on_event_;
  std::shared_ptr<FarSink> far_;
  std::optional<FarTime> far_time_;
  std::uint64_t far_sinks_ = 0;  ///< so many came, one after the other
  InstantRate rate_;
  bool begins_ = false;  ///< no event of this sink has come
  std::shared_ptr<FarSrc> far_src_;
  std::atomic<bool> has_far_src_{false};
  std::deque<Item> items_;
  std::atomic<std::size_t> pending_{0};
  std::shared_ptr<ChannelRing> newest_;   ///< the sink side's ring
  std::shared_ptr<ChannelRing> current_;  ///< the src side's ring
  StickyEvents delivered_;                ///< taken by a src; a src that comes later needs them, too
  bool owed_ = false;                     ///< a src that came after EOS still needs the events that hold
  ReadLease held_;                        ///< received from current_, but events precede it
  bool src_flushing_ = false;
  bool interrupted_ = false;
  int seeks_ = 0;                  ///< under way upstream of the sink
  std::shared_ptr<Channel> kept_;  ///< itself, while queued frames wait and no element holds it
  GstClockTime linger_ = 0;        ///< how long they wait
  Alarm end_of_keeping_;
  std::uint64_t next_sequence_ = 0;   ///< the src's: the number of the frame after the last one
  std::atomic<bool> flushed_{false};  ///< a flush ended since the src took a frame
  bool flush_open_ = false;           ///< a FLUSH_START without its FLUSH_STOP
  bool flush_seen_ = false;           ///< the src received it
  std::chrono::nanoseconds src_spin_{0};
  std::shared_ptr<LatencyLog> log_;
  std::atomic<GstFlowReturn> flow_{GST_FLOW_OK};
  std::atomic<bool> enough_{false};  ///< flow_ holds for this stream only
  std::atomic<bool> ended_unmet_{false};
  std::atomic<bool> far_joined_late_{false};
  std::atomic<bool> sink_playing_{false}, src_playing_{false};
  std::function<void()> when_src_waits_;
  std::atomic<bool> tells_waiting_{false};
  std::atomic<gint64> src_waits_since_{0};  ///< monotonic us; 0: it does not wait
  std::atomic<std::uint32_t> kept_slots_{0};
  std::atomic<GstClockTime> latency_{0};
  std::optional<Latency> told_latency_;
};

}  // namespace gpumap::gst
