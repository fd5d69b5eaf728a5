// SPDX-License-Identifier: MIT
#include "channel.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace gpumap::gst {

namespace {

bool is_sticky(GstEvent* event) {  // GST_EVENT_IS_STICKY mixes enumerations, which C++20 frowns on
  return (gst_event_type_get_flags(GST_EVENT_TYPE(event)) & GST_EVENT_TYPE_STICKY) != 0;
}

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
  for (GstEvent* event : delivered_) gst_event_unref(event);
}

void Channel::clear(std::deque<Item>& items) {
  for (Item& item : items) {
    if (item.event != nullptr) gst_event_unref(item.event);
  }
  items.clear();
}

namespace {

bool take_side(GstElement*& side, GstElement* element, std::string& holder) {
  if (side != nullptr) {
    gchar* path = gst_object_get_path_string(GST_OBJECT(side));
    holder = path;
    g_free(path);
    return false;
  }
  side = element;
  return true;
}

}  // namespace

bool Channel::attach_sink(GstElement* sink, std::string& holder) {
  std::shared_ptr<Channel> kept;
  {
    const std::lock_guard lock(mutex_);
    if (!take_side(sink_, sink, holder)) return false;
    kept.swap(kept_);
  }
  if (kept) drop_all(false);
  return true;
}

void Channel::detach_sink(bool drained) {
  if (!drained) drop_all(false);
  const std::lock_guard lock(mutex_);
  sink_ = nullptr;
  // A src that began to take this stream and left had its chance: the next one may have nothing to do with it.
  const bool untouched = src_ == nullptr && !current_ && delivered_.empty();
  if (untouched && !items_.empty()) kept_ = shared_from_this();
}

bool Channel::attach_src(GstElement* src, FlushHandler on_flush, std::string& holder) {
  const std::lock_guard lock(mutex_);
  if (!take_side(src_, src, holder)) return false;
  kept_.reset();  // from here on the src holds it
  on_flush_ = std::move(on_flush);
  src_flushing_ = false;
  interrupted_ = false;
  if (current_) current_->ring().set_consumer_flushing(false);
  flow_ = GST_FLOW_OK;
  // Whatever an earlier src took of the stream's state comes first again, unless that stream is over.
  std::deque<Item> again;
  for (GstEvent* event : delivered_) {
    if (ended_) {
      gst_event_unref(event);
    } else {
      again.push_back({0, event, nullptr});
    }
  }
  delivered_.clear();
  items_.insert(items_.begin(), again.begin(), again.end());
  pending_ = items_.size();
  return true;
}

void Channel::detach_src() {
  const std::lock_guard lock(mutex_);
  src_ = nullptr;
  on_flush_ = nullptr;
  held_ = {};
  flow_ = GST_FLOW_OK;
}

void Channel::set_downstream_flow(GstFlowReturn flow) noexcept {
  flow_.store(flow, std::memory_order_relaxed);
  if (flow == GST_FLOW_OK) return;
  // A sink that waits for a slot would wait for ever: no one takes frames any more.
  const std::lock_guard lock(mutex_);
  if (current_) current_->ring().drop_queued();
}

void Channel::set_sink_playing(bool playing) noexcept {
  sink_playing_.store(playing, std::memory_order_release);
  plays_.fetch_add(1, std::memory_order_release);
}

void Channel::set_src_playing(bool playing) noexcept {
  src_playing_.store(playing, std::memory_order_release);
  plays_.fetch_add(1, std::memory_order_release);
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
    if (item.event == nullptr) newest_ = item.lane;
    items_.push_back(std::move(item));
    pending_ = items_.size();
    if (current_) current_->ring().nudge_consumer();
  }
  arrived_.notify_all();
}

void Channel::push_lane(const std::shared_ptr<Lane>& lane) {
  add({0, nullptr, lane});
}

void Channel::retire_lane() {
  add({0, nullptr, nullptr});
}

void Channel::push_event(GstEvent* event) {
  add({0, event, nullptr});
}

void Channel::drop_all(bool keep_sticky) {
  const std::lock_guard lock(mutex_);
  ended_ = false;
  if (current_) current_->ring().drop_queued();
  held_ = {};
  std::deque<Item> kept;
  for (Item& item : items_) {
    if (item.event == nullptr) {
      if (item.lane) item.lane->ring().drop_queued();
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
  if (keep_sticky) return;
  // The stream is over: let its memory go, and do not show its state to the next one's src.
  for (GstEvent* event : delivered_) gst_event_unref(event);
  delivered_.clear();
  items_.clear();
  pending_ = 0;
  if (current_) current_->ring().nudge_consumer();
  current_.reset();
  newest_.reset();
}

void Channel::flush(GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_STOP) drop_all(true);
  FlushHandler handler;
  GstElement* src = nullptr;
  {
    const std::lock_guard lock(mutex_);
    handler = on_flush_;
    if (src_ != nullptr) src = GST_ELEMENT(gst_object_ref(src_));
  }
  if (handler) {
    handler(event);
  } else {
    gst_event_unref(event);
  }
  if (src != nullptr) gst_object_unref(src);
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

void Channel::remember(GstEvent* event) {
  if (!is_sticky(event)) return;
  const GstEventType type = GST_EVENT_TYPE(event);
  ended_ = type == GST_EVENT_EOS;
  if (ended_) return;
  if (type == GST_EVENT_STREAM_START) {
    for (GstEvent* old : delivered_) gst_event_unref(old);
    delivered_.clear();
  }
  const bool many = (static_cast<unsigned>(type) & GST_EVENT_TYPE_STICKY_MULTI) != 0;
  const auto old = std::find_if(delivered_.begin(), delivered_.end(), [&](GstEvent* other) {
    return GST_EVENT_TYPE(other) == type &&
           (!many || gst_event_has_name(event, gst_structure_get_name(gst_event_get_structure(other))));
  });
  if (old != delivered_.end()) {
    gst_event_replace(&*old, event);
  } else {
    delivered_.push_back(gst_event_ref(event));
  }
}

Channel::Next Channel::next(Deadline deadline) {
  while (true) {
    std::shared_ptr<Lane> lane;
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
            current_ = std::move(item.lane);
            if (current_) current_->ring().set_spin(src_spin_);
            continue;
          }
          remember(item.event);
          return {.kind = Next::Kind::event, .event = item.event};
        }
      }
      if (held_) {
        const std::uint64_t sequence = current_->sequence(held_);
        Next frame{.kind = Next::Kind::frame, .lease = std::move(held_), .sequence = sequence};
        frame.carrier.reset(current_->take(frame.lease.slot()));
        frame.trace = current_->follow(frame.lease);
        return frame;
      }
      if (!current_) {
        const auto ready = [&] { return src_flushing_ || interrupted_ || !items_.empty(); };
        if (deadline == no_deadline) {
          arrived_.wait(lock, ready);
        } else if (!arrived_.wait_until(lock, deadline, ready)) {
          return {};
        }
        continue;
      }
      lane = current_;
    }

    ReadLease lease;
    const RingStatus status = lane->ring().receive(lease, deadline);
    if (status == RingStatus::ok) {
      if (pending_.load(std::memory_order_acquire) != 0) {
        const std::lock_guard lock(mutex_);
        // Meanwhile the sink may have stopped and begun anew: what it cut off is dropped.
        if (current_ == lane) held_ = std::move(lease);
        continue;
      }
      BufferPtr carrier(lane->take(lease.slot()));
      const std::uint64_t sequence = lane->sequence(lease);
      auto trace = lane->follow(lease);
      return {.kind = Next::Kind::frame,
              .lease = std::move(lease),
              .sequence = sequence,
              .carrier = std::move(carrier),
              .trace = std::move(trace)};
    }
    if (status == RingStatus::flushing) return {.kind = Next::Kind::flushing};
    if (pending_.load(std::memory_order_acquire) != 0) continue;
    if (status != RingStatus::closed && Clock::now() < deadline) continue;  // a nudge
    return {};
  }
}

}  // namespace gpumap::gst
