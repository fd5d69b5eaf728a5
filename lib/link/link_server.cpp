// SPDX-License-Identifier: MIT
#include "link/link_server.hpp"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/printable.hpp"
#include "gpumap/thread_schedule.hpp"

namespace gpumap {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds second_look{100};
constexpr std::size_t longest_backlog = 1024;
/// The same limit as a consumer's.
constexpr milliseconds longest_spin{50};

std::uint64_t new_generation() {
  std::uint64_t number = 0;
  while (number == 0) {
    if (getrandom(&number, sizeof number, 0) != sizeof number && errno != EINTR) {
      throw Error(ErrorCode::io, fmt::format("no random number for a link: {}", std::strerror(errno)));
    }
  }
  return number;
}

LinkServerOptions checked(LinkServerOptions options) {
  if (options.max_clients == 0 || options.max_clients > max_link_clients) {
    throw Error(ErrorCode::invalid, fmt::format("a link for {} clients requested, 1 to {} allowed: change max_clients",
                                                options.max_clients, max_link_clients));
  }
  return options;
}

}  // namespace

LinkAddress::LinkAddress(std::unique_ptr<State> state) : state_(std::move(state)) {}

LinkAddress::~LinkAddress() {
  if (!state_->process.here()) state_->listener.leave_file();
}

std::shared_ptr<LinkAddress> LinkAddress::take(const std::string& path, mode_t mode) {
  return std::shared_ptr<LinkAddress>(new LinkAddress(std::make_unique<State>(path, mode)));
}

const std::string& LinkAddress::path() const noexcept {
  return state_->listener.path();
}

LinkServer::Seat::Seat(const LinkServerOptions& options)
    : address_(options.address ? options.address : LinkAddress::take(options.path, options.mode)) {
  if (address_->state_->has_server.exchange(true)) {
    throw Error(ErrorCode::invalid, fmt::format("a second server at {} requested, at most one allowed: end the first",
                                                printable(address_->path())));
  }
}

LinkServer::Seat::~Seat() {
  address_->state_->has_server = false;
}

// Frames, in the producer's threads.

LinkServer::State::State(LinkServerOptions wanted)
    : options(checked(std::move(wanted))),
      generation(new_generation()),
      seat(std::in_place, options),
      path(seat->listener().path()),
      mark(link::mark(seat->listener().fd(), generation)),
      bell(link::make_bell()),
      fan(std::in_place, min_slots, options.reserve, FreeSlot{this}) {
  options.address.reset();  // the seat has it, which may end earlier
}

LinkServer::State::~State() = default;

void LinkServer::State::wake_service() const noexcept {
  constexpr std::uint64_t one = 1;
  static_cast<void>(!write(bell.get(), &one, sizeof one));
}

void LinkServer::State::collect(bool look_again) {
  const std::int64_t now_ns = takes_times() ? monotonic_ns() : 0;
  const auto came_back = [&](std::uint32_t index, std::uint32_t slot) {
    if (now_ns != 0) take_time(index, slot, now_ns);
  };
  for (std::uint32_t index = 0; index < max_link_clients; ++index) {
    if (clients[index] && !fan->reclaim(index, look_again, came_back)) {
      drop(index, link::Why::lied, "it gave back a slot that it did not have");
    }
  }
}

void LinkServer::State::drop(std::uint32_t index, link::Why why, const std::string& reason) {
  std::unique_ptr<Client> gone = std::move(clients[index]);
  const std::int64_t began = monotonic_ns();
  Event event{describe(*gone), reason, why, nullptr};
  // Before the slots are free: a client that asks after reading must see it.
  if (auto& shown = fan->client(index)) shown->queue.revoke(link::Revoked::cut_off);
  fan->leave(index);
  counters.longest_reclaim_ns = std::max(counters.longest_reclaim_ns, monotonic_ns() - began);
  ++counters.disconnected;
  if (why == link::Why::lied) ++counters.liars;
  static_cast<void>(
      link::send_message(gone->socket.get(), link::encode_reason(generation, link::MessageType::bye, why, reason)));
  // The service thread may be polling the socket, so it closes the socket, with the event.
  shutdown(gone->socket.get(), SHUT_RDWR);
  event.gone = std::move(gone);
  events.push_back(std::move(event));
  look_for_unread();
  changed.notify_all();
  wake_service();
}

LinkClient LinkServer::State::describe(const Client& client) {
  LinkClient who = client.who;
  if (const auto& shown = fan->client(who.index)) {
    who.shown += shown->shown;
    who.dropped += shown->dropped;
    who.slots = shown->queue.count();
  }
  return who;
}

void LinkServer::State::refuse_long_message(const Client& client, std::size_t bytes) {
  drop(client.who.index, link::Why::stalled,
       fmt::format("its socket has no room for a message of {} bytes ({} bytes): raise net.core.wmem_max to {} or more",
                   bytes, link::make_room(client.socket.get()), 2 * link::largest_message));
}

void LinkServer::State::deliver(Client& client, Outgoing&& message) {
  // The service thread sends later what the socket has no room for. It also notices a socket that is gone.
  if (client.backlog.empty()) {
    const link::Sent sent = send(client, message.bytes, message.fds);
    if (sent == link::Sent::too_long) refuse_long_message(client, message.bytes.size());
    if (sent != link::Sent::full) return;
  }
  client.backlog.push_back(std::move(message));
  if (client.backlog.size() > longest_backlog) {
    drop(client.who.index, link::Why::stalled, fmt::format("it left {} messages unread", longest_backlog));
    return;
  }
  look_for_unread();
  wake_service();
}

link::Sent LinkServer::State::send(const Client& client, const link::Bytes& bytes, const std::vector<UniqueFd>& fds) {
  std::vector<int> numbers;
  for (const UniqueFd& fd : fds) numbers.push_back(fd.get());
  return link::send_message(client.socket.get(), bytes, numbers);
}

/// A client without a queue has no frames that a message could be behind.
std::uint64_t LinkServer::State::next_ticket(const Client& client) {
  const auto& shown = fan->client(client.who.index);
  return shown ? shown->queue.next_ticket() : client.end;
}

bool LinkServer::State::replace_last(Client& client, std::span<const std::byte> payload, std::uint32_t keep) {
  if (client.backlog.empty() || keep == 0 || payload.size() > link::max_part) return false;
  auto& last = client.backlog.back();
  if (last.keep != keep || last.before != next_ticket(client)) return false;
  last.bytes = link::encode_data(generation, {client.messages, last.before, 0}, payload);
  return true;
}

void LinkServer::State::send_to(Client& client, std::span<const std::byte> payload, std::uint32_t keep, bool at_once) {
  const std::uint32_t index = client.who.index;
  link::DataHead head;
  head.before = at_once ? link::at_once : next_ticket(client);
  if (payload.size() > link::max_part) keep = 0;
  if (at_once) {
    client.memory->block().urgent.store(++client.urgent);
  } else {
    ++client.letters;
  }
  do {
    const auto part = payload.first(std::min(payload.size(), link::max_part));
    payload = payload.subspan(part.size());
    head.number = ++client.messages;
    head.rest = payload.size();
    deliver(client, {link::encode_data(generation, head, part), {}, keep, head.before});
    // deliver() drops a client that leaves too much unread.
  } while (!payload.empty() && clients[index].get() == &client);
}

void LinkServer::State::say_goodbye() {
  if (std::exchange(ending, true)) return;
  for (auto& client : clients) {
    if (!client) continue;
    deliver(*client, {link::encode_reason(generation, link::MessageType::bye, link::Why::ended, "the server ended")});
  }
}

void LinkServer::State::drain(Deadline deadline, bool for_frames) {
  std::unique_lock lock(mutex);
  say_goodbye();
  const auto waits = [&] {
    const auto unsent = [](const auto& client) { return client && !client->backlog.empty(); };
    return (for_frames && fan->busy() > 0) || std::any_of(clients.begin(), clients.end(), unsent);
  };
  while (waits() && Clock::now() < deadline) {
    fan->want_returns();
    collect(true);
    if (waits()) changed.wait_until(lock, std::min<Deadline>(deadline, Clock::now() + milliseconds(1)));
  }
}

std::vector<ReadLease> LinkServer::State::leave(Deadline deadline) {
  drain(deadline, false);
  const std::lock_guard lock(mutex);
  left = true;
  return take_theirs();
}

std::vector<ReadLease> LinkServer::State::take_theirs() {
  collect(true);
  std::vector<ReadLease> theirs;
  for (std::uint32_t slot = 0; slot < slots(); ++slot) {
    if (fan->holders(slot) != 0) theirs.push_back(std::move(leases[slot]));
  }
  return theirs;
}

link::Welcome LinkServer::State::welcome_to(std::uint32_t index) const {
  link::Welcome welcome;
  welcome.client = index;
  welcome.slots = ring->slots();
  welcome.slot_bytes = ring->slot_bytes();
  welcome.slot_stride = ring->slot_stride();
  welcome.block_bytes = link::block_bytes(ring->slots());
  welcome.memory = memory;
  return welcome;
}

/// Show the client the frames of the ring from here on, or tell it that there is none.
void LinkServer::State::let_follow(Client& client) {
  const std::uint32_t index = client.who.index;
  client.is_behind = false;
  send_ring(client);
  if (ring && clients[index]) fan->join(index, clients[index]->memory->block(), clients[index]->who.leak);
}

/// Before it takes another frame of the ring before, the client looks at its socket, which may have what overtakes.
void LinkServer::State::send_ring(Client& client) {
  const std::uint32_t index = client.who.index;
  link::NextRing next;
  next.head.number = ++client.messages;
  std::vector<UniqueFd> fds;
  next.head.before = client.end;
  std::unique_ptr<link::BlockMemory> block;
  if (ring) {
    try {
      next.ring = welcome_to(index);
      block = std::make_unique<link::BlockMemory>(ring->slots(), generation);
      fds.push_back(link::copy_of(memory_fd.get()));
      fds.push_back(link::copy_of(block->fd()));
    } catch (const Error& error) {
      drop(index, link::Why::full, error.what());
      return;
    }
    block->block().urgent.store(client.urgent);
    block->block().dealt_with.store(client.memory->block().dealt_with.load());
  }
  ++client.letters;
  client.memory->block().urgent.store(client.urgent + 1);
  if (block) {
    client.memory = std::move(block);
    ++client.comes;
  }
  deliver(client, {link::encode(generation, next), std::move(fds)});
}

void LinkServer::change(std::shared_ptr<Ring> ring, std::uint64_t earlier_frames) {
  State& state = *state_;
  if (!state.process.here()) [[unlikely]]
    return;
  UniqueFd fd;
  const link::MemoryOffer memory = ring ? link::describe(*ring->mapping(), fd) : link::MemoryOffer();
  const std::lock_guard order(state.order);
  std::unique_lock lock(state.mutex);
  const auto is_earlier = [&](const auto& one) { return one.first.lock() == ring; };
  if (ring && (ring == state.ring || std::any_of(state.earlier.begin(), state.earlier.end(), is_earlier))) {
    throw Error(ErrorCode::invalid,
                "a ring for a link that serves it already, or of which clients had frames when another one followed: "
                "they keep those slots for as long as it lives; serve a new ring");
  }
  std::vector<ReadLease> theirs = state.take_theirs();
  if (!theirs.empty()) state.earlier.emplace_back(state.ring, std::move(theirs));
  state.ring.swap(ring);
  state.memory_fd = std::move(fd);
  state.memory = memory;
  state.earlier_frames = earlier_frames;
  state.handed_on.newest = 0;
  state.nobody_holds = {};
  for (auto& client : state.clients) {
    if (!client) continue;
    client->who = state.describe(*client);  // counts go on
    client->who.slots = 0;
    if (const auto& shown = state.fan->client(client->who.index)) client->end = shown->queue.next_ticket();
  }
  state.fan.emplace(std::max(state.slots(), min_slots), state.options.reserve, State::FreeSlot{&state});
  for (auto& client : state.clients) {
    if (!client || client->who.ended) continue;
    client->is_behind = client->who.leak != LinkLeak::no && !State::is_here(*client);
    if (!client->is_behind) state.let_follow(*client);
  }
  state.changed.notify_all();
  lock.unlock();
  state.wake_service();  // who waits at the path
}

void LinkServer::close() {
  State& state = *state_;
  if (!state.process.here()) return;
  {
    const std::lock_guard lock(state.mutex);
    state.say_goodbye();
  }
  state.closed = true;
  state.wake_service();
}

void LinkServer::wake() noexcept {
  if (!state_->process.here()) return;
  state_->wants_turn = true;
  state_->wake_service();
}

void LinkServer::State::stop() noexcept {
  stopping = true;
  wake_service();
  // Ends: the thread is woken, and does not wait for any client.
  if (service.joinable()) service.join();
  const std::lock_guard lock(mutex);
  for (std::uint32_t index = 0; index < max_link_clients; ++index) {
    if (!clients[index]) continue;
    if (auto& shown = fan->client(index); !left && shown && shown->queue.count() > 0) {
      shown->queue.revoke(link::Revoked::server_ended);
    }
    fan->leave(index);
    // A child of fork() may hold the socket, too.
    shutdown(clients[index]->socket.get(), SHUT_RDWR);
    clients[index].reset();
  }
  events.clear();
}

std::unique_ptr<LinkServer> LinkServer::serve(std::shared_ptr<Ring> ring, LinkServerOptions options) {
  if (!ring) throw Error(ErrorCode::invalid, "a link serves a ring, got none: create one with Ring::create");
  auto server = std::unique_ptr<LinkServer>(new LinkServer(std::make_unique<State>(std::move(options))));
  server->change(std::move(ring));
  server->state_->start();
  return server;
}

std::unique_ptr<LinkServer> LinkServer::serve(LinkServerOptions options) {
  auto server = std::unique_ptr<LinkServer>(new LinkServer(std::make_unique<State>(std::move(options))));
  server->state_->start();
  return server;
}

void LinkServer::State::start() {
  const ThreadSchedule schedule = options.schedule != nullptr ? *options.schedule : schedule_of_started();
  options.schedule = nullptr;
  service = start_thread(
      "gpumap-server", "the link's server", [this] { serve(); }, schedule);
}

LinkServer::LinkServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

LinkServer::~LinkServer() {
  if (!state_->process.here()) {
    static_cast<void>(state_.release());  // the thread and the file belong to the parent
    return;
  }
  if (!state_->left) state_->drain(state_->end_of_linger(), true);
  state_->stop();
}

std::vector<ReadLease> LinkServer::leave() {
  if (!state_->process.here()) return {};
  return state_->leave(state_->end_of_linger());
}

Deadline LinkServer::State::end_of_linger() const {
  return Clock::now() + std::min<std::chrono::nanoseconds>(options.linger, std::chrono::hours(24));
}

RingStatus LinkServer::State::spin_for_slot(Ring& of, WriteLease& lease, Deadline end) {
  [[maybe_unused]] constexpr int pauses = 16;  // between two looks at the words that the clients write
  RingStatus status = RingStatus::timeout;
  while (status == RingStatus::timeout && Clock::now() < end) {
#if defined(__x86_64__)
    for (int turn = 0; turn < pauses; ++turn) __builtin_ia32_pause();
#endif
    {
      const std::lock_guard lock(mutex);
      collect(false);
    }
    status = of.acquire(lease, WhenFull::block, Deadline{});
  }
  return status;
}

RingStatus LinkServer::acquire(WriteLease& lease, WhenFull when_full, Deadline deadline) {
  State& state = *state_;
  if (!state.process.here()) [[unlikely]]
    return RingStatus::closed;
  {
    const std::lock_guard lock(state.mutex);
    state.asks_here = true;
    state.collect(false);
  }
  struct Waiting {
    explicit Waiting(State& one) : state(one) { ++state.waiting; }
    ~Waiting() { --state.waiting; }
    State& state;
  };
  std::unique_ptr<Waiting> waits;
  const auto settled = [&state](RingStatus status) {
    const bool lacks = status == RingStatus::timeout || status == RingStatus::full;
    if (!lacks && state.no_slot_since.load(std::memory_order_relaxed).count() != 0) state.no_slot_since.store({});
    return status;
  };
  std::shared_ptr<Ring> ring;
  for (;;) {
    {
      const std::lock_guard lock(state.mutex);
      ring = state.ring;
    }
    if (!ring) return RingStatus::closed;
    const RingStatus status = ring->acquire(lease, WhenFull::block, Deadline{});
    if (status != RingStatus::timeout) return settled(status);
    const Deadline now = Clock::now();
    Clock::duration since{};
    if (state.no_slot_since.compare_exchange_strong(since, now.time_since_epoch())) since = now.time_since_epoch();
    {
      const std::lock_guard lock(state.mutex);
      if (state.fan->make_room(when_full == WhenFull::drop_oldest)) continue;
      if (state.end_stall(Deadline(since))) continue;
    }
    if (when_full != WhenFull::block) return settled(ring->acquire(lease, WhenFull::drop_newest));
    if (deadline <= now) return RingStatus::timeout;
    if (!waits) {
      // A caller that spins collects slots itself, so no client and no thread here is woken.
      const auto spin = std::min<std::chrono::nanoseconds>(ring->spin(), longest_spin);
      const RingStatus spun = state.spin_for_slot(*ring, lease, std::min<Deadline>(deadline, now + spin));
      if (spun != RingStatus::timeout || deadline <= Clock::now()) return settled(spun);
      waits = std::make_unique<Waiting>(state);
    }
    {
      // In this order: a slot that comes back after the look is reported by a message to the service thread.
      const std::lock_guard lock(state.mutex);
      state.fan->want_returns();
      state.collect(false);
    }
    Deadline look = std::min<Deadline>(deadline, now + second_look);
    const auto limit = state.options.stall_limit;
    if (limit.count() > 0 && limit / 2 < second_look) look = std::min<Deadline>(look, now + limit / 2);
    const RingStatus after = ring->acquire(lease, WhenFull::block, look);
    if (after != RingStatus::timeout) return settled(after);
  }
}

void LinkServer::publish(WriteLease& lease, const FrameInfo& info) {
  std::shared_ptr<Ring> ring;
  {
    const std::lock_guard lock(state_->mutex);
    ring = state_->ring;
  }
  if (!ring) throw Error(ErrorCode::invalid, "a frame for a link that has no ring now: change() brings one");
  ring->publish(lease, info);
  hand_on();
}

void LinkServer::State::show(ReadLease lease, std::span<const std::byte> note, std::unique_lock<std::mutex>& lock) {
  fan->expect_publish(lease.slot());
  // A frame whose upload hangs is dropped: the ring keeps its slot until the upload is done.
  bool hangs = false;
  if (const Fence& written = lease.written(); !written.signalled()) {
    lock.unlock();
    hangs = written.wait_for(patience_at_end) != WaitResult::ready;
    lock.lock();
  }
  if (hangs) {
    ++handed_on.frames;
    ++handed_on.unseen;
    return;
  }
  const std::uint32_t slot = lease.slot();
  link::Shown shown{lease.info(), 0, note.size(), link::FrameTimes::of(lease.stamps())};
  ++handed_on.frames;
  handed_on.bytes += shown.info.bytes;
  handed_on.newest = shown.info.sequence;
  shown.info.sequence += earlier_frames;
  leases[slot] = std::move(lease);
  fan->publish(
      slot,
      [&](std::uint32_t index) -> const link::Shown& {
        shown.messages = clients[index]->messages;
        if (!note.empty()) std::memcpy(clients[index]->memory->note(slot), note.data(), note.size());
        return shown;
      },
      [&](std::uint32_t index) {
        ++counters.wakes;
        static_cast<void>(link::send_message(clients[index]->socket.get(), link::encode(generation, link::Look{})));
      });
  if (fan->holders(slot) == 0) ++handed_on.unseen;
}

void LinkServer::State::collect_after_frames() {
  // A caller that asks the server for slots has collected there. Latencies are exact only when slots are seen to come
  // back at once.
  const bool asks = std::exchange(asks_here, false);
  if (asks && !takes_times()) return;
  collect(false);
  // A caller may soon wait for a slot at the ring itself, where only the service thread collects.
  if (fan->busy() + 1 < slots() && !takes_times()) return;
  fan->want_returns();
  collect(false);
}

void LinkServer::hand_on() {
  State& state = *state_;
  if (!state.process.here()) [[unlikely]]
    return;
  const std::lock_guard order(state.order);
  std::unique_lock lock(state.mutex);
  while (state.ring) {
    ReadLease lease;
    if (state.ring->receive(lease, Deadline{}) != RingStatus::ok) break;
    state.show(std::move(lease), {}, lock);
  }
  state.collect_after_frames();
}

void LinkServer::show(ReadLease lease, std::span<const std::byte> note) {
  State& state = *state_;
  if (!state.process.here()) [[unlikely]]
    return;
  if (note.size() > max_link_note) {
    throw Error(ErrorCode::invalid, fmt::format("a note of {} bytes with a frame, at most {} allowed: send a message",
                                                note.size(), max_link_note));
  }
  const std::lock_guard order(state.order);
  std::unique_lock lock(state.mutex);
  if (lease && lease.ring() != state.ring.get()) {
    throw Error(ErrorCode::invalid, "a frame of another ring than the link serves: serve that ring");
  }
  if (lease) state.show(std::move(lease), note, lock);
  state.collect_after_frames();
}

std::vector<LinkClient> LinkServer::clients() const {
  std::vector<LinkClient> all;
  if (!state_->process.here()) return all;
  const std::lock_guard lock(state_->mutex);
  for (const auto& client : state_->clients) {
    if (client) all.push_back(state_->describe(*client));
  }
  return all;
}

LinkCounters LinkServer::counters() const {
  if (!state_->process.here()) return {};
  const std::lock_guard lock(state_->mutex);
  return state_->counters;
}

bool LinkServer::wait_for_client(Deadline deadline) {
  if (!state_->process.here()) return false;
  std::unique_lock lock(state_->mutex);
  const auto somebody_takes_frames = [this] {
    // One that has yet to come to the ring misses the frames until then, as it may.
    return std::any_of(state_->clients.begin(), state_->clients.end(), [this](const auto& client) {
      return client && (state_->fan->takes_frames(client->who.index) || (client->is_behind && !client->who.ended));
    });
  };
  while (!somebody_takes_frames()) {
    const Deadline now = Clock::now();
    if (now >= deadline) return false;
    state_->changed.wait_until(lock, std::min<Deadline>(deadline, now + second_look));
  }
  return true;
}

const std::string& LinkServer::path() const noexcept {
  return state_->path;
}
std::uint64_t LinkServer::generation() const noexcept {
  return state_->generation;
}

}  // namespace gpumap
