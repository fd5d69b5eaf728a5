// SPDX-License-Identifier: MIT
// What waits in a channel: events and changes of ring among the frames, in their order, from the sink's side in and to
// the src's side out.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "gst/channel/channel.hpp"

namespace gpumap::gst {

namespace {

/// So many events between two frames, and gaps become one; so many, and upstream waits. A full ring holds frames back,
/// but events without frames (GAP, tags of a stream that no one takes) would grow without end.
constexpr std::size_t many_events = 64;
constexpr std::size_t max_events = 4096;

using Names = std::set<std::pair<GstEventType, std::string>>;

/// As on a pad, of tags and of an application's sticky events the last one of each name holds in a stream. `later`:
/// those behind `event` in its stream.
bool is_superseded(GstEvent* event, Names& later) {
  if (event == nullptr) return false;
  const GstEventType type = GST_EVENT_TYPE(event);
  if (type == GST_EVENT_STREAM_START) later.clear();
  if (type != GST_EVENT_TAG && type != GST_EVENT_CUSTOM_DOWNSTREAM_STICKY) return false;
  const GstStructure* const structure = gst_event_get_structure(event);
  return !later.emplace(type, structure != nullptr ? gst_structure_get_name(structure) : "").second;
}

}  // namespace

/// Downstream may want what comes now, whatever it had enough of.
bool Channel::begins_stream(const GstEvent* event) {
  return event != nullptr &&
         (GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START || GST_EVENT_TYPE(event) == GST_EVENT_SEGMENT);
}

void Channel::add(Item item) {
  {
    const std::lock_guard lock(mutex_);
    // In one go with the event: said in between, "enough" of the last stream would hold for this one.
    if (begins_stream(item.event) && enough_.exchange(false)) flow_.store(GST_FLOW_OK, std::memory_order_relaxed);
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

std::size_t Channel::rings_waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(items_.begin(), items_.end(), [](const Item& item) { return item.channel_ring != nullptr; }));
}

void Channel::retire_ring() {
  add({0, nullptr, nullptr});
}

bool Channel::push_event(GstEvent* event) {
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
  drop_superseded(kept);
  items_ = std::move(kept);
  pending_ = items_.size();
  if (keep_sticky) {
    delivered_.flush();
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
