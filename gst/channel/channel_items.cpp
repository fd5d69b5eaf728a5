// SPDX-License-Identifier: MIT
#include "gst/channel/channel.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "gst/channel/pipeline_state.hpp"

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
