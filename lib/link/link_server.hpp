// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpumap/link.hpp"
#include "gpumap/link_report.hpp"
#include "link/fan_out.hpp"
#include "link/link_memory.hpp"
#include "link/server_discovery.hpp"
#include "link/socket.hpp"
#include "link/wire.hpp"
#include "own_process.hpp"

namespace gpumap {

struct LinkAddress::State {
  State(const std::string& path, mode_t mode) : listener(path, mode) {}
  const OwnProcess process;
  link::Listener listener;
  std::atomic<bool> has_server{false};
};

/// A server at its address: one of its own, or one that was taken before. Throws as LinkServer::serve().
class LinkServer::Seat {
 public:
  explicit Seat(const LinkServerOptions& options);
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  [[nodiscard]] link::Listener& listener() const noexcept { return address_->state_->listener; }

 private:
  const std::shared_ptr<LinkAddress> address_;
};

/// The private part of a server. Locks: `order` before `mutex`; neither is held in a callback.
struct LinkServer::State {
  using Word = std::atomic<std::uint64_t>;

  /// How many messages a process may send that nobody wanted: a number at once, and a number in each further second.
  /// The rest stays in its socket, where it costs this process nothing.
  class Allowance {
   public:
    [[nodiscard]] bool any(Deadline now) noexcept {
      left_ = left_at(now);
      filled_ = now;
      return left_ >= 1;
    }
    void take() noexcept { left_ -= 1; }
    [[nodiscard]] bool is_full(Deadline now) const noexcept { return left_at(now) >= at_once; }
    static constexpr double at_once = 10'000, each_second = 5'000;

   private:
    [[nodiscard]] double left_at(Deadline now) const noexcept {
      return std::min(at_once, left_ + std::chrono::duration<double>(now - filled_).count() * each_second);
    }
    double left_ = at_once;
    Deadline filled_{};
  };
  /// A connection that was accepted and has not said hello.
  struct Newcomer {
    UniqueFd socket;
    link::Peer peer;
    Deadline until;
  };
  struct Outgoing {
    link::Bytes bytes;
    std::vector<UniqueFd> fds{};
    std::uint32_t keep = 0;    ///< of an application's message that fits into one; 0: it is not kept
    std::uint64_t before = 0;  ///< the ticket of the frame that it precedes
  };
  struct Client {
    UniqueFd socket;
    UniqueFd process;  ///< readable when the process has ended; may be empty
    LinkClient who;
    std::unique_ptr<link::BlockMemory> memory;  ///< of the ring, or of the last one
    std::uint64_t messages = 0;
    bool is_behind = false;                                   ///< it gets no ring until it has come to its last one
    std::uint32_t comes = 0;                                  ///< rings that it has not said to have come to
    std::uint64_t end = 0;                                    ///< the ticket behind the last frame, without a queue
    std::uint64_t urgent = 0;                                 ///< messages that overtook
    std::uint64_t letters = 0, marked = 0;                    ///< those in order, and at the last mark()
    std::deque<Outgoing> backlog;                             ///< what its socket had no room for
    std::uint32_t asked = 0;                                  ///< questions without an answer
    bool has_asked = false;                                   ///< any
    std::uint64_t timed = 0;                                  ///< frames that came back while latencies were taken
    std::uint64_t timed_ns = 0;                               ///< the sum of their times
    std::array<std::uint32_t, LinkTimeSteps::count> times{};  ///< how many took how long
  };
  /// Frames that were shown to clients, or would have been if there were some.
  struct HandedOn {
    std::uint64_t frames = 0, bytes = 0, unseen = 0;
    std::uint64_t newest = 0;  ///< sequence
  };
  /// A client came or went: to be reported, and its socket to be closed.
  struct Event {
    LinkClient who;
    std::string reason;
    link::Why why{};  ///< when it went
    std::unique_ptr<Client> gone;
  };
  struct FreeSlot {
    State* state;
    void operator()(std::uint32_t slot) const noexcept { state->leases[slot] = ReadLease(); }
  };

  explicit State(LinkServerOptions wanted);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Under `order` and `mutex`, which `lock` has; it is let go while the frame's upload is waited for.
  void show(ReadLease lease, std::span<const std::byte> note, std::unique_lock<std::mutex>& lock);
  /// Acquire without sleeping, and collect meanwhile.
  [[nodiscard]] RingStatus spin_for_slot(Ring& of, WriteLease& lease, Deadline end);

  // Under `mutex`.
  void collect(bool look_again);
  void collect_after_frames();
  /// True: a slot became free.
  [[nodiscard]] bool end_stall(Deadline since);
  [[nodiscard]] std::uint32_t who_stalls(std::uint64_t& oldest) const;  ///< one bit for each client
  void drop(std::uint32_t index, link::Why why, const std::string& reason);
  void refuse_long_message(const Client& client, std::size_t bytes);  ///< drops the client
  void deliver(Client& client, Outgoing&& message);
  [[nodiscard]] link::Welcome welcome_to(std::uint32_t index) const;  ///< precondition: there is a ring
  void send_ring(Client& client);
  /// Whether it has come to the last ring that it got.
  [[nodiscard]] static bool is_here(const Client& client) { return client.memory->block().here.load() != 0; }
  void let_follow(Client& client);
  /// It may miss nothing, and is not there.
  [[nodiscard]] static bool holds_up(const Client& client) {
    return client.who.leak == LinkLeak::no && !client.who.ended && !is_here(client);
  }
  [[nodiscard]] std::uint32_t slots() const noexcept { return ring ? ring->slots() : 0; }
  /// What clients hold, or may still take, of the ring.
  [[nodiscard]] std::vector<ReadLease> take_theirs();
  void say_goodbye();
  [[nodiscard]] static link::Sent send(const Client& client, const link::Bytes& bytes,
                                       const std::vector<UniqueFd>& fds);
  [[nodiscard]] static bool may_miss(const Client& client);
  [[nodiscard]] static bool leaves_unread(const std::unique_ptr<Client>& client);
  void look_for_unread() noexcept;  ///< after each change of a backlog
  void send_to(Client& client, std::span<const std::byte> payload, std::uint32_t keep = 0, bool at_once = false);
  /// True: see Unread::replace.
  [[nodiscard]] bool replace_last(Client& client, std::span<const std::byte> payload, std::uint32_t keep);
  [[nodiscard]] std::uint64_t next_ticket(const Client& client);
  void take_question(Client& client, const link::Ask& ask);
  [[nodiscard]] LinkClient describe(const Client& client);
  [[nodiscard]] bool takes_times() const noexcept;
  void take_time(std::uint32_t index, std::uint32_t slot, std::int64_t now_ns) noexcept;

  void wake_service() const noexcept;
  /// Say goodbye, and wait until all messages are sent and, with `for_frames`, all frames are back.
  void drain(Deadline deadline, bool for_frames);
  [[nodiscard]] std::vector<ReadLease> leave(Deadline deadline);
  [[nodiscard]] Deadline end_of_linger() const;
  void stop() noexcept;

  void start();
  // The service thread, in link_server_thread.cpp.
  void serve();
  [[nodiscard]] bool accept_all();
  void greet();
  void admit(Newcomer& newcomer, const link::Hello& hello);
  struct NoPlace {
    link::Why why{};
    std::string text;
  };
  /// A place for a client of `pid`, under `mutex`. Empty: there is none, for the reason in `refusal`.
  [[nodiscard]] std::optional<std::uint32_t> place_for(pid_t pid, NoPlace& refusal) const;
  void refuse(const Newcomer& newcomer, link::Why why, const std::string& text);
  void listen_to(std::uint32_t index, short revents, bool process_ended);
  /// The allowance of the client's process; of the client alone when the process is not known.
  [[nodiscard]] Allowance& allowance_of(const Client& client);
  /// Handle what `newcomer` says, if it says something. True: drop it from the list.
  [[nodiscard]] bool hear(Newcomer& newcomer);
  void make_place(pid_t pid);
  void flush(Client& client);
  /// Answer the client that asked, if it is still connected.
  void answer(const LinkQuestion& question, std::span<const std::byte> text);
  bool tell();  ///< true: a client came or went
  void report_to(const Newcomer& observer);
  [[nodiscard]] link::Bytes make_report(Deadline now);

  const OwnProcess process;
  LinkServerOptions options;  ///< as they were given, but without the address
  const std::uint64_t generation;
  std::optional<Seat> seat;  ///< empty: nobody comes any more. The service thread's
  const std::string path;
  UniqueFd mark;  ///< observers find the listener by it; may be empty. The service thread's
  UniqueFd bell;  ///< an eventfd of this process alone, for the service thread

  std::mutex order;  ///< held while frames are taken from the ring and shown
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<Ring> ring;  ///< null: there is none for now. Changes under `order`, too
  std::uint64_t earlier_frames = 0;
  UniqueFd memory_fd;
  link::MemoryOffer memory;
  std::array<ReadLease, max_slots> leases;
  std::optional<link::FanOut<Word, FreeSlot>> fan;  ///< of the ring; never empty
  /// Slots of the rings before that clients still have, or may take, kept for as long as a writer could get them.
  std::list<std::pair<std::weak_ptr<Ring>, std::vector<ReadLease>>> earlier;
  std::array<std::unique_ptr<Client>, max_link_clients> clients;
  std::map<std::uint32_t, link::Bytes> kept;
  LinkCounters counters;
  HandedOn handed_on;
  Deadline watched_until{};         ///< an observer asked for a report lately
  std::atomic<bool> unread{false};  ///< some client leaves_unread(); changes under `mutex`
  std::vector<Event> events;
  std::vector<LinkQuestion> questions;
  bool asks_here = false;  ///< slots are acquired through the server, not at the ring itself
  bool ending = false;
  bool left = false;  ///< clients keep what they have

  // The service thread's.
  std::list<Newcomer> newcomers;
  std::map<std::int64_t, Allowance> allowances;  ///< key: a process's number, or below 0 a client's
  link::Bytes last_report;
  Deadline report_until{};  ///< until then last_report is used

  std::atomic<bool> stopping{false};
  std::atomic<bool> closed{false};        ///< close() was called
  std::atomic<bool> wants_turn{false};    ///< on_turn is called soon
  std::atomic<std::uint32_t> waiting{0};  ///< producers
  Deadline nobody_holds{};  ///< the last time that end_stall() found that no client holds a slot, or what counts as it
  Deadline stall_looked{};  ///< the last call of end_stall()
  std::atomic<Deadline::duration> no_slot_since{
      {}};  ///< since when acquire() finds no slot; zero: it found one the last time
  std::thread service;
};

}  // namespace gpumap
