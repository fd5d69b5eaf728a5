// SPDX-License-Identifier: MIT
#include "gst/link/outlet.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <shared_mutex>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/start_thread.hpp"
#include "gst/gst_error.hpp"

namespace gpumap::gst {

using namespace std::chrono_literals;

namespace {

/// What clients gave back is looked for this often while no frame comes.
constexpr auto idle = 10ms;
constexpr auto longest_drain = 5s;
constexpr auto longest_move = 1s;
/// Of a client that may miss nothing: as long as a gpumapsrc waits for its producer's next ring.
constexpr auto longest_whole_move = 5s;

guint signal_ids[2];

/// Whether it may be the same client, of another ring, whose server counts its own.
bool is_same(const LinkClient& one, const LinkClient& other) {
  return one.pid == other.pid && one.name == other.name;
}

bool has_ended(pid_t pid) {
  return pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
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
  channel_->set_src_spin(std::chrono::microseconds(settings_.busy_poll_us));
  open_door();
  try {
    thread_ = start_thread("gpumap-outlet", "what clients are shown", [this] { run(); });
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
  const auto by_server = [door = door_](const auto& frees_a_slot) {
    const std::shared_lock inside(door->mutex);
    const auto server = door->outlet != nullptr ? door->outlet->server() : nullptr;
    return server && frees_a_slot(*server);
  };
  Channel::FarSlots far;
  far.make_room = [by_server] { return by_server([](LinkServer& server) { return server.make_room(); }); };
  far.end_stall = [by_server](Deadline since) {
    return by_server([since](LinkServer& server) { return server.end_stall(since); });
  };
  channel_->set_far_slots(std::move(far));
}

void Outlet::close_door() {
  channel_->set_event_handler(nullptr);
  channel_->set_far_slots({});
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
  channel_->set_far_slots({});
  thread_.join();
  close_door();
  set_server(nullptr);
  settings_.address.reset();
  desk_.reset();  // which the server's thread calls
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

/// The server's where that is free. Under mutex_.
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

/// The application counts clients, whatever rings they come to: one that moves to the next ring was never away.
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
  if (reason.empty()) {
    g_signal_emit(sink_, signal_ids[0], 0, one.number, client.pid, client.name.c_str());
  } else {
    tell_of_gone(one, reason.c_str());
  }
}

/// Of those that have not come again. Those that are `here` have, and are reported by the server's thread, perhaps
/// later.
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
      step();
    } catch (const std::exception& error) {
      // Once: what follows is dropped, and the pipeline is told to stop.
      if (!std::exchange(failed_, true)) post_error(sink_, error);
      set_server(nullptr);
      settings_.address.reset();  // nobody is to wait there
      tell_of_lost("the gpumapsink has failed");
      end();
    }
    // A flush waits for the lock.
    if (flushing_) std::this_thread::sleep_for(1ms);
  }
}

void Outlet::step() {
  std::unique_lock lock(step_);
  left_.remove_if([](const auto& one) { return one.first.expired(); });
  Channel::Next next = channel_->next(Clock::now() + idle);
  watch_time();  // a pipeline that was started meanwhile has its time now, and its first frame is here
  if (next.kind == Channel::Next::Kind::event) {
    forward(next.event, lock);
  } else if (next.kind == Channel::Next::Kind::frame) {
    forward(next, lock);
  } else if (ring_ && channel_->src_ring() == nullptr) {
    // Memory is short: the next ring has room once this one is gone, here and at the clients.
    if (!retire_by_) retire_by_ = Clock::now() + longest_move;
    const auto clients = server_ ? server_->clients() : std::vector<LinkClient>();
    const bool done = std::none_of(clients.begin(), clients.end(), [](const auto& client) { return client.slots > 0; });
    if (done || Clock::now() >= *retire_by_) retire(lock);
  }
  // What came back with a frame is collected with it.
  if (server_ && next.kind != Channel::Next::Kind::frame) server_->show({});
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
  // Who answers a client, or makes room, holds it for a moment, in which it waits for nobody. It is to end here: the
  // next one needs its path, and it calls this.
  while (last.use_count() > 1) std::this_thread::sleep_for(50us);
  // Its ring is done with. What downstream of a client holds, or has queued, may stay there for long, and is the
  // client's. After a failure the ring goes on, without clients.
  if (!failed_) left_.emplace_back(ring_, last->leave());
  last.reset();
  const std::lock_guard lock(mutex_);
  gone_.insert(gone_.end(), told_.begin(), told_.end());
  told_.clear();
  retiring_ = false;
  clients_ = 0;
}

/// What is served is no more. Its clients take what they have not, and come again.
void Outlet::retire(std::unique_lock<std::mutex>& lock) {
  std::shared_ptr<LinkServer> last;
  if (server_) {
    moving_ = server_->clients();
    server_->announce_successor();
  }
  {
    const std::lock_guard swapping(mutex_);
    server_.swap(last);
    retiring_ = last != nullptr;
  }
  // Its thread may be in a handler of the application's, which flushes.
  lock.unlock();
  end_server(std::move(last));
  lock.lock();
  ring_.reset();
  retire_by_.reset();
}

/// So that clients of the last ring miss nothing of this one. A client may have gone for good.
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
  options.on_client = [this](const LinkClient& client, const std::string& reason) { tell(client, reason); };
  options.on_question = [this](LinkQuestion& question) { return desk_->take(question); };
  set_server(LinkServer::serve(ring_, std::move(options)));
  for (const auto& [key, text] : kept_) server_->send(text, key);
  wait_for_moving();
  moving_.clear();
  for (const LinkText& text : std::exchange(owed_, {})) server_->send(text);
  lock.unlock();  // a handler may flush
  tell_of_lost("it did not come to the next ring", server_->clients());
  lock.lock();
}

}  // namespace gpumap::gst
