// SPDX-License-Identifier: MIT
#include "gst/channel/channel.hpp"

#include <gst/base/gstbasesink.h>

#include <algorithm>
#include <map>
#include <utility>

#include "gst/channel/pipeline_state.hpp"
#include "gst/ptr.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

namespace gpumap::gst {

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
  // Under the lock: the sink's side, which sees the flow at once, may begin another stream, which takes the lock to
  // reset it, and whose frames are not to be dropped.
  const std::lock_guard lock(mutex_);
  // The src leaves out what is left of this stream by itself: the next one waits behind it already.
  if (of_this_stream &&
      std::any_of(items_.begin(), items_.end(), [](const Item& item) { return begins_stream(item.event); })) {
    return;
  }
  enough_ = of_this_stream;
  flow_.store(flow, std::memory_order_relaxed);
  // The element that is linked next gets the frames that wait here, as behind a queue.
  if (flow == GST_FLOW_OK || flow == GST_FLOW_NOT_LINKED) return;
  // A sink that waits for a slot would wait for ever: no one takes frames any more. Behind the flow, so that none
  // begins to wait after this.
  if (current_) current_->ring().drop_queued();
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
    return {nullptr, static_cast<GstClockTime>(far_time_->base - far_time_->ahead), far_time_->playing};
  }
  if (sink_ == nullptr) return {};
  GST_OBJECT_LOCK(sink_);
  const GstClockTime base = sink_->base_time;
  GST_OBJECT_UNLOCK(sink_);
  return {sink_, base, sink_playing()};
}

void Channel::set_far_time(const std::optional<FarTime>& time) {
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

void Channel::set_far_slots(FarSlots far) {
  const std::lock_guard lock(mutex_);
  far_slots_ = std::move(far);
}

bool Channel::make_room() const {
  std::function<bool()> make_room;
  {
    const std::lock_guard lock(mutex_);
    make_room = far_slots_.make_room;
  }
  return make_room && make_room();
}

bool Channel::end_stall(Deadline since) const {
  std::function<bool(Deadline)> end_stall;
  {
    const std::lock_guard lock(mutex_);
    end_stall = far_slots_.end_stall;
  }
  return end_stall && end_stall(since);
}

bool Channel::send_upstream(GstEvent* event, const std::function<bool(GstEvent*)>& push) {
  const Ptr<GstElement> sink(GST_EVENT_TYPE(event) == GST_EVENT_SEEK ? this->sink() : nullptr);
  if (!sink) return push(event);
  {
    const std::lock_guard lock(mutex_);
    ++seeks_;
  }
  // Stopped, a source would refuse the seek.
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

}  // namespace gpumap::gst
