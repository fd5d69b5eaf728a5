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
#include "gst/channel/sticky_events.hpp"
#include "gst/memory/slot_usage.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

/// A ring and, beside each slot, the GstBuffer without memory that carries its timestamps, flags and metas across.
class ChannelRing {
 public:
  /// `first`: frames that the channel's sink published on the rings before this one. `log`: where the ways of its
  /// frames go, which the ring stamps then; null: nowhere.
  ChannelRing(std::shared_ptr<Ring> ring, std::uint64_t first, std::shared_ptr<LatencyLog> log);
  ~ChannelRing();
  ChannelRing(const ChannelRing&) = delete;
  ChannelRing& operator=(const ChannelRing&) = delete;

  [[nodiscard]] Ring& ring() const noexcept { return *ring_; }
  [[nodiscard]] const std::shared_ptr<Ring>& shared_ring() const noexcept { return ring_; }
  [[nodiscard]] const std::shared_ptr<Loans>& loans() const noexcept { return loans_; }
  /// Of a frame on its channel: a ring counts its own only.
  [[nodiscard]] std::uint64_t sequence(const ReadLease& lease) const noexcept { return first_ + lease.info().sequence; }
  /// Takes `carrier`. Ordered by the ring: called before the publish of `slot` ...
  void put(std::uint32_t slot, GstBuffer* carrier);
  /// ... and after its receive. Transfer full.
  [[nodiscard]] GstBuffer* take(std::uint32_t slot);
  /// The ways of its frames began in another process: put_way() tells which, and where they go.
  void expect_ways() { ways_.resize(carriers_.size()); }
  /// Ahead of the publish of `slot`, as put(). A null log: the frame is not followed.
  void put_way(std::uint32_t slot, const FrameRecord& begun, std::shared_ptr<LatencyLog> log);
  /// The way of a frame that was just received; null where it is not followed. One thread at a time.
  [[nodiscard]] std::shared_ptr<FrameTrace> follow(const ReadLease& lease);

 private:
  std::shared_ptr<Ring> ring_;
  std::uint64_t first_;
  std::vector<std::atomic<GstBuffer*>> carriers_;
  std::shared_ptr<Loans> loans_ = std::make_shared<Loans>();
  std::shared_ptr<LatencyLog> log_;
  struct Way {
    FrameRecord begun;
    std::shared_ptr<LatencyLog> log;
  };
  [[nodiscard]] std::shared_ptr<FrameTrace> follow(const ReadLease& lease, Way way);
  std::vector<Way> ways_;       ///< of each slot; ordered by the ring, as the carriers
  bool followed_ = false;       ///< one of those
  std::uint64_t expected_ = 0;  ///< the ring's sequence of the next frame, when none is dropped
};

/// What stands for the sink, and for what is upstream of it, where that is in another process. Any thread.
class FarSink {
 public:
  FarSink() = default;
  virtual ~FarSink() = default;
  FarSink(const FarSink&) = delete;
  FarSink& operator=(const FarSink&) = delete;
  [[nodiscard]] virtual bool send(GstEvent* event) = 0;  ///< upstream; takes it. False: nobody did anything with it.
  [[nodiscard]] virtual bool query(GstQuery* query) = 0;
};

/// Where a gpumapsink and a gpumapsrc of one process meet. Frames go through the ring; events and changes of ring wait
/// beside it, each with the sequence of the frame that it precedes, so that order is kept without a lock on the frames'
/// path. Thread safety: every member from any thread; next() from one thread at a time.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  /// What the src side does with what overtakes the queue: flushes, and events that are not serialized. Takes the
  /// event. Called in the thread that sends it.
  using EventHandler = std::function<void(GstEvent*)>;

  /// `bin`: the number of the bin that both ends are in, see channel_of(); 0: they may be anywhere in the process.
  [[nodiscard]] static std::shared_ptr<Channel> open(const std::string& name, std::uintptr_t bin = 0);
  explicit Channel(std::string name) : name_(std::move(name)) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Sink side. False: the side is taken; `holder` gets the name of the element that has it. What the sink before left
  // and no src is there to take is dropped.
  [[nodiscard]] bool attach_sink(GstElement* sink, std::string& holder);
  /// `drained`: after EOS, what is queued still goes to the src; else it is dropped. Of a stream that no src has seen
  /// yet it waits here, even once both elements are gone, until a src or another sink comes, but for `linger` at most.
  void detach_sink(bool drained, GstClockTime linger);
  void push_ring(const std::shared_ptr<ChannelRing>& channel_ring);
  [[nodiscard]] std::size_t rings_waiting() const;  ///< that the src has not come to
  void retire_ring();                               ///< let its memory go once its last frame has been taken
  /// Adds a reference. False: too many events wait already, try again once frames have been taken.
  [[nodiscard]] bool push_event(GstEvent* event);
  /// Within a flush: what it will drop at its end is dropped now.
  void make_room_in_flush() { drop_all(true); }
  void flush(GstEvent* event);  ///< FLUSH_START or FLUSH_STOP; takes it
  void pass(GstEvent* event);   ///< one that is not serialized, past all that is queued; takes it
  /// An event goes upstream of the sink, by `push`, which takes it. No lock is held meanwhile: a seek waits for
  /// streaming threads, and these may wait for a change of state.
  [[nodiscard]] bool send_upstream(GstEvent* event, const std::function<bool(GstEvent*)>& push);
  /// Wait for the seeks of send_upstream(). A source that is stopped and started while it seeks would wait for its
  /// streaming thread, which has begun anew, until the pipeline plays.
  void await_seeks(Deadline deadline);
  /// The sink's pipeline has another latency now: tell the src's, where that is another pipeline.
  void tell_latency();
  /// What downstream of the src last returned: the sink hands EOS and errors on to its own upstream.
  [[nodiscard]] GstFlowReturn downstream_flow() const noexcept { return flow_.load(std::memory_order_relaxed); }

  /// Call `call` once in the src's thread, the next time that it has nothing left to take; null: not any more.
  void when_src_waits(std::function<void()> call);
  /// It takes no frames any more: it had enough, or failed; not where nothing is linked, or only for this stream.
  [[nodiscard]] bool src_has_enough() const noexcept {
    const GstFlowReturn flow = downstream_flow();
    return flow != GST_FLOW_OK && flow != GST_FLOW_NOT_LINKED && !enough_.load(std::memory_order_relaxed);
  }

  void set_far_sink(std::shared_ptr<FarSink> far);
  [[nodiscard]] std::shared_ptr<FarSink> far_sink() const;
  /// What overtakes the queue goes there where no src is attached; null: nowhere.
  void set_event_handler(EventHandler on_event);
  /// Who can free slots of frames that left the ring for other processes; each is false where no slot came free.
  struct FarSlots {
    std::function<bool()> make_room;                ///< by dropping the oldest that nobody has taken
    std::function<bool(Deadline since)> end_stall;  ///< from who keeps them, where none was to be had since then
  };
  void set_far_slots(FarSlots far);  ///< with empty ones: nobody
  /// False: there is nobody, or no slot came free.
  [[nodiscard]] bool make_room() const;
  [[nodiscard]] bool end_stall(Deadline since) const;

  /// Each side says when it starts and stops playing: only in between is its base time worth reading.
  void set_sink_playing(bool playing) noexcept { sink_playing_.store(playing, std::memory_order_release); }
  void set_src_playing(bool playing) noexcept { src_playing_.store(playing, std::memory_order_release); }
  [[nodiscard]] bool sink_playing() const noexcept { return sink_playing_.load(std::memory_order_acquire); }
  [[nodiscard]] bool src_playing() const noexcept { return src_playing_.load(std::memory_order_acquire); }

  /// What the sink's running time counts from; nothing of it where there is no sink.
  struct SinkTime {
    const GstElement* sink = nullptr;  ///< for comparing only
    GstClockTime base = GST_CLOCK_TIME_NONE;
    bool playing = false;
    bool operator==(const SinkTime&) const = default;
  };
  [[nodiscard]] SinkTime sink_time() const;
  /// The same of a sink in another process.
  struct FarTime {
    bool playing = false;
    GstClockTimeDiff base = 0;     ///< the base time, while it plays
    GstClockTimeDiff stopped = 0;  ///< the running time at which it stopped
    GstClockTimeDiff ahead = 0;    ///< of its clock to CLOCK_MONOTONIC
    bool operator==(const FarTime&) const = default;
  };
  void set_far_time(const std::optional<FarTime>& time);  ///< nothing: that sink is gone
  [[nodiscard]] std::optional<FarTime> far_time() const;

  /// Of the ring that the sink puts frames into now; 0 where there is none.
  [[nodiscard]] std::uint32_t slots() const;
  /// How many more slots than are set the ring should have, for downstream of the src keeps so many.
  [[nodiscard]] std::uint32_t kept_slots() const noexcept { return kept_slots_.load(std::memory_order_relaxed); }
  void set_kept_slots(std::uint32_t slots) noexcept { kept_slots_.store(slots, std::memory_order_relaxed); }

  // Src side.
  /// The pad behind which caps are decided (borrowed), from READY on: upstream of the sink may ask before the src
  /// starts. The first one stays until it is withdrawn, or another src attaches.
  void announce_src_pad(GstPad* pad);
  void withdraw_src_pad(GstPad* pad);
  [[nodiscard]] GstPad* src_pad() const;  ///< transfer full, or null
  [[nodiscard]] bool attach_src(GstElement* src, GstPad* pad, EventHandler on_event, std::string& holder);
  void detach_src();
  /// `of_this_stream`: the next stream or segment is welcome again.
  void set_downstream_flow(GstFlowReturn flow, bool of_this_stream = false) noexcept;
  /// Something is linked behind the src again. False where the flow has changed since: it stays, as after an end.
  [[nodiscard]] bool relinked() noexcept;
  void set_src_flushing(bool flushing);
  /// For how long the src has been waiting for a frame, with none on its way; empty where it does not.
  [[nodiscard]] std::optional<std::chrono::microseconds> src_waits() const noexcept;
  void forget_held();    ///< a frame from before a flush; while next() is not called
  void interrupt_src();  ///< next() returns `interrupted` once: the src has something else to look at
  void set_src_spin(std::chrono::nanoseconds spin);
  /// Where the ways of the channel's frames go; null where they are not followed.
  void set_log(std::shared_ptr<LatencyLog> log);
  [[nodiscard]] std::shared_ptr<LatencyLog> log() const;
  enum class Linked { yes, or_not };
  /// Whether the src is in the sink's pipeline: there the sinks behind it do what a sink does for its bin. From the
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
    std::shared_ptr<FrameTrace> trace;  ///< frame; null where its way is not followed
    std::shared_ptr<Loans> loans;       ///< frame: where its slot counts as lent to downstream
    bool after_hole = false;            ///< frame: some before it are missing
    GstEvent* event = nullptr;          ///< event; transfer full
  };
  [[nodiscard]] Next next(Deadline deadline);
  /// That frames come from now; null where there is none. Of the last frame of next(), in the thread that called it.
  [[nodiscard]] std::shared_ptr<Ring> src_ring() const;

 private:
  struct Item {
    std::uint64_t before = 0;                   ///< goes out ahead of this sequence of the ring in front of it
    GstEvent* event = nullptr;                  ///< or:
    std::shared_ptr<ChannelRing> channel_ring;  ///< or: frames come from this one from now on; neither: from none
  };

  [[nodiscard]] static bool begins_stream(const GstEvent* event);
  void add(Item item);
  [[nodiscard]] bool join_gap(GstEvent* gap);
  [[nodiscard]] Next frame_of(ChannelRing& channel_ring, ReadLease&& lease);
  void drop_all(bool keep_sticky);
  static void drop_superseded(std::deque<Item>& items);
  void drop_all_locked(bool keep_sticky);
  [[nodiscard]] Next take_next(Deadline deadline);
  void clear(std::deque<Item>& items);
  void end_flush();
  void begin_to_wait();
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
  FarSlots far_slots_;
  std::deque<Item> items_;
  std::atomic<std::size_t> pending_{0};
  std::shared_ptr<ChannelRing> newest_;   ///< the sink side's ring
  std::shared_ptr<ChannelRing> current_;  ///< the src side's ring
  StickyEvents delivered_;                ///< that a src took: a src that comes later needs them too
  bool owed_ = false;                     ///< to a src that came after EOS: what was delivered and still holds
  ReadLease held_;                        ///< received from current_, but events go first
  bool src_flushing_ = false;
  bool interrupted_ = false;
  int seeks_ = 0;                  ///< under way upstream of the sink
  std::shared_ptr<Channel> kept_;  ///< itself, while what is queued waits and no element holds it
  GstClockTime linger_ = 0;        ///< how long it may
  Alarm end_of_keeping_;
  std::uint64_t next_sequence_ = 0;   ///< the src's: of the frame that follows the last one
  std::atomic<bool> flushed_{false};  ///< since the src took a frame
  bool flush_open_ = false;           ///< a FLUSH_START without its FLUSH_STOP
  bool flush_seen_ = false;           ///< the src got it
  std::chrono::nanoseconds src_spin_{0};
  std::shared_ptr<LatencyLog> log_;
  std::atomic<GstFlowReturn> flow_{GST_FLOW_OK};
  std::atomic<bool> enough_{false};  ///< flow_ is of this stream
  std::atomic<bool> sink_playing_{false}, src_playing_{false};
  std::function<void()> when_src_waits_;
  std::atomic<bool> tells_waiting_{false};
  std::atomic<gint64> src_waits_since_{0};  ///< monotonic us; 0: it does not
  std::atomic<std::uint32_t> kept_slots_{0};
};

}  // namespace gpumap::gst
