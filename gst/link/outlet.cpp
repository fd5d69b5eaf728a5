// SPDX-License-Identifier: MIT
#include "gst/link/outlet.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <shared_mutex>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/latency.hpp"
#include "gst/channel/frame_origin.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/error.hpp"
#include "gst/link/meta_text.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

using namespace std::chrono_literals;

namespace {

/// What clients gave back is looked for this often while no frame comes.
constexpr auto idle = 10ms;
constexpr auto longest_drain = 5s;
constexpr auto longest_move = 1s;
/// Two clocks are read one after the other: a difference below this may be the time in between.
constexpr GstClockTimeDiff clock_error = 2 * GST_MSECOND;
/// While nothing changes: a clock drifts slowly.
constexpr auto between_looks = 10ms;

guint signal_ids[2];

std::uint32_t key_of(Keeping keeping, std::size_t number = 0) {
  constexpr unsigned bits_of_number = 24;
  return static_cast<std::uint32_t>(keeping) << bits_of_number | static_cast<std::uint32_t>(number);
}
Keeping keeping_of_key(std::uint32_t key) {
  return static_cast<Keeping>(key >> 24U);
}

}  // namespace

void install_outlet_signals(GObjectClass* klass) {
  signal_ids[0] = g_signal_new("client-connected", G_TYPE_FROM_CLASS(klass), G_SIGNAL_RUN_LAST, 0, nullptr, nullptr,
                               nullptr, G_TYPE_NONE, 3, G_TYPE_UINT, G_TYPE_INT, G_TYPE_STRING);
  signal_ids[1] = g_signal_new("client-disconnected", G_TYPE_FROM_CLASS(klass), G_SIGNAL_RUN_LAST, 0, nullptr, nullptr,
                               nullptr, G_TYPE_NONE, 4, G_TYPE_UINT, G_TYPE_INT, G_TYPE_STRING, G_TYPE_STRING);
}

/// The channel calls without a lock: who is inside keeps the outlet, and who comes late finds none.
struct Outlet::Door {
  std::shared_mutex mutex;
  Outlet* outlet = nullptr;
};

Outlet::Outlet(GstElement* sink, std::shared_ptr<Channel> channel, OutletSettings settings, std::atomic<guint>& clients)
    : sink_(sink),
      channel_(std::move(channel)),
      settings_(std::move(settings)),
      clients_(clients),
      desk_(std::make_unique<UpstreamDesk>(sink_, channel_, settings_.upstream_events, [this] { return server(); })) {
  channel_->set_src_flushing(false);  // the one before may have ended within a flush
  open_door();
  thread_ = std::thread([this] { run(); });
}

void Outlet::open_door() {
  door_ = std::make_shared<Door>();
  door_->outlet = this;
  channel_->set_event_handler([door = door_](GstEvent* event) {
    const std::shared_lock inside(door->mutex);
    if (door->outlet != nullptr) {
      door->outlet->on_event(event);
    } else {
      gst_event_unref(event);
    }
  });
  channel_->set_room_maker([door = door_] {
    const std::shared_lock inside(door->mutex);
    const auto server = door->outlet != nullptr ? door->outlet->server() : nullptr;
    return server && server->make_room();
  });
}

Outlet::~Outlet() {
  stop(false);
}

void Outlet::stop(bool drained) {
  if (!thread_.joinable()) return;
  if (drained) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, longest_drain, [this] { return ended_; });
  }
  stopping_ = true;
  channel_->set_event_handler(nullptr);
  channel_->set_room_maker(nullptr);
  thread_.join();
  {
    const std::lock_guard nobody_inside(door_->mutex);
    door_->outlet = nullptr;
  }
  set_server(nullptr);
  desk_.reset();  // which the server's thread calls
  clients_ = 0;
}

bool Outlet::holds_back_end() {
  const std::lock_guard lock(mutex_);
  return settings_.wait_for_connection && !ended_;
}

void Outlet::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void Outlet::tell(const LinkClient& client, const std::string& reason) {
  if (reason.empty()) {
    ++clients_;
    g_signal_emit(sink_, signal_ids[0], 0, client.index, client.pid, client.name.c_str());
  } else {
    --clients_;
    g_signal_emit(sink_, signal_ids[1], 0, client.index, client.pid, client.name.c_str(), reason.c_str());
  }
}

void Outlet::run() {
  while (!stopping_) {
    try {
      step();
    } catch (const std::exception& error) {
      // Once: what follows is dropped, and the pipeline is told to stop.
      if (!std::exchange(failed_, true)) post_error(sink_, error);
      set_server(nullptr);
      end();
    }
    // A flush waits for the lock.
    if (flushing_) std::this_thread::sleep_for(1ms);
  }
}

void Outlet::step() {
  std::unique_lock lock(step_);
  watch_time();
  Channel::Next next = channel_->next(Clock::now() + idle);
  if (next.kind == Channel::Next::Kind::event) {
    forward(next.event);
  } else if (next.kind == Channel::Next::Kind::frame) {
    forward(next, lock);
  }
  if (!server_) return;
  server_->show({});
}

/// Clients are told when the base time changes, or the clock drifts away from the one that all processes have.
void Outlet::watch_time() {
  const Channel::SinkTime now = channel_->sink_time();
  const Deadline moment = Clock::now();
  if (time_ && time_->playing && now == sink_time_ && moment < next_look_) return;
  sink_time_ = now;
  next_look_ = moment + between_looks;
  GstClock* clock = gst_element_get_clock(sink_);
  if (clock == nullptr) return;  // it has never played
  if (is_stopping(sink_)) {      // and will do so no more: what is left is due when it always was
    gst_object_unref(clock);
    return;
  }
  Channel::FarTime time;
  time.playing = (now.playing && !is_changing_state(sink_)) || is_in_playing(sink_);
  if (time.playing) {
    time.base = static_cast<GstClockTimeDiff>(now.base);
  } else {
    GstElement* pipeline = top_level(sink_);
    const GstClockTime stopped = gst_element_get_start_time(pipeline);
    gst_object_unref(pipeline);
    if (GST_CLOCK_TIME_IS_VALID(stopped)) time.stopped = static_cast<GstClockTimeDiff>(stopped);
  }
  if (!is_monotonic(clock)) time.ahead = static_cast<GstClockTimeDiff>(gst_clock_get_time(clock)) - monotonic_ns();
  gst_object_unref(clock);
  if (time_ && std::llabs(time_->ahead - time.ahead) < clock_error) time.ahead = time_->ahead;
  if (time_ == time) return;
  time_ = time;
  send(text_of(time), gst::key_of(Keeping::time));
}

std::shared_ptr<LinkServer> Outlet::server() {
  const std::lock_guard lock(mutex_);
  return server_;
}

void Outlet::set_server(std::shared_ptr<LinkServer> server) {
  {
    const std::lock_guard lock(mutex_);
    server_.swap(server);
  }
  end_server(std::move(server));
}

void Outlet::end_server(std::shared_ptr<LinkServer> last) {
  // Who answers a client, or makes room, holds it for a moment, in which it waits for nobody. It is to end here: the
  // next one needs its path, and it calls this.
  while (last.use_count() > 1) std::this_thread::sleep_for(50us);
}

/// What overtakes the frames. Takes it; in the thread that sends it.
void Outlet::on_event(GstEvent* event) {
  const std::unique_ptr<GstEvent, decltype(&gst_event_unref)> owned(event, gst_event_unref);
  if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_STOP) {
    flush(event);
    return;
  }
  if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START) {
    flushing_ = true;
    channel_->set_src_flushing(true);
  }
  const LinkText text = text_of(event);
  const auto server = this->server();
  if (server && !text.empty() && text.size() <= max_link_message) server->send_at_once(text);
}

/// The end of a flush: what was on its way is gone, here and at the clients.
void Outlet::flush(GstEvent* event) {
  flushing_ = true;
  channel_->set_src_flushing(true);
  const std::lock_guard lock(step_);
  ++flushes_;
  channel_->forget_held();
  if (const auto server = this->server()) {
    server->withdraw_all();
    server->send(text_of(event));
  }
  {
    const std::lock_guard ending(mutex_);
    ended_ = false;
  }
  channel_->set_src_flushing(false);
  flushing_ = false;
}

void Outlet::send(const LinkText& text, std::uint32_t key) {
  if (key != 0) kept_[key] = text;
  if (server_) server_->send(text, key);
}

/// 0: it is not kept.
std::uint32_t Outlet::key_of(GstEvent* event) {
  const Keeping keeping = keeping_of(event);
  if (keeping != Keeping::tags && keeping != Keeping::custom) return gst::key_of(keeping);
  // One of each name holds, as on a pad.
  const std::string name = gst_structure_get_name(gst_event_get_structure(event));
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) names_.push_back(name);
  return gst::key_of(keeping, static_cast<std::size_t>(found - names_.begin()));
}

void Outlet::forget_last_stream() {
  for (auto at = kept_.begin(); at != kept_.end();) {
    if (outlives_stream(keeping_of_key(at->first))) {
      ++at;
      continue;
    }
    if (server_) server_->forget(at->first);
    at = kept_.erase(at);
  }
  names_.clear();
}

void Outlet::forward(GstEvent* event) {
  const std::unique_ptr<GstEvent, decltype(&gst_event_unref)> owned(event, gst_event_unref);
  if (GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START) forget_last_stream();
  const LinkText text = text_of(event);
  if (text.empty() || text.size() > max_link_message) {
    GST_WARNING_OBJECT(sink_, "%s does not cross to other processes: %s", GST_EVENT_TYPE_NAME(event),
                       text.empty() ? "it cannot be written as text" : "it is too long");
  } else {
    send(text, key_of(event));
  }
  if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) end();
}

void Outlet::forward(Channel::Next& frame, std::unique_lock<std::mutex>& lock) {
  if (failed_) return;
  const std::uint64_t flushes = flushes_;
  if (frame.lease.ring() != ring_.get()) serve(channel_->src_ring(), lock);
  if (flushing_ || flushes != flushes_) return;  // it is from before
  const auto layout = frame.carrier ? layout_of(frame.carrier.get()) : std::nullopt;
  if (layout != layout_) {
    layout_ = layout;
    send(text_of(layout), gst::key_of(Keeping::layout));
  }
  const MetaText metas = frame.carrier ? text_of_metas(frame.carrier.get(), max_link_note) : MetaText();
  if (metas.left_out != 0) {
    GST_DEBUG_OBJECT(sink_, "%u metas of a frame do not cross: they cannot be written, or take more than %zu bytes",
                     metas.left_out, max_link_note);
  }
  while (settings_.wait_for_connection && !stopping_ && !flushing_ && !server_->wait_for_client(Clock::now() + 100ms)) {
  }
  if (!flushing_) server_->show(std::move(frame.lease), metas.text);
}

void Outlet::serve(const std::shared_ptr<Ring>& ring, std::unique_lock<std::mutex>& lock) {
  const std::size_t before = server_ ? server_->clients().size() : 0;
  if (server_) server_->announce_successor();
  std::shared_ptr<LinkServer> last;
  {
    const std::lock_guard swapping(mutex_);
    server_.swap(last);
  }
  // Its clients finish what they have, and come again. Its thread may be in a handler of the application's, which
  // flushes.
  lock.unlock();
  end_server(std::move(last));
  lock.lock();
  clients_ = 0;
  ring_ = ring;
  LinkServerOptions options;
  options.path = settings_.path;
  options.dropped = settings_.dropped;
  options.on_client = [this](const LinkClient& client, const std::string& reason) { tell(client, reason); };
  options.on_question = [this](LinkQuestion question) { desk_->take(std::move(question)); };
  set_server(LinkServer::serve(ring_, std::move(options)));
  for (const auto& [key, text] : kept_) server_->send(text, key);
  // So that they miss nothing. One may have gone for good.
  const Deadline end = Clock::now() + longest_move;
  while (server_->clients().size() < before && !stopping_ && !flushing_ && Clock::now() < end) {
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace gpumap::gst
