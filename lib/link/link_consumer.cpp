// SPDX-License-Identifier: MIT
#include "link/link_consumer.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/thread_schedule.hpp"

namespace gpumap {
namespace {

using std::chrono::milliseconds;
using Tickets = link::TicketArithmetic<54>;

/// The end of this process, to which threads of connections may live: drivers go then, and nobody may call them any
/// more.
class ProcessEnd {
 public:
  /// A thread may call drivers while it has entered.
  class Entry {
   public:
    Entry() : end_(of_process()) { static_cast<void>(enter()); }
    ~Entry() { leave(); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    /// False: the process ends.
    [[nodiscard]] bool enter() {
      const std::lock_guard lock(end_.mutex_);
      inside_ = !end_.begun_;
      if (inside_) ++end_.threads_;
      return inside_;
    }
    void leave() {
      const std::lock_guard lock(end_.mutex_);
      if (std::exchange(inside_, false) && --end_.threads_ == 0) end_.changed_.notify_all();
    }
    [[nodiscard]] bool is_inside() const noexcept { return inside_; }
    /// It is not freed: that is left to the system.
    void keep(std::shared_ptr<void> what) {
      const std::lock_guard lock(end_.mutex_);
      end_.kept_.push_back(std::move(what));
    }

   private:
    ProcessEnd& end_;
    bool inside_ = false;
  };

  /// Never destroyed: threads may come as late as they like. To be called behind the first call of a driver, whose own
  /// end comes later then.
  static ProcessEnd& of_process() {
    static ProcessEnd* const one = [] {
      std::atexit([] { of_process().begin(); });
      return new ProcessEnd;
    }();
    return *one;
  }

 private:
  void begin() {
    if (!process_.here()) return;
    std::unique_lock lock(mutex_);
    begun_ = true;
    changed_.wait_for(lock, patience_at_end, [this] { return threads_ == 0; });
  }

  const OwnProcess process_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int threads_ = 0;
  bool begun_ = false;
  std::vector<std::shared_ptr<void>> kept_;
};

/// The device that the server's memory is on.
std::shared_ptr<Device> device_of(const link::MemoryOffer& memory) {
  if (memory.kind != static_cast<std::uint32_t>(link::MemoryKind::opaque)) return Device::open();
  try {
    return Device::open(to_string(memory.device));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("the producer's memory is on GPU {}, which this process cannot open: {}",
                                          to_string(memory.device), error.what()));
  }
}

constexpr milliseconds second_look{100};
constexpr milliseconds return_interval{2};
/// For this many turns after the last frame the thread looks every return_interval, so that a frame need not wake it.
constexpr int idle_turns = 50;
/// Messages, and the end of the server, are noticed after it only.
constexpr milliseconds longest_spin{50};
/// After this many turns the thread checks whether the fences that it waits for can still signal.
constexpr int turns_to_check = 10;

/// The thread that calls next() may have read the answer meanwhile.
constexpr int look_again_ms = 2;

int poll_time(Deadline deadline) {
  const auto left = std::chrono::ceil<milliseconds>(
      std::min<Clock::duration>(std::max<Clock::duration>(deadline - Clock::now(), milliseconds(0)), second_look));
  return static_cast<int>(left.count());
}

void check_size(std::span<const std::byte> text) {
  if (text.size() <= max_link_question) return;
  throw Error(ErrorCode::invalid, fmt::format("a question of {} bytes for a link, at most {} allowed: ask less at once",
                                              text.size(), max_link_question));
}

}  // namespace

// Frames and messages, in their order.

LinkConsumer::State::State(std::shared_ptr<Device> on, LinkConsumerOptions wanted, UniqueFd connection,
                           const link::Welcome& welcome, std::uint64_t server_generation, std::vector<UniqueFd>& fds)
    : options(std::move(wanted)),
      generation(server_generation),
      given(std::move(on)),
      socket(std::move(connection)),
      server(link::watch_process(link::peer_of(socket.get()).pid)),
      bell(link::make_bell()),
      incoming(socket.get(), server_generation) {
  follow(welcome, fds);
}

void LinkConsumer::State::follow(const link::Welcome& welcome, std::vector<UniqueFd>& fds) {
  device = given ? given : device_of(welcome.memory);
  memory = std::make_shared<link::BlockMemory>(std::move(fds[1]), welcome.slots, generation);
  claims.emplace(memory->block(), welcome.slots, welcome.slot_bytes, welcome.first_ticket);
  leases.clear();
  leases.resize(welcome.slots);
  auto mapping = link::import_memory(*device, welcome.memory, std::move(fds[0]));
  RingOptions ring_options;
  ring_options.slots = welcome.slots;
  ring_options.slot_bytes = welcome.slot_bytes;
  // The producer's side has brought the frames to where kernels read them.
  ring_options.transport = mapping->placement() == Placement::host ? Transport::zero_copy : Transport::bar;
  ring = Ring::create(device, std::move(mapping), ring_options);
  if (ring->slot_stride() != welcome.slot_stride) {
    throw Error(ErrorCode::not_supported,
                fmt::format("the server's slots are {} bytes apart, here {}: use the same gpumap on both sides",
                            welcome.slot_stride, ring->slot_stride()));
  }
  for (std::uint32_t count = 0; count < welcome.slots; ++count) {
    WriteLease lease;
    if (ring->acquire(lease, WhenFull::block, Deadline{}) != RingStatus::ok) {
      throw Error(ErrorCode::invalid, "a new ring has a slot that is not free");
    }
    const std::uint32_t slot = lease.slot();
    leases[slot] = std::move(lease);
  }
  memory->block().here.store(1);
}

void LinkConsumer::State::change() {
  link::Incoming::Letter next = incoming.take_ring();
  leases.clear();
  if (ring) last_rings.push_back(std::move(ring));
  changed.notify_all();
  if (next.ring->slots == 0) return;
  try {
    follow(*next.ring, next.fds);
  } catch (const std::exception& error) {
    ring.reset();
    incoming.hang_up(error.what());
    throw;
  }
  // The server may wait for this client before it goes on to a further ring.
  static_cast<void>(link::send_message(socket.get(), link::encode(generation, link::Look{})));
}

void LinkConsumer::State::collect() {
  if (!ring) return;
  // No caller is left that could take the frames that pass() put there.
  if (closing && ring.use_count() == 1) ring->drop_queued();
  try {
    while (claims->held() > (claimed ? 1U : 0U)) {
      WriteLease lease;
      if (ring->acquire(lease, WhenFull::block, Deadline{}) != RingStatus::ok) return;
      give_back(std::move(lease));
    }
  } catch (const Error& error) {
    // The GPU's context is lost: no kernel of this process reads any more, and the hang-up gives the server all slots.
    incoming.hang_up(error.what());
  }
}

bool LinkConsumer::State::spin_until(Deadline end) const noexcept {
  const auto& urgent = memory->block().urgent;
  const std::uint64_t before = urgent.load(std::memory_order_relaxed);
  do {
    for (int turn = 0; turn < 64; ++turn) {
      if (claims->may_claim() || interrupted.load(std::memory_order_relaxed)) return true;
      if (urgent.load(std::memory_order_relaxed) != before) return true;  // frames come on another ring, or a message
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  } while (Clock::now() < end);
  return false;
}

/// Claims the next frame, if there is one. False: the connection has ended.
bool LinkConsumer::State::claim() {
  if (!ring) return true;
  link::Claimed next;
  switch (claims->claim(next)) {
    case link::Claim::nothing:
      return true;
    case link::Claim::lie:
      incoming.hang_up("the server offered a slot that cannot be");
      return true;
    case link::Claim::got:
      break;
  }
  if (memory->block().revoked.load() == 0) {
    claimed = next;
    return true;
  }
  // The claim cannot be trusted any more: the slot may have another frame by now.
  read_incoming();
  incoming.hang_up_unexplained("the server took the frames back");
  static_cast<void>(claims->give_back(next.slot));
  return false;
}

std::optional<LinkNext> LinkConsumer::State::take(LinkFrame& frame, const HandOver& hand_over) {
  // A frame that is there needs no look at the socket, which may have what woke this thread: two system calls that are
  // made before the next sleep. Where there is none, messages are read before the claim: when no frame is there
  // afterwards, there was none before them.
  const bool asks = !incoming.answers.empty();
  const bool overtaken = incoming.at_once_read != memory->block().urgent.load();
  const auto has_frame = [this] { return claimed || (ring && claims->may_claim()); };
  if (asks || overtaken || (incoming.readable && !has_frame())) read_incoming();
  if (incoming.take_urgent(frame)) return LinkNext::message;
  if (!claimed && !claim()) return LinkNext::closed;
  if (!claimed && incoming.readable) {  // it was withdrawn meanwhile
    read_incoming();
    if (incoming.take_urgent(frame)) return LinkNext::message;
    if (!claim()) return LinkNext::closed;
  }
  if (claimed && incoming.letters() < claimed->shown.messages) {
    read_incoming();
    // A message that overtakes was sent before the messages that were read with it: a flush begins before it ends.
    if (incoming.take_urgent(frame)) return LinkNext::message;
    if (incoming.letters() < claimed->shown.messages) {
      // The messages before the frame are still under way, or wait in the socket until there is room here. When the
      // connection has ended they never come, and the frame makes no sense without them.
      incoming.readable = true;
      if (!incoming.inbox.empty() && !incoming.inbox.front().ring) {
        incoming.take_letter(frame);
        return LinkNext::message;
      }
      if (!incoming.ended) return std::nullopt;
      static_cast<void>(claims->give_back(claimed->slot));
      claimed.reset();
    }
  }
  const bool letter_first =
      !incoming.inbox.empty() && (!claimed || Tickets::ahead(claimed->ticket, incoming.inbox.front().head.before) >= 0);
  if (letter_first && incoming.inbox.front().ring) {
    change();
    return LinkNext::ring;
  }
  if (letter_first) {
    incoming.take_letter(frame);
    return LinkNext::message;
  }
  if (!claimed) return std::nullopt;
  const std::uint32_t slot = claimed->slot;
  frame.info = claimed->shown.info;
  const std::byte* const note = memory->note(slot);
  frame.note.assign(note, note + claimed->shown.note_bytes);
  frame.stamps.reset();
  // The clock is read only when the producer stamps.
  if (const link::FrameTimes& times = claimed->shown.times; times.acquired_ns != 0) {
    frame.stamps = link::record_of(frame.info, times, monotonic_ns());
  }
  frame.message.clear();
  claimed.reset();
  memory->block().received.store(++received, std::memory_order_relaxed);
  if (thread_idle) changed.notify_all();
  try {
    return hand_over(slot);
  } catch (...) {
    if (leases[slot]) give_back(std::move(leases[slot]));
    throw;
  }
}

/// Waiting for a slot, even briefly, checks its fence: acquire() throws for a fence that can no longer signal.
void LinkConsumer::State::check_fences(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Ring> looked_at = ring;
  if (!looked_at) return;
  WriteLease lease;
  RingStatus status = RingStatus::timeout;
  std::string lost;
  lock.unlock();
  try {
    status = looked_at->acquire(lease, WhenFull::block, Clock::now() + std::chrono::microseconds(200));
  } catch (const Error& error) {
    lost = error.what();
  }
  lock.lock();
  if (!lost.empty()) incoming.hang_up(lost);
  if (status == RingStatus::ok && ring == looked_at) give_back(std::move(lease));
}

void LinkConsumer::State::give_back(WriteLease lease) {
  const std::uint32_t slot = lease.slot();
  leases[slot] = std::move(lease);
  if (!claims->give_back(slot)) return;
  static_cast<void>(link::send_message(socket.get(), link::encode(generation, link::Look{})));
}

void LinkConsumer::State::say_goodbye() {
  if (said_goodbye) return;
  said_goodbye =
      link::send_message(socket.get(), link::encode_reason(generation, link::MessageType::bye, link::Why::ended,
                                                           "the consumer ended")) != link::Sent::full;
}
void LinkConsumer::State::start(std::shared_ptr<State> state) {
  std::promise<void> over;
  state->thread_over = over.get_future();
  static_cast<void>(ProcessEnd::of_process());  // here: the thread may begin when the process ends already
  start_thread("gpumap-connect", "a link's connection", [state = std::move(state), over = std::move(over)]() mutable {
    give_back_until_closed(std::move(state));
    over.set_value();
  }).detach();
}

void LinkConsumer::State::give_back_until_closed(std::shared_ptr<State> state) {
  ProcessEnd::Entry entry;
  std::unique_lock lock(state->mutex);
  for (int idle = 0, turns = 0; entry.is_inside();) {
    state->collect();
    // After a fault the application may never call next() again, nor end a lease. Its slots, and the frames that it is
    // offered, would stop the producer until the server is told.
    if (const std::string lost = state->device->lost(); !lost.empty() && !state->incoming.gone) {
      state->incoming.hang_up(lost);
    }
    if (auto last = std::exchange(state->last_rings, {}); !last.empty()) {
      lock.unlock();
      last.clear();
      lock.lock();
    }
    // Until the server knows, it offers frames that no caller takes.
    if (state->closing) state->say_goodbye();
    const bool holds = state->ring && state->claims->held() > 0;
    // A server that ends waits for slots that are held, or leaves them to the client. After a hang-up it would write
    // into them anew.
    if (state->closing && (!holds || state->incoming.discard())) break;
    idle = holds ? 0 : std::min(idle + 1, idle_turns);
    state->thread_idle = idle == idle_turns;
    entry.leave();
    state->changed.wait_for(lock, state->thread_idle ? second_look : return_interval);
    if (!state->process.here()) return;
    if (!entry.enter()) break;
    if (holds && ++turns % turns_to_check == 0) state->check_fences(lock);
  }
  lock.unlock();
  if (entry.is_inside()) {
    shutdown(state->socket.get(), SHUT_RDWR);
    state.reset();
  } else {
    entry.keep(std::move(state));
  }
}

LinkConsumer::LinkConsumer(std::shared_ptr<State> state) : state_(std::move(state)) {}

LinkConsumer::~LinkConsumer() {
  if (!state_->process.here()) {
    new (std::nothrow) std::shared_ptr<State>(state_);  // belongs to the parent: leaked on purpose
    return;
  }
  std::unique_lock lock(state_->mutex);
  state_->closing = true;
  if (state_->claimed) {
    static_cast<void>(state_->claims->give_back(state_->claimed->slot));
    state_->claimed.reset();
  }
  state_->collect();
  state_->say_goodbye();
  state_->changed.notify_all();
  // When no lease lives, or the connection is gone, the thread ends at once: the ring then ends here, and not in a
  // thread that may still run when the process exits. Otherwise the thread continues without this object.
  const Deadline end = Clock::now() + patience_at_end;
  while ((!state_->ring || state_->claims->held() == 0 || state_->incoming.gone) && Clock::now() < end) {
    lock.unlock();
    if (state_->thread_over.wait_for(return_interval) == std::future_status::ready) return;
    lock.lock();
  }
}

LinkNext LinkConsumer::next(ReadLease& lease, LinkFrame& frame, Deadline deadline) {
  lease = ReadLease();
  const auto hand_over = [&](std::uint32_t slot) {
    state_->ring->publish(state_->leases[slot], frame.info);
    state_->leases[slot] = WriteLease();
    if (state_->ring->receive(lease, Deadline{}) == RingStatus::ok) return LinkNext::frame;
    state_->incoming.hang_up("somebody else receives from the link's ring");
    return LinkNext::closed;
  };
  return wait_for(frame, std::cref(hand_over), deadline);  // a copy would lie on the heap
}

LinkNext LinkConsumer::pass(LinkFrame& frame, const std::function<void(std::uint32_t slot)>& before,
                            Deadline deadline) {
  const auto hand_over = [&](std::uint32_t slot) {
    before(slot);
    state_->ring->publish(state_->leases[slot], frame.info);
    state_->leases[slot] = WriteLease();
    return LinkNext::frame;
  };
  return wait_for(frame, std::cref(hand_over), deadline);
}

LinkNext LinkConsumer::wait_for(LinkFrame& frame, const std::function<LinkNext(std::uint32_t slot)>& hand_over,
                                Deadline deadline) {
  const std::shared_ptr<State> state = state_;
  if (!state->process.here()) [[unlikely]]
    return LinkNext::closed;
  const auto spin = std::min<std::chrono::nanoseconds>(state->options.spin, longest_spin);
  std::unique_lock lock(state->mutex);
  const std::shared_ptr<link::BlockMemory> memory = state->memory;  // take() may bring another one, and ends the call
  auto& asleep = memory->block().asleep;
  state->begin_call();
  for (bool late = false, found = false;;) {
    // A frame that was seen is handed on first: slots that came back wait for the next call.
    if (!found) state->collect();
    if (state->is_interrupted()) return LinkNext::interrupted;
    if (const auto taken = state->take(frame, hand_over)) return *taken;
    if (state->incoming.ended) {
      // All that the server sent and offered before its end.
      state->incoming.readable = true;
      const auto last = state->take(frame, hand_over);
      return last ? *last : LinkNext::closed;
    }
    // Not after a spin that found a frame: a frame whose messages are missing waits at the socket. So does a ring,
    // where there is none: no frame can come before it.
    if (!found && spin.count() > 0 && state->ring) {
      const Deadline end = std::min(deadline, Clock::now() + spin);
      lock.unlock();
      found = state->spin_until(end);
      lock.lock();
      if (found) continue;
    }
    found = false;
    asleep.store(1);
    if (const auto taken = state->take(frame, hand_over)) {
      asleep.store(0);
      return *taken;
    }
    // A caller whose deadline has passed, or that spun until then, still looks at the socket once.
    if (late) {
      asleep.store(0);
      return LinkNext::timeout;
    }
    const Deadline now = Clock::now();
    late = now >= deadline;
    const auto left = std::chrono::ceil<milliseconds>(late ? Clock::duration(0)
                                                           : std::min<Clock::duration>(deadline - now, second_look));
    pollfd polled[] = {
        {state->socket.get(), POLLIN, 0}, {state->server.get(), POLLIN, 0}, {state->bell.get(), POLLIN, 0}};
    lock.unlock();
    static_cast<void>(poll(polled, 3, static_cast<int>(left.count())));
    lock.lock();
    if (polled[2].revents != 0) {
      std::uint64_t count = 0;
      static_cast<void>(!read(state->bell.get(), &count, sizeof count));
    }
    if (polled[0].revents != 0) state->incoming.readable = true;
    if (polled[1].revents != 0) {
      // All that the server sent is in the socket by now.
      state->read_incoming();
      state->incoming.hang_up("the server's process ended");
    }
  }
}

void LinkConsumer::interrupt() noexcept {
  if (!state_->process.here()) return;
  state_->interrupted = true;
  state_->ring_bell();
}

std::shared_ptr<link::BlockMemory> LinkConsumer::State::block_memory() const {
  if (!process.here()) return memory;  // the lock may be held for ever in this copy of the process
  const std::lock_guard lock(mutex);
  return memory;
}

bool LinkConsumer::revoked() const noexcept {
  return state_->block_memory()->block().revoked.load() != 0;
}
bool LinkConsumer::cut_off() const noexcept {
  return State::is_cut_off(*state_->block_memory());
}
std::function<bool()> LinkConsumer::asks_whether_cut_off() const {
  return [memory = state_->block_memory()] { return State::is_cut_off(*memory); };
}
std::uint64_t LinkConsumer::passed_over() const noexcept {
  return state_->block_memory()->block().passed_over.load();
}
std::uint32_t LinkConsumer::held() const {
  if (!state_->process.here()) return 0;
  const std::lock_guard lock(state_->mutex);
  return state_->ring ? state_->claims->held() : 0;
}
std::string LinkConsumer::why() const {
  if (!state_->process.here()) return {};
  const std::lock_guard lock(state_->mutex);
  if (!state_->incoming.ended) return {};
  // A socket that is full takes no last words.
  if (state_->incoming.is_unexplained && State::is_cut_off(*state_->memory)) {
    return "the server cut it off, for it kept a frame for too long or left too many messages unread: it was stopped "
           "or "
           "paused, or is too slow";
  }
  return state_->incoming.why;
}
bool LinkConsumer::ended_well() const {
  if (!state_->process.here()) return false;
  const std::lock_guard lock(state_->mutex);
  return state_->incoming.ended && state_->incoming.ended_well;
}
std::shared_ptr<Ring> LinkConsumer::ring() const {
  if (!state_->process.here()) return state_->ring;
  const std::lock_guard lock(state_->mutex);
  return state_->ring;
}
std::uint64_t LinkConsumer::generation() const noexcept {
  return state_->generation;
}

// What a consumer says and asks beside the frames, and what it receives out of order.

void LinkConsumer::State::begin_call() {
  if (!incoming.begin_call()) return;
  memory->block().dealt_with.store(incoming.dealt_with, std::memory_order_relaxed);
}

void LinkConsumer::State::ring_bell() const noexcept {
  constexpr std::uint64_t one = 1;
  static_cast<void>(!write(bell.get(), &one, sizeof one));
}

LinkNext LinkConsumer::hear(LinkFrame& frame, Deadline deadline, Hear what) {
  const std::shared_ptr<State> state = state_;
  if (!state->process.here()) [[unlikely]]
    return LinkNext::closed;
  std::unique_lock lock(state->mutex);
  state->begin_call();
  for (bool late = false;;) {
    state->collect();
    if (state->is_interrupted()) return LinkNext::interrupted;
    if (state->incoming.readable && !state->incoming.ended) state->read_incoming();
    if (state->incoming.take_urgent(frame)) return LinkNext::message;
    if (what == Hear::rings && state->incoming.has_ring()) return LinkNext::ring;
    // A caller whose deadline has passed looks once all the same.
    if (late) return LinkNext::timeout;
    late = Clock::now() >= deadline;
    // A message that stays unread would keep poll() from sleeping.
    pollfd polled[] = {{state->incoming.readable || state->incoming.ended ? -1 : state->socket.get(), POLLIN, 0},
                       {state->bell.get(), POLLIN, 0}};
    lock.unlock();
    static_cast<void>(poll(polled, 2, poll_time(deadline)));
    lock.lock();
    if (polled[1].revents != 0) {
      std::uint64_t count = 0;
      static_cast<void>(!read(state->bell.get(), &count, sizeof count));
    }
    if (polled[0].revents != 0) state->incoming.readable = true;
  }
}

bool LinkConsumer::tell(std::span<const std::byte> text) {
  check_size(text);
  if (!state_->process.here()) [[unlikely]]
    return false;
  const std::lock_guard lock(state_->mutex);
  return !state_->incoming.ended &&
         link::send_message(state_->socket.get(), link::encode_ask(state_->generation, {0}, text)) == link::Sent::ok;
}

bool LinkConsumer::ask(std::span<const std::byte> text, std::vector<std::byte>& answer, Deadline deadline,
                       const std::function<void()>& meanwhile) {
  check_size(text);
  const std::shared_ptr<State> state = state_;
  if (!state->process.here()) [[unlikely]]
    return false;
  std::unique_lock lock(state->mutex);
  if (state->incoming.ended) return false;
  const std::uint64_t number = ++state->asked;
  auto& place = state->incoming.answers[number];
  const bool sent =
      link::send_message(state->socket.get(), link::encode_ask(state->generation, {number}, text)) == link::Sent::ok;
  while (sent && !place && !state->incoming.ended && Clock::now() < deadline) {
    pollfd polled{state->socket.get(), POLLIN, 0};
    lock.unlock();
    const int ready = poll(&polled, 1, std::min(poll_time(deadline), look_again_ms));
    if (meanwhile) meanwhile();
    lock.lock();
    if (ready <= 0 || place) continue;
    state->read_incoming();
    // The other thread may sleep for what was read here.
    state->ring_bell();
    // There is no room for more messages: the other thread must take some first.
    if (!place && state->incoming.readable) state->changed.wait_for(lock, milliseconds(1));
  }
  const bool came = place.has_value();
  if (came) answer = std::move(*place);
  state->incoming.answers.erase(number);
  return came;
}

}  // namespace gpumap
