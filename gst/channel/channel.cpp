// SPDX-License-Identifier: MIT
#include "gst/channel/channel.hpp"

#include <gst/base/gstbasesink.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "gst/channel/ends.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/ptr.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

namespace gpumap::gst {

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
    told_latency_.reset();
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
  told_latency_.reset();
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

void Channel::tell_latency(Latency latency) {
  latency.least += latency_;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(told_latency_, latency) == latency) return;
  }
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

}  // namespace gpumap::gst
