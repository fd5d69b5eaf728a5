// SPDX-License-Identifier: MIT
#include "gst/channel/outlet.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <shared_mutex>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/printable.hpp"
#include "gst/channel/flushes.hpp"
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

/// How often the time is looked at, and what waits for clients, while no frame comes.
constexpr auto idle = 10ms;
constexpr auto longest_drain = 5s;
/// How long clients have to be done with a ring that must go before the next one has room, and those that may miss
/// frames to come to a ring before another one follows.
constexpr auto longest_move = 1s;

guint signal_ids[2];

/// Whose server this thread is, while it calls the outlet.
thread_local const Outlet* served_here = nullptr;

/// Two clocks are read one after the other: a smaller difference may be the time between the two reads.
constexpr GstClockTimeDiff clock_error = 2 * GST_MSECOND;
/// How often the time is checked while nothing changes: a clock drifts slowly.
constexpr auto between_looks = 10ms;

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
    auto server = LinkServer::serve(server_options());
    const std::scoped_lock lock(step_, mutex_);
    server_ = std::move(server);
  } catch (...) {
    close_door();
    throw;
  }
  wake();
}

LinkServerOptions Outlet::server_options() {
  LinkServerOptions options;
  options.address = std::move(settings_.address);
  options.dropped = settings_.dropped;
  options.stall_limit = settings_.stall_limit;
  options.allowed_users = settings_.allowed_users;
  options.schedule = &settings_.schedule;
  const auto as_own = [this](const auto& call) {
    served_here = this;
    call();
    served_here = nullptr;
  };
  options.on_client = [this, as_own](const LinkClient& client, const std::string& reason) {
    as_own([&] { tell(client, reason); });
  };
  options.on_question = [this](LinkQuestion& question) { return requests_->take(question); };
  options.on_turn = [this, as_own] { as_own([this] { take_turn(); }); };
  options.turn = idle;
  return options;
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
  if (!server()) return;
  bool loses_end = false;
  if (drained) {
    const Deadline end = Clock::now() + longest_drain;
    std::unique_lock lock(mutex_);
    while (!has_ended() && Clock::now() < end) changed_.wait_for(lock, idle);
    loses_end = !has_ended();
  }
  if (loses_end) tell_of_lost_end();
  stopping_ = true;
  close_door();
  std::shared_ptr<LinkServer> last;
  bool failed = false;
  {
    const std::scoped_lock lock(step_, mutex_);
    last.swap(server_);
    forget_waiting();
    failed = failed_;
  }
  // Threads that answer a client hold the server for a moment, without waiting. It must end here: its thread calls this
  // object.
  forget_flush(last);
  while (last.use_count() > 1) std::this_thread::sleep_for(50us);
  // No more frames are written to its ring. Frames that are held or queued downstream of a client may stay there for
  // long, and belong to the client. After a failure the ring continues without clients.
  std::vector<ReadLease> theirs;
  if (!failed) theirs = last->leave();
  last.reset();
  requests_.reset();  // the server's thread calls it, and has ended
  tell_of_all("the gpumapsink stopped");
}

void Outlet::tell_of_lost_end() {
  const std::string who = who_stalls();
  post_warning(sink_,
               Error(ErrorCode::busy,
                     fmt::format("gpumapsink stops although the end of its stream, and what may go before it, has not "
                                 "gone out for {} s: {}",
                                 longest_drain.count(), who.empty() ? "a client takes nothing" : who)));
}

bool Outlet::holds_back_end() {
  const std::lock_guard lock(mutex_);
  return settings_.wait_for_connection && !has_ended();
}

/// Where a stream follows one that has ended, its end waits behind its beginning.
bool Outlet::has_ended() const {
  return ended_ && !channel_->has_waiting();
}

void Outlet::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void Outlet::tell_of_gone(const LinkClient& client, const char* reason) {
  g_signal_emit(sink_, signal_ids[1], 0, client.index, client.pid, client.name.c_str(), reason);
}

void Outlet::tell(const LinkClient& client, const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    const auto known =
        std::find_if(told_.begin(), told_.end(), [&](const auto& one) { return one.connection == client.connection; });
    if (reason.empty()) {
      told_.push_back(client);
    } else if (known != told_.end()) {
      told_.erase(known);
    } else {
      return;  // tell_of_all() was earlier
    }
    clients_ = static_cast<guint>(told_.size());
  }
  if (reason.empty()) {
    g_signal_emit(sink_, signal_ids[0], 0, client.index, client.pid, client.name.c_str());
  } else {
    tell_of_gone(client, reason.c_str());
  }
}

/// Clients that are connected are gone for the application.
void Outlet::tell_of_all(const char* reason) {
  std::vector<LinkClient> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(told_);
    clients_ = 0;
  }
  for (const LinkClient& one : all) tell_of_gone(one, reason);
}

bool Outlet::runs_here() const noexcept {
  return served_here == this || (requests_ && requests_->runs_here());
}

/// In the server's thread.
void Outlet::take_turn() {
  try {
    step();
  } catch (const std::exception& error) {
    give_up(error);
  }
  tell_if_starved();
}

void Outlet::tell_if_starved() {
  const auto server = told_starved_ ? nullptr : this->server();
  if (!server || server->counters().starved == 0) return;
  told_starved_ = true;
  post_warning(sink_, FiguredError(Error(ErrorCode::no_resources,
                                         fmt::format("a client waits at socket-path {}: this process has no descriptor "
                                                     "left to let it in",
                                                     printable(server->path())),
                                         "raise its limit on open files (ulimit -n), or close some"),
                                   {{"socket-path", server->path()}}));
}

/// Posts the error, once. Later frames are dropped.
void Outlet::give_up(const std::exception& error) {
  {
    const std::lock_guard lock(step_);
    failure_ = nullptr;
    forget_waiting();
    if (std::exchange(failed_, true)) return;
  }
  post_error(sink_, error);  // without the lock: the application may flush
  if (const auto server = this->server()) server->close();
  tell_of_all("the gpumapsink has failed");
  end();
}

void Outlet::wake() {
  if (const auto server = this->server()) server->wake();
}

/// In the thread that put something into the channel: it may hold locks of GStreamer's, and waits for nobody here.
void Outlet::hand_on() {
  bool has_shown = false;
  do {
    const std::unique_lock lock(step_, std::try_to_lock);
    has_shown = lock && !failed_ && !failure_ && show_ready();
    // Where the server's thread had the lock, it may have looked before this came.
    if (!channel_->has_waiting()) return;
  } while (has_shown);
  wake();
}

/// A frame that nothing goes before, and that no client has to be waited for. False: there is none.
bool Outlet::show_ready() {
  const auto may_show = [this] {
    return server_ && ring_ && !has_waiting() && !stopping_ && !flushing_ && may_pass(Needs::client);
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

bool Outlet::has_waiting() const noexcept {
  return frame_.has_value() || event_;
}

void Outlet::forget_waiting() {
  frame_.reset();
  event_.reset();
  follow_by_.reset();
}

void Outlet::step() {
  const std::lock_guard lock(step_);
  if (!server_ || stopping_) return;
  if (failure_) std::rethrow_exception(failure_);  // give_up() forgets it: no frame passes before that
  while (!stopping_ && !flushing_) {
    if (!has_waiting()) {
      Channel::Next next = channel_->next(Deadline{});
      if (next.kind == Channel::Next::Kind::event) event_.reset(next.event);
      if (next.kind == Channel::Next::Kind::frame) frame_ = std::move(next);
    }
    // After next(): a pipeline that was started meanwhile has its time before its first frame.
    watch_time(Clock::now());
    if (!has_waiting() || !pass_waiting()) break;
    forget_waiting();
  }
  if (failed_) return;
  if (ring_ && channel_->src_ring() == nullptr) {
    // Memory is short: the next ring has room once this one is gone here and at the clients.
    if (!retire_by_) retire_by_ = Clock::now() + longest_move;
    const auto clients = server_->clients();
    const bool done = std::none_of(clients.begin(), clients.end(), [](const auto& client) { return client.slots > 0; });
    if (done || Clock::now() >= *retire_by_) serve(nullptr);
  }
}

std::shared_ptr<LinkServer> Outlet::server() {
  const std::lock_guard lock(mutex_);
  return server_;
}

void Outlet::serve(std::shared_ptr<Ring> ring) {
  retire_by_.reset();
  ring_ = std::move(ring);
  server_->change(ring_, channel_->frames_before_src_ring());
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
  if (time_ && (time_->playing || time_->clockless) && now == sink_time_ && moment < next_look_) return;
  sink_time_ = now;
  next_look_ = moment + between_looks;
  if (is_stopping(sink_)) return;  // it will not play again: the times of the last frames stay as they are
  // In this order: a pipeline that begins to play meanwhile has set its clock and its base time before.
  Channel::FarTime time;
  const bool changes = is_changing_state(sink_);
  const bool plays = is_in_playing(sink_);
  const GstClockTime coming = coming_base_time(sink_);
  // A flush that does not reset the time takes sinks out of PLAYING as well, but the base time holds.
  const GstClockTime base = base_time_of(sink_);
  const bool settled = plays || (now.playing && (!changes || base != ended_base_));
  time.playing = settled || (GST_CLOCK_TIME_IS_VALID(coming) && coming != ended_base_);
  const Ptr<GstClock> clock(gst_element_get_clock(sink_));
  time.clockless = time.playing && !clock;
  time.playing = time.playing && clock;
  if (time.playing) {
    time.base = static_cast<GstClockTimeDiff>(settled ? base : coming);
  } else if (!time.clockless) {
    // The running time begins, or continues, when the pipeline plays. Until then that moment is taken to be now.
    const Ptr<GstElement> pipeline(top_level(sink_));
    const GstClockTime stopped = gst_element_get_start_time(pipeline.get());
    if (GST_CLOCK_TIME_IS_VALID(stopped)) time.stopped = static_cast<GstClockTimeDiff>(stopped);
  }
  // A clock of audio stands still in a pause, and would be another time away at each look.
  if (time.playing && !is_monotonic(clock.get())) {
    time.ahead = static_cast<GstClockTimeDiff>(gst_clock_get_time(clock.get())) - monotonic_ns();
  }
  if (time_ && std::llabs(time_->ahead - time.ahead) < clock_error) time.ahead = time_->ahead;
  if (time_ == time) return;
  time_ = time;
  send(text_of(time), gst::key_of(Keeping::time), LinkServer::Unread::replace);  // a client may be paused for hours
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
  if (GST_EVENT_TYPE(event) == GST_EVENT_INSTANT_RATE_CHANGE) {
    // It overtakes what waits here.
    const std::lock_guard lock(step_);
    const LinkText text = text_of(event);
    if (server_ && !failed_ && !text.empty()) send(text, gst::key_of(Keeping::rate));
    return;
  }
  const LinkText text = text_of(event);
  if (text.empty()) return;
  const bool flushes = GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START;
  if (is_out_of_band(GST_EVENT_TYPE(event))) give_time_to_read();
  if (const auto server = this->server())
    server->send_at_once(text, flushes ? LinkServer::Unread::send : LinkServer::Unread::skip);
}

/// The thread that sends an event out of band may be the application's. It waits up to 1 s, once. Clients that read
/// nothing, such as paused ones, do not get the event.
void Outlet::give_time_to_read() {
  constexpr auto longest = 1s;
  const Deadline end = gave_time_ ? Deadline{} : Clock::now() + longest;
  do {
    // The server is held briefly, because its end waits for that.
    const auto server = this->server();
    if (!server || server->wait_until_read(std::min<Deadline>(end, Clock::now() + 10ms))) {
      gave_time_ = false;
      return;
    }
  } while (!stopping_ && !flushing_ && Clock::now() < end);
  if (gave_time_.exchange(true)) return;
  GST_WARNING_OBJECT(sink_, "events out of band do not reach clients that have read nothing for 1 s");
}

void Outlet::forget(std::uint32_t key) {
  kept_.erase(key);
  server_->forget(key);
}

/// The end of a flush: drops frames and events that were under way, here and at the clients.
void Outlet::flush(GstEvent* event) {
  flushing_ = true;
  channel_->set_src_flushing(true);
  {
    gboolean resets = FALSE;
    gst_event_parse_flush_stop(event, &resets);
    const std::lock_guard lock(step_);
    if (resets != 0) ended_base_ = base_time_of(sink_);
    if (server_) {
      // What holds is sent; it waited for room only.
      try {
        if (event_ && !needs_client(event_.get()) && !failed_) pass(event_.get());
      } catch (...) {
        failure_ = std::current_exception();
      }
      forget_waiting();
      channel_->forget_held();
      // As on a pad, a flush ends the segment, the group and EOS.
      for (const Keeping over : {Keeping::segment, Keeping::group_done, Keeping::end}) forget(gst::key_of(over));
      if (resets != 0) forget(gst::key_of(Keeping::rate));
      server_->withdraw_all();
      send(text_of(event), 0);
      note_flush(server_, gst_event_get_seqnum(event));
    }
    const std::lock_guard ending(mutex_);
    ended_ = false;
  }
  channel_->set_src_flushing(false);
  flushing_ = false;
  wake();
}

void Outlet::send(const LinkText& text, std::uint32_t key, LinkServer::Unread unread) {
  if (key != 0) kept_.insert(key);
  server_->send(text, key, unread);
}

/// The key under which the event is kept; 0: it is not kept.
std::uint32_t Outlet::key_of(GstEvent* event) {
  const Keeping keeping = keeping_of(event);
  if (keeping != Keeping::tags && keeping != Keeping::custom) return gst::key_of(keeping);
  // As on a pad, the last event of each type and name holds.
  const std::string name = fmt::format("{} {}", static_cast<unsigned>(GST_EVENT_TYPE(event)),
                                       gst_structure_get_name(gst_event_get_structure(event)));
  const auto number = static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
  if (number == names_.size()) names_.push_back(name);
  return gst::key_of(keeping, number);
}

void Outlet::forget_last_stream() {
  const auto is_over = [](std::uint32_t key) { return !outlives_stream(keeping_of_key(key)); };
  for (const std::uint32_t key : kept_) {
    if (is_over(key)) server_->forget(key);
  }
  std::erase_if(kept_, is_over);
  names_.clear();
  told_of_metas_ = false;
}

/// Whether clients need the event in its place, as a gap: who comes later is not told of it.
bool Outlet::needs_client(GstEvent* event) {
  const Keeping keeping = keeping_of(event);
  return (keeping == Keeping::none && crosses(GST_EVENT_TYPE(event))) || keeping == Keeping::end;
}

/// Whether what comes next has to wait for no client: for the first one, where the settings ask for that, and for one
/// that may miss nothing and reads nothing, such as a paused one. Frames wait for a slot anyway; the latter is for
/// events without frames, such as endless gaps, and for rings, each of which has memory.
bool Outlet::may_pass(Needs needs) {
  if (settings_.wait_for_connection) {
    if (needs == Needs::client && !server_->wait_for_client(Deadline{})) return false;
    if (needs == Needs::first_client && server_->counters().connected == 0) return false;
  }
  if (needs == Needs::followers && !server_->all_follow()) {
    if (!follow_by_) follow_by_ = Clock::now() + longest_move;
    if (Clock::now() < *follow_by_) return false;
  }
  const auto whom = LinkServer::Whom::may_miss_nothing;
  if (server_->wait_until_read(Deadline{}) && (needs != Needs::followers || server_->all_follow(whom))) {
    unread_since_.reset();
    return true;
  }
  const Deadline now = Clock::now();
  if (!unread_since_ || !is_in_playing(sink_)) unread_since_ = now;
  const auto limit = settings_.stall_limit;
  if (limit.count() > 0 && now - *unread_since_ >= limit) server_->end_unread();
  return false;
}

/// False: it has to wait for a client.
bool Outlet::pass_waiting() {
  if (failed_) return true;
  const bool needs = frame_ || needs_client(event_.get());
  // A stream may end without a frame, or begin with a gap. The sink has made a ring for it, and clients that wait at
  // the path connect now.
  const bool has_other_ring = frame_ ? frame_->lease.ring() != ring_.get() : needs && !ring_;
  if (has_other_ring) {
    if (!may_pass(Needs::followers)) return false;
    if (auto ring = channel_->src_ring()) serve(std::move(ring));
  }
  if (!may_pass(frame_ ? Needs::client : needs && ring_ ? Needs::first_client : Needs::nothing)) return false;
  if (frame_) {
    show(*frame_);
  } else {
    pass(event_.get());
  }
  return true;
}

void Outlet::pass(GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START) {
    forget_last_stream();
    const std::lock_guard lock(mutex_);
    ended_ = false;
  }
  if (keeping_of(event) == Keeping::segment) forget(gst::key_of(Keeping::end));  // of the last segment, which has ended
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
    GST_WARNING_OBJECT(sink_, "%s%s does not cross to other processes: %u fields cannot be written in %zu bytes",
                       text.empty() ? "" : "some of ", GST_EVENT_TYPE_NAME(event), left_out, max_link_message);
  }
  // Who may miss frames may miss what goes with them alone: a client may be paused beside an event with each frame.
  const bool is_kept = keeping_of(event) != Keeping::none;
  if (!text.empty()) send(text, key_of(event), is_kept ? LinkServer::Unread::send : LinkServer::Unread::skip);
  if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) end();
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
    GST_CAT_LEVEL_LOG(
        GST_CAT_DEFAULT, std::exchange(told_of_metas_, true) ? GST_LEVEL_DEBUG : GST_LEVEL_WARNING, sink_,
        "%u metas of a frame do not cross to other processes, or not all of them: they cannot be written, or take more "
        "than %zu bytes",
        metas.left_out, max_link_note);
  }
  server_->show(std::move(frame.lease), metas.text);
}

}  // namespace gpumap::gst
