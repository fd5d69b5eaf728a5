// SPDX-License-Identifier: MIT
#include "gst/channel/channel.hpp"

#include <gst/base/gstbasesink.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "gst/channel/ends.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/ptr.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

namespace gpumap::gst {
namespace {

/// From this many waiting events on, gaps are joined; from max_events on, upstream waits. A full ring holds frames
/// back, but events without frames (GAP, tags of a stream that is not taken) would grow without end.
constexpr std::size_t many_events = 64;
constexpr std::size_t max_events = 4096;

using Names = std::set<std::pair<GstEventType, std::string>>;

/// Whether a later event replaces it. As on a pad, of the kinds that may be many, such as tags, the last one with a
/// name holds in a stream. `later`: the names of events behind `event` in its stream.
bool is_superseded(GstEvent* event, Names& later) {
  if (event == nullptr) return false;
  const GstEventType type = GST_EVENT_TYPE(event);
  if (type == GST_EVENT_STREAM_START) later.clear();
  if ((gst_event_type_get_flags(type) & GST_EVENT_TYPE_STICKY_MULTI) == 0) return false;
  const GstStructure* const structure = gst_event_get_structure(event);
  return !later.emplace(type, structure != nullptr ? gst_structure_get_name(structure) : "").second;
}

struct Gap {
  GstClockTime start = 0, end = 0;  ///< the same where its length is not known
  GstGapFlags flags{};
};
Gap gap_of(GstEvent* event) {
  Gap gap;
  GstClockTime duration = 0;
  gst_event_parse_gap(event, &gap.start, &duration);
  gap.end = gap.start + (GST_CLOCK_TIME_IS_VALID(duration) ? duration : 0);
  gst_event_parse_gap_flags(event, &gap.flags);
  return gap;
}

}  // namespace

// The two ends of a channel.

std::shared_ptr<Channel> Channel::open(const std::string& name, std::uintptr_t bin) {
  static std::mutex mutex;
  static auto* const channels = new std::map<std::pair<std::uintptr_t, std::string>, std::weak_ptr<Channel>>;
  const std::lock_guard lock(mutex);
  std::erase_if(*channels, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = (*channels)[{bin, name}];
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
    begins_ = true;
    rate_ = {};
    kept.swap(kept_);
    end_of_keeping_.stop();
    if (delivered_.ended()) forget_delivered();  // caps hold only on the pad that received them
    if (src_ == nullptr) drop_all_locked(false);
    ended_unmet_ = false;
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

/// Both elements have left, the sink at the end of its stream. When a src has begun to take this stream, the rest is
/// dropped: the next src may belong to another stream.
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
  std::shared_ptr<Channel> kept;  // released after the lock
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
  ended_unmet_ = false;
  // The stream's state that an earlier src took comes first again. After EOS only events that still hold when the next
  // stream begins do.
  owed_ = delivered_.ended();
  if (!owed_) show_again();
  return true;
}

/// The stream's state that a src took comes again, before all that is queued. Under mutex_.
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
  // Under the lock: the sink's side sees the flow at once and may begin another stream, which resets the flow under the
  // lock, and whose frames must not be dropped.
  const std::lock_guard lock(mutex_);
  // The next stream waits already, and the src itself skips the rest of this one.
  if (of_this_stream &&
      std::any_of(items_.begin(), items_.end(), [](const Item& item) { return begins_stream(item.event); })) {
    return;
  }
  enough_ = of_this_stream;
  flow_.store(flow, std::memory_order_relaxed);
  // An element that is linked later gets the frames that wait here, as behind a queue.
  if (flow == GST_FLOW_OK || flow == GST_FLOW_NOT_LINKED) return;
  // A sink that waits for a slot would wait forever, because no frame is taken any more. After the flow is set, so that
  // no sink begins to wait later. Frames wait in rings that the src has not come to as well.
  if (current_) current_->ring().drop_queued();
  for (const Item& item : items_) {
    if (item.channel_ring) item.channel_ring->ring().drop_queued();
  }
}

bool Channel::relinked() noexcept {
  const std::lock_guard lock(mutex_);
  if (flow_ != GST_FLOW_NOT_LINKED) return false;
  flow_ = GST_FLOW_OK;
  return true;
}

Channel::SinkTime Channel::sink_time() const {
  const std::lock_guard lock(mutex_);
  if (sink_ == nullptr && far_time_) {
    const bool is_later = current_ && current_->far_sink != far_sinks_;
    return {nullptr, static_cast<GstClockTime>(far_time_->base - far_time_->ahead), far_time_->playing, is_later};
  }
  if (sink_ == nullptr) return {};
  GST_OBJECT_LOCK(sink_);
  const GstClockTime base = sink_->base_time;
  GST_OBJECT_UNLOCK(sink_);
  return {sink_, base, sink_playing()};
}

void Channel::set_far_time(const std::optional<FarTime>& time) {
  const std::lock_guard lock(mutex_);
  if (!time) {
    begins_ = true;
    ++far_sinks_;
  }
  far_time_ = time;
}

GstEvent* Channel::change_rate(GstEvent* event, GstClockTimeDiff now) {
  const std::lock_guard lock(mutex_);
  rate_ = InstantRate::of(event, rate_, now);
  return rate_.named_in(event).release();
}

InstantRate Channel::rate() const {
  const std::lock_guard lock(mutex_);
  return rate_;
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

void Channel::flush(GstEvent* event) {
  const bool starts = GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START;
  bool unseen = false;
  {
    const std::lock_guard lock(mutex_);
    unseen = !starts && flush_open_ && !flush_seen_;
    flush_open_ = starts;
    if (starts) flush_seen_ = on_event_ != nullptr;
  }
  // A src that came within the flush, and elements behind it, may wait with locks that FLUSH_STOP takes.
  if (unseen) pass(gst_event_new_flush_start());
  if (!starts) {
    gboolean resets = FALSE;
    gst_event_parse_flush_stop(event, &resets);
    drop_all(true);
    if (resets != 0) forget_rate();
    flushed_ = true;
  }
  pass(event);
}

/// The pads of a sink that stops let no FLUSH_STOP through, and the src would wait for it forever.
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
  const EventOnItsWay way(this, event);
  if (handler && !way.came_round()) {
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

void Channel::set_far_src(std::shared_ptr<FarSrc> far) {
  const std::lock_guard lock(mutex_);
  far_src_.swap(far);
  has_far_src_ = far_src_ != nullptr;
}

std::shared_ptr<FarSrc> Channel::far_src() const {
  if (!has_far_src_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(mutex_);
  return far_src_;
}

void Channel::hand_on() const {
  if (const auto far = far_src()) far->hand_on();
}

bool Channel::send_upstream(GstEvent* event, const std::function<bool(GstEvent*)>& push) {
  const Ptr<GstElement> sink(GST_EVENT_TYPE(event) == GST_EVENT_SEEK ? this->sink() : nullptr);
  if (!sink) return push(event);
  const SeekTurn turn(sink.get(), event);
  if (turn.is_refused()) {
    gst_event_unref(event);
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    ++seeks_;
  }
  // A stopped source would refuse the seek.
  const bool stops = is_stopping(sink.get());
  if (stops) gst_event_unref(event);
  const bool done = !stops && push(event);
  {
    const std::lock_guard lock(mutex_);
    --seeks_;
  }
  arrived_.notify_all();
  if (!stops) mend_states_after_flush(sink.get());
  return done;
}

void Channel::await_seeks(Deadline deadline) {
  std::unique_lock lock(mutex_);
  arrived_.wait_until(lock, deadline, [this] { return seeks_ == 0; });
}

void Channel::add_sink_latency(GstQuery* answered) const {
  const GstClockTime more = latency_;
  if (more == 0) return;
  gboolean live = FALSE;
  GstClockTime least = 0;
  GstClockTime most = 0;
  gst_query_parse_latency(answered, &live, &least, &most);
  gst_query_set_latency(answered, live, least + more, GST_CLOCK_TIME_IS_VALID(most) ? most + more : most);
}

void Channel::tell_latency() {
  GstElement* sink = this->sink();
  GstElement* src = this->src();
  if (sink != nullptr && src != nullptr && !same_pipeline(sink, src)) {
    gst_element_post_message(src, gst_message_new_latency(GST_OBJECT_CAST(src)));
  }
  // Another process receives it as an event that overtakes the queue.
  if (sink != nullptr && src == nullptr) pass(gst_event_new_latency(0));
  gst_clear_object(&sink);
  gst_clear_object(&src);
}

/// Wakes next(), which looks at everything once more.
void Channel::nudge_src() {
  if (current_) current_->ring().nudge_consumer();
  if (far_) far_->nudge();
}

void Channel::set_src_flushing(bool flushing) {
  {
    const std::lock_guard lock(mutex_);
    src_flushing_ = flushing;
    if (current_) current_->ring().set_consumer_flushing(flushing);
    nudge_src();
  }
  arrived_.notify_all();
}

void Channel::interrupt_src() {
  {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    nudge_src();
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

/// A paused sink lets frames through that the src's side needs to preroll. This tells it when.
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

std::uint64_t Channel::frames_before_src_ring() const {
  const std::lock_guard lock(mutex_);
  return current_ ? current_->first() : 0;
}

// What waits in a channel: events and changes of ring among the frames, in their order, from the sink's side in and to
// the src's side out.

/// Whether downstream may want frames again after this event, even if it had enough.
bool Channel::begins_stream(const GstEvent* event) {
  return event != nullptr &&
         (GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START || GST_EVENT_TYPE(event) == GST_EVENT_SEGMENT);
}

void Channel::add(Item item) {
  {
    const std::lock_guard lock(mutex_);
    // Together with the event: "enough" of the last stream, set in between, would hold for this one.
    if (begins_stream(item.event) && enough_.exchange(false)) flow_.store(GST_FLOW_OK, std::memory_order_relaxed);
    if (newest_) item.before = newest_->ring().published();
    item.first_of_sink = item.event != nullptr && std::exchange(begins_, false);
    if (item.event == nullptr) newest_ = item.channel_ring;
    items_.push_back(std::move(item));
    pending_ = items_.size();
    nudge_src();
  }
  arrived_.notify_all();
  hand_on();
}

void Channel::push_ring(const std::shared_ptr<ChannelRing>& channel_ring) {
  {
    const std::lock_guard lock(mutex_);
    channel_ring->far_sink = far_sinks_;
  }
  add({0, nullptr, channel_ring});
}

std::size_t Channel::rings_waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(items_.begin(), items_.end(), [](const Item& item) { return item.channel_ring != nullptr; }));
}

void Channel::leave_out_rings() {
  const std::lock_guard lock(mutex_);
  std::erase_if(items_, [](const Item& item) { return item.event == nullptr; });
  for (Item& item : items_) item.before = 0;  // the frames before it are dropped
  pending_ = items_.size();
}

void Channel::retire_ring() {
  {
    const std::lock_guard lock(mutex_);
    if (!newest_) return;  // another process may say so without end
  }
  add({0, nullptr, nullptr});
}

bool Channel::push_event(GstEvent* event) {
  if (pending_.load(std::memory_order_acquire) >= many_events) {
    if (GST_EVENT_TYPE(event) == GST_EVENT_GAP && join_gap(event)) return true;
    if (pending_.load(std::memory_order_acquire) >= max_events) {
      // Where nothing takes them, events do not hold up upstream, which may have other branches. What holds is kept.
      if (downstream_flow() == GST_FLOW_OK && !has_ended_unmet()) return false;
      if (!is_sticky(event)) return true;
      const std::lock_guard lock(mutex_);
      drop_superseded(items_);
      pending_ = items_.size();
    }
  }
  add({0, gst_event_ref(event), nullptr});
  return true;
}

/// Makes the last event in the queue span this gap as well, if it is a gap of the same kind with no frame behind it.
/// In reverse playback this one lies before that.
bool Channel::join_gap(GstEvent* gap) {
  const std::lock_guard lock(mutex_);
  if (items_.empty()) return false;
  Item& last = items_.back();
  const bool follows = last.event != nullptr && GST_EVENT_TYPE(last.event) == GST_EVENT_GAP &&
                       (!newest_ || last.before == newest_->ring().published());
  if (!follows) return false;
  const Gap before = gap_of(last.event);
  const Gap behind = gap_of(gap);
  if (before.flags != behind.flags) return false;
  const GstClockTime start = std::min(before.start, behind.start);
  GstEvent* both = gst_event_new_gap(start, std::max(before.end, behind.end) - start);
  gst_event_set_gap_flags(both, behind.flags);
  gst_event_set_seqnum(both, gst_event_get_seqnum(gap));
  gst_event_take(&last.event, both);
  return true;
}

void Channel::drop_all(bool keep_sticky) {
  const std::lock_guard lock(mutex_);
  drop_all_locked(keep_sticky);
}

void Channel::drop_superseded(std::deque<Item>& items) {
  Names later;
  std::deque<Item> kept;
  for (; !items.empty(); items.pop_back()) {
    Item& last = items.back();
    if (is_superseded(last.event, later)) {
      gst_event_unref(last.event);
    } else {
      kept.push_front(std::move(last));
    }
  }
  items = std::move(kept);
}

void Channel::drop_all_locked(bool keep_sticky) {
  delivered_.begin();
  if (current_) current_->ring().drop_queued();
  held_ = {};
  std::deque<Item> kept;
  const auto is_ring = [](const Item& item) { return item.event == nullptr; };
  // No frame comes from the rings before the last one any more.
  const auto last_ring = std::find_if(items_.rbegin(), items_.rend(), is_ring);
  for (Item& item : items_) {
    if (is_ring(item)) {
      if (item.channel_ring) item.channel_ring->ring().drop_queued();
      if (&item == &*last_ring) kept.push_back(std::move(item));
    } else if (keep_sticky && is_sticky(item.event) && GST_EVENT_TYPE(item.event) != GST_EVENT_SEGMENT &&
               GST_EVENT_TYPE(item.event) != GST_EVENT_EOS) {
      kept.push_back(std::move(item));
    } else {
      gst_event_unref(item.event);
    }
  }
  drop_superseded(kept);
  items_ = std::move(kept);
  pending_ = items_.size();
  if (keep_sticky) {
    delivered_.flush();
    if (owed_) show_again();
    return;
  }
  // The stream is over: its memory is released, and its state is not shown to the src of the next one.
  forget_delivered();
  items_.clear();
  pending_ = 0;
  nudge_src();
  current_.reset();
  newest_.reset();
}

/// A flush that resets the time ends an instant rate, also one that nobody has taken.
void Channel::forget_rate() {
  const std::lock_guard lock(mutex_);
  rate_ = {};
  std::erase_if(items_, [](const Item& item) {
    const bool is_rate = item.event != nullptr && GST_EVENT_TYPE(item.event) == GST_EVENT_INSTANT_RATE_CHANGE;
    if (is_rate) gst_event_unref(item.event);
    return is_rate;
  });
  pending_ = items_.size();
}

Channel::Next Channel::frame_of(ChannelRing& channel_ring, ReadLease&& lease) {
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
  flushed_ = true;  // again: a frame that was on its way out at the flush may have taken the first for itself
}

Channel::Next Channel::next(Deadline deadline) {
  Next next = take_next(deadline);
  if (src_waits_since_.load(std::memory_order_relaxed) != 0) src_waits_since_.store(0, std::memory_order_release);
  return next;
}

bool Channel::has_waiting() const {
  if (pending_.load(std::memory_order_acquire) != 0) return true;
  const std::lock_guard lock(mutex_);
  return held_ || (current_ && current_->ring().queued() != 0);
}

std::optional<Channel::Next> Channel::next_frame(const Ring& ring) {
  std::shared_ptr<ChannelRing> channel_ring;
  {
    const std::lock_guard lock(mutex_);
    if (src_flushing_ || !items_.empty() || held_ || !current_ || &current_->ring() != &ring) return std::nullopt;
    channel_ring = current_;
  }
  ReadLease lease;
  if (channel_ring->ring().receive(lease, Deadline{}) != RingStatus::ok) return std::nullopt;
  if (pending_.load(std::memory_order_acquire) == 0 && lease.written().signalled()) {
    return frame_of(*channel_ring, std::move(lease));
  }
  const std::lock_guard lock(mutex_);
  if (current_ == channel_ring) held_ = std::move(lease);
  return std::nullopt;
}

Channel::Next Channel::take_next(Deadline deadline) {
  while (true) {
    std::shared_ptr<ChannelRing> channel_ring;
    std::shared_ptr<FarSink> far;
    std::uint64_t nudges = 0;
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
            // The new stream-start is among the delivered events, in its place.
            gst_event_unref(item.event);
            show_again();
            continue;
          }
          return {.kind = Next::Kind::event, .event = item.event, .first_of_sink = item.first_of_sink};
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
      far = far_;
      if (far) nudges = far->nudges();
    }
    bool brought = false;
    if (channel_ring->ring().queued() == 0) {
      begin_to_wait();
      brought = far && far->bring(channel_ring->ring(), nudges, deadline);
    }
    ReadLease lease;
    const RingStatus status = channel_ring->ring().receive(lease, brought ? Deadline{} : deadline);
    if (status == RingStatus::ok) {
      if (pending_.load(std::memory_order_acquire) != 0) {
        const std::lock_guard lock(mutex_);
        // The sink may have stopped and started meanwhile: a frame from before is dropped.
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
