// SPDX-License-Identifier: MIT
#include "gst/channel/outlet.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <shared_mutex>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/printable.hpp"
#include "gpumap/thread_schedule.hpp"
#include "gst/channel/frame_origin.hpp"
#include "gst/channel/meta_text.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/gst_error.hpp"
#include "gst/ptr.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

using namespace std::chrono_literals;

namespace {

/// How often slots that clients gave back are collected while no frame comes.
constexpr auto idle = 10ms;
constexpr auto longest_drain = 5s;
constexpr auto longest_move = 1s;
/// For a client that may miss nothing: as long as a gpumapsrc waits for its producer's next ring.
constexpr auto longest_whole_move = 5s;

guint signal_ids[2];

/// Set in the thread of a server, of which there is one for each ring, while it calls handlers of signals.
thread_local const Outlet* telling = nullptr;

/// Whether both may be one client, at the servers of two rings.
bool is_same(const LinkClient& one, const LinkClient& other) {
  return one.pid == other.pid && one.name == other.name;
}

bool has_ended(pid_t pid) {
  return pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

/// Two clocks are read one after the other: a smaller difference may be the time between the two reads.
constexpr GstClockTimeDiff clock_error = 2 * GST_MSECOND;
/// How often the time is checked while nothing changes: a clock drifts slowly.
constexpr auto between_looks = 10ms;

std::uint32_t key_of(Keeping keeping, std::size_t number = 0) {
  constexpr unsigned bits_of_number = 24;
  return static_cast<std::uint32_t>(keeping) << bits_of_number | static_cast<std::uint32_t>(number);
}
/// Before all that is kept: a flush that clients on their way to the next ring have not heard of.
constexpr std::uint32_t flush_start_key = 1, flush_stop_key = 2;
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

/// The channel calls without a lock. A call that is inside keeps the outlet alive; a late call finds none.
struct Outlet::Door final : FarSrc {
  void hand_on() override {
    const std::shared_lock inside(mutex);
    if (outlet != nullptr) outlet->hand_on();
  }
  bool make_room() override {
    const std::shared_lock inside(mutex);
    const auto server = outlet != nullptr ? outlet->server() : nullptr;
    return server && server->make_room();
  }
  bool end_stall(Deadline since) override {
    const std::shared_lock inside(mutex);
    const auto server = outlet != nullptr ? outlet->server() : nullptr;
    return server && server->end_stall(since);
  }
  std::string who_stalls() override {
    const std::shared_lock inside(mutex);
    return outlet != nullptr ? outlet->who_stalls() : std::string();
  }
  std::shared_mutex mutex;
  Outlet* outlet = nullptr;
};

Outlet::Outlet(GstElement* sink, std::shared_ptr<Channel> channel, OutletSettings settings, std::atomic<guint>& clients)
    : sink_(sink),
      channel_(std::move(channel)),
      settings_(std::move(settings)),
      clients_(clients),
      requests_(
          std::make_unique<UpstreamRequests>(sink_, channel_, settings_.upstream_events, [this] { return server(); })) {
  channel_->set_src_flushing(false);  // the outlet before may have ended within a flush
  channel_->set_src_spin(std::chrono::microseconds(settings_.busy_poll_us));
  open_door();
  try {
    thread_ = start_thread(
        "gpumap-outlet", "what clients are shown", [this] { run(); }, settings_.schedule);
  } catch (...) {
    close_door();
    throw;
  }
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
  channel_->set_far_src(door_);
}

std::string Outlet::who_stalls() {
  const auto server = this->server();
  if (settings_.wait_for_connection && (!server || !server->wait_for_client(Deadline{}))) {
    return "no client is connected, and wait-for-connection holds frames back: start one, or leave that out";
  }
  const auto client = server ? server->who_stalls() : std::nullopt;
  if (!client) return {};
  const char* const leaky = client->leak == LinkLeak::no       ? "no"
                            : client->leak == LinkLeak::oldest ? "oldest"
                                                               : "newest";
  return fmt::format(
      "client \"{}\" (process {}, leaky={}) keeps the oldest frame: let it run on, give its gpumapsrc "
      "leaky=oldest, or set stall-limit here, which disconnects it",
      printable(client->name), client->pid, leaky);
}

void Outlet::close_door() {
  channel_->set_event_handler(nullptr);
  channel_->set_far_src(nullptr);
  const std::lock_guard nobody_inside(door_->mutex);
  door_->outlet = nullptr;
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
  channel_->set_far_src(nullptr);
  wake();
  // Ends: each wait of the thread has a limit, and it looks at stopping_ then.
  thread_.join();
  close_door();
  set_server(nullptr);
  settings_.address.reset();
  requests_.reset();  // the server's thread calls it, and has ended
  tell_of_lost("the gpumapsink stopped");
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

/// The server's number if that is free, else the lowest free one. Under mutex_.
guint Outlet::number_for(const LinkClient& client) const {
  const auto is_free = [this](guint number) {
    const auto has_it = [number](const Told& one) { return one.number == number; };
    return std::none_of(told_.begin(), told_.end(), has_it) && std::none_of(gone_.begin(), gone_.end(), has_it);
  };
  guint number = client.index;
  if (!is_free(number)) {
    for (number = 0; !is_free(number);) ++number;
  }
  return number;
}

void Outlet::tell_of_gone(const Told& one, const char* reason) {
  g_signal_emit(sink_, signal_ids[1], 0, one.number, one.client.pid, one.client.name.c_str(), reason);
}

/// The application counts clients across rings: a client that moves to the next ring does not count as gone.
void Outlet::tell(const LinkClient& client, const std::string& reason) {
  bool news = true;
  Told one{client, 0};
  {
    const std::lock_guard lock(mutex_);
    if (reason.empty()) {
      const auto back =
          std::find_if(gone_.begin(), gone_.end(), [&](const Told& gone) { return is_same(gone.client, client); });
      news = back == gone_.end();
      one.number = news ? number_for(client) : back->number;
      if (!news) gone_.erase(back);
      told_.push_back(one);
      ++clients_;
    } else {
      const auto known = std::find_if(told_.begin(), told_.end(),
                                      [&](const Told& told) { return told.client.connection == client.connection; });
      if (known == told_.end()) return;
      one.number = known->number;
      news = !retiring_;
      if (!news) gone_.push_back(*known);
      told_.erase(known);
      --clients_;
    }
  }
  if (!news) return;
  telling = this;
  if (reason.empty()) {
    g_signal_emit(sink_, signal_ids[0], 0, one.number, client.pid, client.name.c_str());
  } else {
    tell_of_gone(one, reason.c_str());
  }
  telling = nullptr;
}

bool Outlet::runs_here() const noexcept {
  return thread_.get_id() == std::this_thread::get_id() || telling == this || (requests_ && requests_->runs_here());
}

/// Reports the clients that have not connected again. Clients that are `here` have: the server's thread reports them,
/// perhaps later.
void Outlet::tell_of_lost(const char* reason, std::vector<LinkClient> here) {
  std::vector<Told> lost;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(here, [this](const LinkClient& client) {
      return std::any_of(told_.begin(), told_.end(),
                         [&](const Told& told) { return told.client.connection == client.connection; });
    });
    std::erase_if(gone_, [&](const Told& gone) {
      const auto came =
          std::find_if(here.begin(), here.end(), [&](const LinkClient& one) { return is_same(gone.client, one); });
      if (came != here.end()) {
        here.erase(came);
        return false;
      }
      lost.push_back(gone);
      return true;
    });
  }
  for (const Told& one : lost) tell_of_gone(one, reason);
}

void Outlet::run() {
  while (!stopping_) {
    try {
      rest();
      step();
    } catch (const std::exception& error) {
      give_up(error);
    }
    // A flush waits for the lock.
    if (flushing_) std::this_thread::sleep_for(1ms);
  }
}

/// Posts the error, once. Later frames are dropped.
void Outlet::give_up(const std::exception& error) {
  bool news = false;
  {
    const std::lock_guard lock(step_);
    passing_ = false;
    failure_ = nullptr;
    moving_.clear();
    owed_.clear();
    news = !std::exchange(failed_, true);
  }
  if (news) post_error(sink_, error);  // without the lock: the application may flush
  set_server(nullptr);
  settings_.address.reset();  // no client shall wait there
  tell_of_lost("the gpumapsink has failed");
  end();
}

void Outlet::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

/// Until something waits for this thread, or it is time to collect slots.
void Outlet::rest() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, idle, [this] { return woken_; });
  woken_ = false;
}

/// In the thread that put something into the channel: it may hold locks of GStreamer's, and waits for nobody here.
void Outlet::hand_on() {
  bool has_shown = false;
  do {
    const std::unique_lock lock(step_, std::try_to_lock);
    has_shown = lock && !passing_ && !failed_ && !failure_ && show_ready();
    // Where the thread had the lock, it may have looked before this came.
    if (!channel_->has_waiting()) return;
  } while (has_shown);
  wake();
}

/// A frame that nothing goes before, and that no client has to be waited for. False: there is none.
bool Outlet::show_ready() {
  const auto may_show = [this] {
    return server_ && !stopping_ && !flushing_ && moving_.empty() && server_->wait_until_read(Deadline{}) &&
           (!settings_.wait_for_connection || server_->wait_for_client(Deadline{}));
  };
  try {
    auto frame = may_show() ? channel_->next_frame(*ring_) : std::nullopt;
    if (!frame) return false;
    watch_time(Deadline(std::chrono::nanoseconds(frame->lease.info().publish_ns)));
    show(*frame);
    return true;
  } catch (...) {
    failure_ = std::current_exception();
    wake();
    return false;
  }
}

void Outlet::step() {
  std::unique_lock lock(step_);
  if (failure_) std::rethrow_exception(failure_);  // give_up() forgets it: no frame passes before that
  left_.remove_if([](const auto& one) { return one.first.expired(); });
  for (bool any = true; any && !stopping_;) {
    passing_ = true;
    Channel::Next next = channel_->next(Deadline{});
    watch_time(
        Clock::now());  // after next(): a pipeline that was started meanwhile has its time before its first frame
    any = next.kind == Channel::Next::Kind::event || next.kind == Channel::Next::Kind::frame;
    if (next.kind == Channel::Next::Kind::event) forward(next.event, lock);
    if (next.kind == Channel::Next::Kind::frame) forward(next, lock);
    passing_ = false;
  }
  if (ring_ && channel_->src_ring() == nullptr) {
    // Memory is short: the next ring has room once this one is gone here and at the clients.
    if (!retire_by_) retire_by_ = Clock::now() + longest_move;
    const auto clients = server_ ? server_->clients() : std::vector<LinkClient>();
    const bool done = std::none_of(clients.begin(), clients.end(), [](const auto& client) { return client.slots > 0; });
    if (done || Clock::now() >= *retire_by_) retire(lock);
  }
  // A frame collects slots that came back; without a frame an empty show() does.
  if (server_) server_->show({});
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
  if (!last) return;
  // Threads that answer a client, or make room, hold the server for a moment, without waiting. The server must end
  // here: the next one needs its path, and its thread calls this object.
  while (last.use_count() > 1) std::this_thread::sleep_for(50us);
  // No more frames are written to its ring. Frames that are held or queued downstream of a client may stay there for
  // long, and belong to the client. After a failure the ring continues without clients.
  if (!failed_) left_.emplace_back(ring_, last->leave());
  last.reset();
  const std::lock_guard lock(mutex_);
  gone_.insert(gone_.end(), told_.begin(), told_.end());
  told_.clear();
  retiring_ = false;
  clients_ = 0;
}

/// Ends the server of the current ring. Its clients take the frames that are left, and connect to the next one.
void Outlet::retire(std::unique_lock<std::mutex>& lock) {
  std::shared_ptr<LinkServer> last;
  if (server_) {
    auto here = server_->clients();
    std::erase_if(here, [](const LinkClient& client) { return client.ended; });
    // Those that a flush left on their way to this one go to the next.
    std::erase_if(moving_, [&](const LinkClient& one) {
      return std::any_of(here.begin(), here.end(), [&](const LinkClient& two) { return is_same(one, two); });
    });
    moving_.insert(moving_.end(), here.begin(), here.end());
    server_->announce_successor();
  }
  {
    const std::lock_guard swapping(mutex_);
    server_.swap(last);
    retiring_ = last != nullptr;
  }
  // The server's thread may be in a handler of the application's, which flushes.
  lock.unlock();
  end_server(std::move(last));
  lock.lock();
  ring_.reset();
  retire_by_.reset();
}

/// Waits for the clients of the last ring, so that they miss no frame of this one. A client may be gone for good.
void Outlet::wait_for_moving() {
  const Deadline began = Clock::now();
  const auto all_came = [&] {
    auto here = server_->clients();
    return std::all_of(moving_.begin(), moving_.end(), [&](const LinkClient& one) {
      const auto came =
          std::find_if(here.begin(), here.end(), [&](const LinkClient& two) { return is_same(one, two); });
      if (came != here.end()) {
        here.erase(came);
        return true;
      }
      return Clock::now() - began >= (one.leak == LinkLeak::no ? longest_whole_move : longest_move) ||
             has_ended(one.pid);
    });
  };
  while (!stopping_ && !flushing_ && !all_came()) std::this_thread::sleep_for(1ms);
}

void Outlet::serve(const std::shared_ptr<Ring>& ring, std::unique_lock<std::mutex>& lock) {
  retire(lock);
  ring_ = ring;
  LinkServerOptions options;
  options.address = settings_.address;
  options.dropped = settings_.dropped;
  options.stall_limit = settings_.stall_limit;
  options.allowed_users = settings_.allowed_users;
  options.earlier_frames = channel_->frames_before_src_ring();
  options.on_client = [this](const LinkClient& client, const std::string& reason) { tell(client, reason); };
  options.on_question = [this](LinkQuestion& question) { return requests_->take(question); };
  set_server(LinkServer::serve(ring_, std::move(options)));
  for (const auto& [key, text] : kept_) server_->send(text, key);
  await_moving(lock);
}

/// Nothing more is shown before the clients of the last ring have come, or are not waited for any more. A flush ends
/// the wait, and the next frame begins it anew.
void Outlet::await_moving(std::unique_lock<std::mutex>& lock) {
  if (moving_.empty()) return;
  wait_for_moving();
  if (flushing_) return;
  moving_.clear();
  for (const std::uint32_t key : {flush_start_key, flush_stop_key}) forget(key, server_.get());
  for (const LinkText& text : std::exchange(owed_, {})) server_->send(text);
  lock.unlock();  // a handler may flush
  tell_of_lost("it did not come to the next ring", server_->clients());
  lock.lock();
}

// Times, events and frames pass, in their order.

/// Throws for a frame whose rows do not lie in it: a client would read them from elsewhere.
void Outlet::check_layouts(GstBuffer* carrier, std::uint64_t bytes) {
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta_filtered(carrier, &state, GST_VIDEO_META_API_TYPE)) {
    const VideoLayout layout = layout_of(*reinterpret_cast<const GstVideoMeta*>(meta));
    // A meta without planes says nothing about rows.
    if (layout.planes == 0 || (bytes == checked_bytes_ && layout == checked_layout_)) continue;
    if (!fits(layout, bytes)) {
      throw Error(ErrorCode::not_supported,
                  fmt::format("a frame of {} bytes with {} planes of {}x{} {}, the first at byte {} with rows {} bytes "
                              "apart, does not cross to other processes: these rows are not in it; put videoconvert "
                              "before the gpumapsink",
                              bytes, layout.planes, layout.width, layout.height,
                              gst_video_format_to_string(static_cast<GstVideoFormat>(layout.format)), layout.offset[0],
                              layout.stride[0]));
    }
    checked_layout_ = layout;
    checked_bytes_ = bytes;
  }
}

/// Tells clients when the base time changes, or when the clock drifts away from CLOCK_MONOTONIC.
void Outlet::watch_time(Deadline moment) {
  const Channel::SinkTime now = channel_->sink_time();
  if (time_ && time_->playing && now == sink_time_ && moment < next_look_) return;
  sink_time_ = now;
  next_look_ = moment + between_looks;
  if (is_stopping(sink_)) return;  // it will not play again: the times of the last frames stay as they are
  // In this order: a pipeline that begins to play meanwhile has set its clock and its base time before.
  Channel::FarTime time;
  const bool settled = (now.playing && !is_changing_state(sink_)) || is_in_playing(sink_);
  const GstClockTime coming = coming_base_time(sink_);
  time.playing = settled || (GST_CLOCK_TIME_IS_VALID(coming) && coming != ended_base_);
  const Ptr<GstClock> clock(gst_element_get_clock(sink_));
  if (time.playing) {
    time.base = static_cast<GstClockTimeDiff>(settled ? base_time_of(sink_) : coming);
  } else {
    // The running time begins, or continues, when the pipeline plays. Until then that moment is taken to be now.
    const Ptr<GstElement> pipeline(top_level(sink_));
    const GstClockTime stopped = gst_element_get_start_time(pipeline.get());
    if (GST_CLOCK_TIME_IS_VALID(stopped)) time.stopped = static_cast<GstClockTimeDiff>(stopped);
  }
  if (clock && !is_monotonic(clock.get())) {
    time.ahead = static_cast<GstClockTimeDiff>(gst_clock_get_time(clock.get())) - monotonic_ns();
  }
  if (time_ && std::llabs(time_->ahead - time.ahead) < clock_error) time.ahead = time_->ahead;
  if (time_ == time) return;
  time_ = time;
  send(text_of(time), gst::key_of(Keeping::time));
}

/// An event that overtakes the frames. Takes it; called in the thread that sends it.
void Outlet::on_event(GstEvent* event) {
  const Ptr<GstEvent> owned(event);
  if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_STOP) {
    flush(event);
    return;
  }
  if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START) {
    flushing_ = true;
    channel_->set_src_flushing(true);
  }
  const LinkText text = text_of(event);
  if (text.empty()) return;
  const bool flushes = GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START;
  if (GST_EVENT_TYPE(event) == GST_EVENT_CUSTOM_DOWNSTREAM_OOB) give_time_to_read();
  if (const auto server = this->server())
    server->send_at_once(text, flushes ? LinkServer::Unread::send : LinkServer::Unread::skip);
}

/// The thread that sends an event out of band may be the application's. It waits up to 1 s, once. Clients that read
/// nothing, such as paused ones, do not get the event.
void Outlet::give_time_to_read() {
  constexpr auto longest = 1s;
  const Deadline end = gave_time_ ? Deadline{} : Clock::now() + longest;
  do {
    // The server is held briefly, because a change of ring waits for it.
    const auto server = this->server();
    if (!server || server->wait_until_read(std::min<Deadline>(end, Clock::now() + 10ms))) {
      gave_time_ = false;
      return;
    }
  } while (!stopping_ && !flushing_ && Clock::now() < end);
  if (gave_time_.exchange(true)) return;
  GST_WARNING_OBJECT(sink_, "events out of band do not reach clients that have read nothing for 1 s");
}

void Outlet::forget(std::uint32_t key, LinkServer* server) {
  kept_.erase(key);
  if (server != nullptr) server->forget(key);
}

/// The end of a flush: drops frames and events that were under way, here and at the clients.
void Outlet::flush(GstEvent* event) {
  flushing_ = true;
  channel_->set_src_flushing(true);
  const std::lock_guard lock(step_);
  ++flushes_;
  ended_base_ = base_time_of(sink_);
  channel_->forget_held();
  const auto server = this->server();
  // As on a pad, a flush ends the segment and EOS.
  for (const Keeping over : {Keeping::segment, Keeping::end}) forget(gst::key_of(over), server.get());
  owed_.clear();  // older than the flush
  if (server) server->withdraw_all();
  const auto tell = [&](GstEvent* told, std::uint32_t key) {
    const LinkText text = text_of(told);
    if (key != 0) kept_[key] = text;
    if (server) server->send(text, key);
  };
  // Who comes may stand in a preroll, which FLUSH_STOP alone would wait for; to others the beginning says nothing new.
  const bool some_move = !moving_.empty();
  if (some_move) tell(Ptr<GstEvent>(gst_event_new_flush_start()).get(), flush_start_key);
  tell(event, some_move ? flush_stop_key : 0);
  {
    const std::lock_guard ending(mutex_);
    ended_ = false;
  }
  channel_->set_src_flushing(false);
  flushing_ = false;
}

/// Waits, as for a slot, for a client that may miss nothing and reads nothing, such as a paused one. Frames wait for a
/// slot anyway; this is for events without frames, such as endless gaps.
void Outlet::wait_until_read() {
  Deadline began = Clock::now();
  while (!stopping_ && !flushing_ && !server_->wait_until_read(Clock::now() + 100ms)) {
    if (!is_in_playing(sink_)) began = Clock::now();
    const auto limit = settings_.stall_limit;
    if (limit.count() > 0 && Clock::now() - began >= limit) server_->end_unread();
  }
}

void Outlet::send(const LinkText& text, std::uint32_t key) {
  if (key != 0) kept_[key] = text;
  if (server_) {
    if (passing_) wait_until_read();  // the sink's thread has looked, and does not wait
    server_->send(text, key);
  } else if (!moving_.empty() && key == 0) {
    owed_.push_back(text);
  }
}

/// The key under which the event is kept; 0: it is not kept.
std::uint32_t Outlet::key_of(GstEvent* event) {
  const Keeping keeping = keeping_of(event);
  if (keeping != Keeping::tags && keeping != Keeping::custom) return gst::key_of(keeping);
  // As on a pad, the last event of each name holds.
  const std::string name = gst_structure_get_name(gst_event_get_structure(event));
  const auto number = static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
  if (number == names_.size()) names_.push_back(name);
  return gst::key_of(keeping, number);
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

/// A stream may end without a frame, or begin with a gap. The sink has made a ring for it, and clients that wait at the
/// path connect now. False: a flush came in between, and the event is older than it.
bool Outlet::serve_without_frame(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t flushes = flushes_;
  const auto ring = channel_->src_ring();
  if (server_ || failed_ || !ring) return true;
  serve(ring, lock);
  wait_for_client();
  return !flushing_ && flushes == flushes_;
}

void Outlet::wait_for_client() {
  while (settings_.wait_for_connection && !stopping_ && !flushing_ && !server_->wait_for_client(Clock::now() + 100ms)) {
  }
}

void Outlet::forward(GstEvent* event, std::unique_lock<std::mutex>& lock) {
  const Ptr<GstEvent> owned(event);
  if (GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START) forget_last_stream();
  const Keeping keeping = keeping_of(event);
  if (keeping == Keeping::segment)
    forget(gst::key_of(Keeping::end), server_.get());  // of the last segment, which has ended
  const bool needs_clients = (keeping == Keeping::none && crosses(GST_EVENT_TYPE(event))) || keeping == Keeping::end;
  if (needs_clients && !serve_without_frame(lock)) return;
  unsigned left_out = 0;
  const LinkText text = text_of(event, &left_out);
  if (text.empty() && GST_EVENT_TYPE(event) == GST_EVENT_CAPS) {
    throw Error(
        ErrorCode::not_supported,
        fmt::format("caps that cannot be written in {} bytes do not cross to other processes: take large fields "
                    "out of them, or fields that are pointers or objects",
                    max_link_message));
  }
  if (text.empty() || left_out > 0) {
    // Decoders put an object of this process into each stream-start.
    const bool usual = GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START && !text.empty();
    GST_CAT_LEVEL_LOG(GST_CAT_DEFAULT, usual ? GST_LEVEL_INFO : GST_LEVEL_WARNING, sink_,
                      "%s%s does not cross to other processes: %u fields cannot be written in %zu bytes",
                      text.empty() ? "" : "some of ", GST_EVENT_TYPE_NAME(event), left_out, max_link_message);
  }
  if (!text.empty()) send(text, key_of(event));
  if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) end();
}

void Outlet::forward(Channel::Next& frame, std::unique_lock<std::mutex>& lock) {
  if (failed_) return;
  const std::uint64_t flushes = flushes_;
  if (frame.lease.ring() != ring_.get()) serve(channel_->src_ring(), lock);
  await_moving(lock);
  if (flushing_ || flushes != flushes_) return;  // the frame is older than the flush
  wait_for_client();
  if (!flushing_) show(frame);
}

void Outlet::show(Channel::Next& frame) {
  if (frame.carrier) check_layouts(frame.carrier.get(), frame.lease.info().bytes);
  const auto layout = frame.carrier ? layout_of(frame.carrier.get()) : std::nullopt;
  if (layout != layout_) {
    layout_ = layout;
    send(text_of(layout), gst::key_of(Keeping::layout));
  }
  const MetaText metas = frame.carrier ? text_of_metas(frame.carrier.get(), max_link_note) : MetaText();
  if (metas.left_out != 0) {
    GST_DEBUG_OBJECT(
        sink_,
        "%u metas of a frame do not cross, or not all of them: they cannot be written, or take more than %zu bytes",
        metas.left_out, max_link_note);
  }
  server_->show(std::move(frame.lease), metas.text);
}

}  // namespace gpumap::gst
