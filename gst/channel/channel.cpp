// SPDX-License-Identifier: MIT
#include "gst/channel/channel.hpp"

#include <gst/base/gstbasesink.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "gst/channel/pipeline_state.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

namespace gpumap::gst {

namespace {

/// So many events between two frames, and gaps become one; so many, and upstream waits. A full ring holds frames back,
/// but events without frames (GAP, tags of a stream that no one takes) would grow without end.
constexpr std::size_t many_events = 64;
constexpr std::size_t max_events = 4096;

}  // namespace

std::shared_ptr<Channel> Channel::open(const std::string& name) {
  static std::mutex mutex;
  static auto* const channels = new std::map<std::string, std::weak_ptr<Channel>>;
  const std::lock_guard lock(mutex);
  std::erase_if(*channels, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = (*channels)[name];
  auto channel = entry.lock();
  if (!channel) {
    channel = std::make_shared<Channel>(name);
    entry = channel;
  }
  return channel;
}

Channel::~Channel() {
  clear(items_);
}

void Channel::forget_delivered() {
  owed_ = false;
  delivered_.forget();
}

void Channel::clear(std::deque<Item>& items) {
  for (Item& item : items) {
    if (item.event != nullptr) gst_event_unref(item.event);
  }
  items.clear();
}

bool Channel::attach_sink(GstElement* sink, std::string& holder) {
  holder = path_of(this->sink());
  std::shared_ptr<Channel> kept;
  {
    const std::lock_guard lock(mutex_);
    if (sink_ != nullptr) return false;
    sink_ = sink;
    kept.swap(kept_);
    end_of_keeping_.stop();
    if (delivered_.ended()) forget_delivered();  // caps hold on the pad that they came to
    if (src_ == nullptr) drop_all_locked(false);
  }
  return true;
}

void Channel::detach_sink(bool drained, GstClockTime linger) {
  end_flush();
  const std::lock_guard lock(mutex_);
  if (!drained) drop_all_locked(false);
  sink_ = nullptr;
  linger_ = linger;
  if (src_ == nullptr) keep_or_drop();
}

/// Both elements have left, the sink at the end of its stream. A src that began to take this stream and left had its
/// chance: the next one may have nothing to do with it.
void Channel::keep_or_drop() {
  if (current_ || !delivered_.empty()) {
    drop_all_locked(false);
    return;
  }
  if (items_.empty()) return;
  kept_ = shared_from_this();
  if (!GST_CLOCK_TIME_IS_VALID(linger_)) return;
  end_of_keeping_.set(linger_, [weak = weak_from_this()](guint64 number) {
    if (const auto channel = weak.lock()) channel->end_keeping(number);
  });
}

void Channel::end_keeping(guint64 number) {
  std::shared_ptr<Channel> kept;  // let go behind the lock
  const std::lock_guard lock(mutex_);
  if (!end_of_keeping_.is(number)) return;
  kept.swap(kept_);
  if (!kept) return;
  GST_INFO("channel %s: no gpumapsrc came for the frames of the ended stream: dropped", name_.c_str());
  drop_all_locked(false);
}

bool Channel::attach_src(GstElement* src, GstPad* pad, EventHandler on_event, std::string& holder) {
  holder = path_of(this->src());
  const std::lock_guard lock(mutex_);
  if (src_ != nullptr) return false;
  src_ = src;
  src_pad_ = pad;
  kept_.reset();  // from here on the src holds it
  end_of_keeping_.stop();
  on_event_ = std::move(on_event);
  kept_slots_ = 0;
  flush_seen_ = false;
  src_flushing_ = false;
  interrupted_ = false;
  if (current_) current_->ring().set_consumer_flushing(false);
  flow_ = GST_FLOW_OK;
  // Whatever an earlier src took of the stream's state comes first again. Of a stream that is over only what still
  // holds when the next one begins.
  owed_ = delivered_.ended();
  if (!owed_) show_again();
  return true;
}

/// What a src took of the stream's state comes again, ahead of all that is queued. Under mutex_.
void Channel::show_again() {
  owed_ = false;
  delivered_.give_back([this](GstEvent* event) { items_.push_front({0, event, nullptr}); });
  pending_ = items_.size();
}

void Channel::detach_src() {
  const std::lock_guard lock(mutex_);
  src_ = nullptr;
  on_event_ = nullptr;
  held_ = {};
  flow_ = GST_FLOW_OK;
  if (sink_ == nullptr) keep_or_drop();
}

std::uint32_t Channel::slots() const {
  const std::lock_guard lock(mutex_);
  return newest_ ? newest_->ring().slots() : 0;
}

void Channel::set_downstream_flow(GstFlowReturn flow, bool of_this_stream) noexcept {
  flow_.store(flow, std::memory_order_relaxed);
  enough_ = of_this_stream;
  // Whoever is linked next gets the frames that wait here, as behind a queue.
  if (flow == GST_FLOW_OK || flow == GST_FLOW_NOT_LINKED) return;
  // A sink that waits for a slot would wait for ever: no one takes frames any more.
  const std::lock_guard lock(mutex_);
  if (current_) current_->ring().drop_queued();
}

Channel::SinkTime Channel::sink_time() const {
  const std::lock_guard lock(mutex_);
  if (sink_ == nullptr && far_time_) {
    return {nullptr, static_cast<GstClockTime>(far_time_->base - far_time_->ahead), far_time_->playing};
  }
  if (sink_ == nullptr) return {};
  GST_OBJECT_LOCK(sink_);
  const GstClockTime base = sink_->base_time;
  GST_OBJECT_UNLOCK(sink_);
  return {sink_, base, sink_playing()};
}

void Channel::set_far_time(const FarTime& time) {
  const std::lock_guard lock(mutex_);
  far_time_ = time;
}

std::optional<Channel::FarTime> Channel::far_time() const {
  const std::lock_guard lock(mutex_);
  return far_time_;
}

void Channel::announce_src_pad(GstPad* pad) {
  const std::lock_guard lock(mutex_);
  if (src_pad_ == nullptr) src_pad_ = pad;
}

void Channel::withdraw_src_pad(GstPad* pad) {
  const std::lock_guard lock(mutex_);
  if (src_pad_ == pad) src_pad_ = nullptr;
}

GstPad* Channel::src_pad() const {
  const std::lock_guard lock(mutex_);
  return src_pad_ != nullptr ? GST_PAD(gst_object_ref(src_pad_)) : nullptr;
}

bool Channel::has_src_beside(Linked linked) const {
  GstElement* sink = this->sink();
  GstPad* pad = src_pad();
  GstElement* src = pad != nullptr ? gst_pad_get_parent_element(pad) : nullptr;
  const bool beside = sink != nullptr && src != nullptr && same_pipeline(sink, src) &&
                      (linked == Linked::or_not || gst_pad_is_linked(pad) != 0);
  gst_clear_object(&sink);
  gst_clear_object(&src);
  gst_clear_object(&pad);
  return beside;
}

GstElement* Channel::sink() const {
  const std::lock_guard lock(mutex_);
  return sink_ != nullptr ? GST_ELEMENT(gst_object_ref(sink_)) : nullptr;
}

GstElement* Channel::src() const {
  const std::lock_guard lock(mutex_);
  return src_ != nullptr ? GST_ELEMENT(gst_object_ref(src_)) : nullptr;
}

void Channel::add(Item item) {
  {
    const std::lock_guard lock(mutex_);
    if (newest_) item.before = newest_->ring().published();
    if (item.event == nullptr) newest_ = item.channel_ring;
    items_.push_back(std::move(item));
    pending_ = items_.size();
    if (current_) current_->ring().nudge_consumer();
  }
  arrived_.notify_all();
}

void Channel::push_ring(const std::shared_ptr<ChannelRing>& channel_ring) {
  add({0, nullptr, channel_ring});
}

void Channel::retire_ring() {
  add({0, nullptr, nullptr});
}

bool Channel::push_event(GstEvent* event) {
  // A new stream or segment, for a downstream that had enough of the last one.
  const bool anew = GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START || GST_EVENT_TYPE(event) == GST_EVENT_SEGMENT;
  if (anew && enough_.exchange(false)) flow_.store(GST_FLOW_OK, std::memory_order_relaxed);
  if (pending_.load(std::memory_order_acquire) >= many_events) {
    if (GST_EVENT_TYPE(event) == GST_EVENT_GAP && join_gap(event)) return true;
    if (pending_.load(std::memory_order_acquire) >= max_events) return false;
  }
  add({0, gst_event_ref(event), nullptr});
  return true;
}

/// Make the last event in the queue span this gap as well, where it is a gap with no frame behind it.
bool Channel::join_gap(GstEvent* gap) {
  const std::lock_guard lock(mutex_);
  if (items_.empty()) return false;
  Item& last = items_.back();
  const bool follows = last.event != nullptr && GST_EVENT_TYPE(last.event) == GST_EVENT_GAP &&
                       (!newest_ || last.before == newest_->ring().published());
  if (!follows) return false;
  GstClockTime start = 0;
  GstClockTime begin = 0;
  GstClockTime duration = 0;
  gst_event_parse_gap(last.event, &start, nullptr);
  gst_event_parse_gap(gap, &begin, &duration);
  if (!GST_CLOCK_TIME_IS_VALID(duration)) duration = 0;
  GstEvent* both = gst_event_new_gap(start, begin > start ? begin - start + duration : duration);
  gst_event_set_seqnum(both, gst_event_get_seqnum(gap));
  gst_event_take(&last.event, both);
  return true;
}

void Channel::drop_all(bool keep_sticky) {
  const std::lock_guard lock(mutex_);
  drop_all_locked(keep_sticky);
}

void Channel::drop_all_locked(bool keep_sticky) {
  delivered_.begin();
  if (current_) current_->ring().drop_queued();
  held_ = {};
  std::deque<Item> kept;
  for (Item& item : items_) {
    if (item.event == nullptr) {
      if (item.channel_ring) item.channel_ring->ring().drop_queued();
      kept.push_back(std::move(item));
    } else if (keep_sticky && is_sticky(item.event) && GST_EVENT_TYPE(item.event) != GST_EVENT_SEGMENT &&
               GST_EVENT_TYPE(item.event) != GST_EVENT_EOS) {
      kept.push_back(std::move(item));
    } else {
      gst_event_unref(item.event);
    }
  }
  items_ = std::move(kept);
  pending_ = items_.size();
  if (keep_sticky) {
    if (owed_) show_again();
    return;
  }
  // The stream is over: let its memory go, and do not show its state to the next one's src.
  forget_delivered();
  items_.clear();
  pending_ = 0;
  if (current_) current_->ring().nudge_consumer();
  current_.reset();
  newest_.reset();
}

void Channel::flush(GstEvent* event) {
  const bool starts = GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START;
  bool unseen = false;
  {
    const std::lock_guard lock(mutex_);
    unseen = !starts && flush_open_ && !flush_seen_;
    flush_open_ = starts;
    if (starts) flush_seen_ = on_event_ != nullptr;
  }
  // A src that came within the flush, and what follows it: they may wait, with locks that FLUSH_STOP takes.
  if (unseen) pass(gst_event_new_flush_start());
  if (!starts) {
    drop_all(true);
    flushed_ = true;
  }
  pass(event);
}

/// The pads of a sink that stops let no FLUSH_STOP through: the src would wait for it for ever.
void Channel::end_flush() {
  {
    const std::lock_guard lock(mutex_);
    if (!flush_open_) return;
  }
  flush(gst_event_new_flush_stop(TRUE));
}

void Channel::pass(GstEvent* event) {
  EventHandler handler;
  GstElement* src = nullptr;
  {
    const std::lock_guard lock(mutex_);
    handler = on_event_;
    if (src_ != nullptr) src = GST_ELEMENT(gst_object_ref(src_));
  }
  if (handler) {
    handler(event);
  } else {
    gst_event_unref(event);
  }
  if (src != nullptr) gst_object_unref(src);
}

void Channel::set_far_sink(std::shared_ptr<FarSink> far) {
  const std::lock_guard lock(mutex_);
  far_.swap(far);
}

std::shared_ptr<FarSink> Channel::far_sink() const {
  const std::lock_guard lock(mutex_);
  return far_;
}

void Channel::set_event_handler(EventHandler on_event) {
  const std::lock_guard lock(mutex_);
  on_event_ = std::move(on_event);
}

void Channel::set_room_maker(std::function<bool()> make_room) {
  const std::lock_guard lock(mutex_);
  make_room_ = std::move(make_room);
}

bool Channel::make_room() const {
  std::function<bool()> make_room;
  {
    const std::lock_guard lock(mutex_);
    make_room = make_room_;
  }
  return make_room && make_room();
}

bool Channel::send_upstream(GstEvent* event, const std::function<bool(GstEvent*)>& push) const {
  if (GST_EVENT_TYPE(event) != GST_EVENT_SEEK) return push(event);
  GstElement* sink = this->sink();
  GstElement* src = this->src();
  bool done = false;
  {
    // Either may have left meanwhile.
    std::optional<StateHold> of_sink, of_src;
    if (sink != nullptr) of_sink.emplace(sink);
    if (src != nullptr && (sink == nullptr || !same_pipeline(sink, src))) of_src.emplace(src);
    done = push(event);
  }
  gst_clear_object(&sink);
  gst_clear_object(&src);
  return done;
}

void Channel::tell_latency() {
  GstElement* sink = this->sink();
  GstElement* src = this->src();
  if (sink != nullptr && src != nullptr && !same_pipeline(sink, src)) {
    gst_element_post_message(src, gst_message_new_latency(GST_OBJECT_CAST(src)));
  }
  // In another process it is told as what overtakes the queue.
  if (sink != nullptr && src == nullptr) pass(gst_event_new_latency(0));
  gst_clear_object(&sink);
  gst_clear_object(&src);
}

void Channel::set_src_flushing(bool flushing) {
  {
    const std::lock_guard lock(mutex_);
    src_flushing_ = flushing;
    if (current_) current_->ring().set_consumer_flushing(flushing);
  }
  arrived_.notify_all();
}

void Channel::interrupt_src() {
  {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    if (current_) current_->ring().nudge_consumer();
  }
  arrived_.notify_all();
}

void Channel::set_src_spin(std::chrono::nanoseconds spin) {
  const std::lock_guard lock(mutex_);
  src_spin_ = spin;
  if (current_) current_->ring().set_spin(spin);
}

void Channel::set_log(std::shared_ptr<LatencyLog> log) {
  const std::lock_guard lock(mutex_);
  log_ = std::move(log);
}

std::shared_ptr<LatencyLog> Channel::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

Channel::Next Channel::frame_of(ChannelRing& channel_ring, ReadLease lease) {
  const std::uint64_t sequence = channel_ring.sequence(lease);
  Next frame{.kind = Next::Kind::frame, .lease = std::move(lease), .sequence = sequence};
  frame.carrier.reset(channel_ring.take(frame.lease.slot()));
  frame.trace = channel_ring.follow(frame.lease);
  frame.loans = channel_ring.loans();
  const bool flushed = flushed_.exchange(false, std::memory_order_relaxed);
  frame.after_hole = flushed || sequence != next_sequence_;
  next_sequence_ = sequence + 1;
  return frame;
}

void Channel::forget_held() {
  ReadLease stale;
  const std::lock_guard lock(mutex_);
  stale = std::move(held_);
}

std::optional<std::chrono::microseconds> Channel::src_waits() const noexcept {
  const gint64 since = src_waits_since_.load(std::memory_order_acquire);
  if (since == 0) return std::nullopt;
  return std::chrono::microseconds(g_get_monotonic_time() - since);
}

void Channel::when_src_waits(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  when_src_waits_ = std::move(call);
  tells_waiting_ = when_src_waits_ != nullptr;
}

/// Paused, the sink lets through what the src's side needs to preroll, and need not guess when.
void Channel::begin_to_wait() {
  if (src_waits_since_.load(std::memory_order_relaxed) == 0) {
    src_waits_since_.store(g_get_monotonic_time(), std::memory_order_release);
  }
  if (tells_waiting_.load()) {
    const std::lock_guard lock(mutex_);
    if (tells_waiting_.exchange(false)) std::exchange(when_src_waits_, nullptr)();
  }
  if (src_playing()) return;
  GstElement* sink = this->sink();
  if (sink == nullptr) return;
  GST_BASE_SINK_PREROLL_BROADCAST(sink);
  gst_object_unref(sink);
}

std::shared_ptr<Ring> Channel::src_ring() const {
  const std::lock_guard lock(mutex_);
  return current_ ? current_->shared_ring() : nullptr;
}

Channel::Next Channel::next(Deadline deadline) {
  Next next = take_next(deadline);
  if (src_waits_since_.load(std::memory_order_relaxed) != 0) src_waits_since_.store(0, std::memory_order_release);
  return next;
}

Channel::Next Channel::take_next(Deadline deadline) {
  while (true) {
    std::shared_ptr<ChannelRing> channel_ring;
    {
      std::unique_lock lock(mutex_);
      if (src_flushing_) return {.kind = Next::Kind::flushing};
      if (std::exchange(interrupted_, false)) return {.kind = Next::Kind::interrupted};
      if (!items_.empty()) {
        Item& front = items_.front();
        // Reading queued() after the item was queued: all frames published before it are gone once it reads 0.
        const bool due = !current_ || (held_ ? held_.info().sequence >= front.before : current_->ring().queued() == 0);
        if (due) {
          Item item = std::move(front);
          items_.pop_front();
          pending_ = items_.size();
          if (item.event == nullptr) {
            current_ = std::move(item.channel_ring);
            if (current_) current_->ring().set_spin(src_spin_);
            continue;
          }
          delivered_.remember(item.event);
          if (owed_ && GST_EVENT_TYPE(item.event) == GST_EVENT_STREAM_START) {
            // It stands in its place among what holds.
            gst_event_unref(item.event);
            show_again();
            continue;
          }
          return {.kind = Next::Kind::event, .event = item.event};
        }
      }
      if (held_) return frame_of(*current_, std::move(held_));
      if (!current_) {
        const auto ready = [&] { return src_flushing_ || interrupted_ || !items_.empty(); };
        lock.unlock();
        begin_to_wait();
        lock.lock();
        if (deadline == no_deadline) {
          arrived_.wait(lock, ready);
        } else if (!arrived_.wait_until(lock, deadline, ready)) {
          return {};
        }
        continue;
      }
      channel_ring = current_;
    }
    if (channel_ring->ring().queued() == 0) begin_to_wait();

    ReadLease lease;
    const RingStatus status = channel_ring->ring().receive(lease, deadline);
    if (status == RingStatus::ok) {
      if (pending_.load(std::memory_order_acquire) != 0) {
        const std::lock_guard lock(mutex_);
        // Meanwhile the sink may have stopped and begun anew: what it cut off is dropped.
        if (current_ == channel_ring) held_ = std::move(lease);
        continue;
      }
      return frame_of(*channel_ring, std::move(lease));
    }
    if (status == RingStatus::flushing) return {.kind = Next::Kind::flushing};
    if (pending_.load(std::memory_order_acquire) != 0) continue;
    if (status != RingStatus::closed && Clock::now() < deadline) continue;  // a nudge
    return {};
  }
}

}  // namespace gpumap::gst
