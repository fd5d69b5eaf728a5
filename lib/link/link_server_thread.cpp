// SPDX-License-Identifier: MIT
// The server's one thread: clients that come and go, what they give back while the producer waits, reports for
// observers.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/printable.hpp"
#include "link/link_server.hpp"

namespace gpumap {
namespace {

constexpr int second_look_ms = 100;
constexpr std::chrono::seconds time_for_hello{1};
/// Connections that have said nothing. A LinkConsumer has said hello when it is accepted, and takes no place.
constexpr std::size_t max_newcomers = 64;
constexpr std::ptrdiff_t max_newcomers_of_process = max_link_clients;
constexpr int accepted_a_turn = 64;
/// For how long the messages of a client that has used up its allowance stay unread.
constexpr int time_out_ms = 10;
/// Messages read from one client in a row, before other clients have their turn.
constexpr int messages_a_turn = 64;
/// Questions of one client without an answer: more than it has threads that wait for one.
constexpr std::uint32_t max_asked = 64;

/// Places that one process other than the server's may have. Some are left to others, unless there is only one.
constexpr std::uint32_t places_of_process(std::uint32_t all) {
  return std::max(1U, all * 3 / 4);
}

/// The lock that frames take is taken for reports at most this often, however many observers ask.
constexpr std::chrono::milliseconds report_age{10};
/// An observer asks again within this time.
constexpr std::chrono::seconds watch_time{10};

std::uint64_t since(std::int64_t then_ns, std::int64_t now_ns) noexcept {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(now_ns - then_ns, 0));
}

}  // namespace

void LinkServer::State::serve() {
  // Rows of `polled`: the bell, the listener, one for each newcomer, then two for each of `members`.
  std::vector<pollfd> polled;
  std::vector<std::pair<std::uint32_t, const Client*>> members;
  Deadline next_turn{};
  bool starved = false;  // no descriptor is left: connections wait for one turn
  while (!stopping.load()) {
    if (closed && seat) {
      newcomers.clear();
      mark = UniqueFd();
      seat.reset();
    }
    // A connection that cannot be accepted now, or a hello that cannot be answered, would keep poll() from sleeping.
    bool serves = false;
    {
      const std::lock_guard lock(mutex);
      serves = seat && ring;
    }
    const bool accepts = !std::exchange(starved, false);
    polled.assign({{bell.get(), POLLIN, 0}, {accepts && serves ? seat->listener().fd() : -1, POLLIN, 0}});
    members.clear();
    for (const Newcomer& newcomer : newcomers) polled.push_back({serves ? newcomer.socket.get() : -1, POLLIN, 0});
    const std::size_t first_member = polled.size();
    bool busy = !newcomers.empty() || !accepts;
    bool times_out = false;
    const Deadline now = Clock::now();
    std::erase_if(allowances, [now](const auto& one) { return one.second.is_full(now); });
    {
      const std::lock_guard lock(mutex);
      busy = busy || fan->busy() > 0 || waiting.load() > 0;
      for (std::uint32_t index = 0; index < max_link_clients; ++index) {
        if (!clients[index]) continue;
        const bool may_speak = allowance_of(*clients[index]).any(now);
        times_out = times_out || !may_speak;
        const int wanted = (may_speak ? POLLIN : 0) | (clients[index]->backlog.empty() ? 0 : POLLOUT);
        polled.push_back({clients[index]->socket.get(), static_cast<short>(wanted), 0});
        polled.push_back({clients[index]->process.get(), POLLIN, 0});  // poll() ignores negative ones
        members.emplace_back(index, clients[index].get());
      }
    }
    int patience = times_out ? time_out_ms : busy ? second_look_ms : 10 * second_look_ms;
    if (options.on_turn) patience = std::min(patience, static_cast<int>(options.turn.count()));
    const int ready = poll(polled.data(), polled.size(), patience);
    if ((polled[0].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      static_cast<void>(!read(bell.get(), &count, sizeof count));
    }
    std::size_t row = first_member;
    for (const auto& [index, client] : members) {
      const short revents = polled[row++].revents;
      const bool ended = polled[row++].revents != 0;
      const std::lock_guard lock(mutex);
      // Another thread may have dropped it meanwhile.
      if (clients[index].get() == client && (revents != 0 || ended)) listen_to(index, revents, ended);
    }
    if (serves) greet();
    if ((polled[1].revents & POLLIN) != 0) starved = !accept_all();
    decltype(earlier) over;  // their end takes a while
    {
      const std::lock_guard lock(mutex);
      if (starved) ++counters.starved;
      collect(ready == 0);
      if (waiting.load() > 0 || takes_times()) {
        // Once more, so that no slot that comes back between the look and the request is missed.
        fan->want_returns();
        collect(false);
      }
      changed.notify_all();
      for (auto& client : clients) {
        if (client && client->is_behind && !client->who.ended && is_here(*client)) let_follow(*client);
      }
      for (auto one = earlier.begin(); one != earlier.end();) {
        const auto at = one++;
        if (at->first.expired()) over.splice(over.end(), earlier, at);
      }
    }
    const bool told = tell();
    if (!options.on_turn) continue;
    // Clients that give slots back wake this thread more often, with each frame.
    const Deadline after = Clock::now();
    if (!wants_turn.exchange(false) && !told && after < next_turn) continue;
    next_turn = after + options.turn;
    options.on_turn();
  }
}

/// False: one waits, and this process has no descriptor left for it.
bool LinkServer::State::accept_all() {
  // A refused connection takes no place and may come again at once, so the turns are bounded.
  for (int turn = 0; turn < accepted_a_turn; ++turn) {
    UniqueFd socket = seat->listener().accept();
    // Without a descriptor accept() does not look whether one waits. Before the first turn poll() did.
    if (!socket) return turn > 0 || (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM);
    try {
      Newcomer newcomer{std::move(socket), {}, Clock::now() + time_for_hello};
      newcomer.peer = link::peer_of(newcomer.socket.get());
      if (!link::is_allowed(newcomer.peer, options.allowed_users)) {
        refuse(newcomer, link::Why::not_allowed,
               fmt::format("user {} may not connect, the server's user is {}: run both as one user, or allow it",
                           newcomer.peer.uid, geteuid()));
        continue;
      }
      if (hear(newcomer)) continue;
      make_place(newcomer.peer.pid);
      newcomers.push_back(std::move(newcomer));
    } catch (const std::exception&) {
      // The connection is gone already.
    }
  }
  return true;
}

void LinkServer::State::refuse(const Newcomer& newcomer, link::Why why, const std::string& text) {
  {
    const std::lock_guard lock(mutex);
    ++counters.refused;  // before the message: a refused client finds itself counted
  }
  static_cast<void>(
      link::send_message(newcomer.socket.get(), link::encode_reason(generation, link::MessageType::refuse, why, text)));
}

/// Make room for another connection of process `pid`: the oldest one that says nothing goes, of that process first.
void LinkServer::State::make_place(pid_t pid) {
  const auto is_of_it = [pid](const Newcomer& one) { return one.peer.pid == pid; };
  if (std::count_if(newcomers.begin(), newcomers.end(), is_of_it) >= max_newcomers_of_process) {
    newcomers.erase(std::find_if(newcomers.begin(), newcomers.end(), is_of_it));
  } else if (newcomers.size() >= max_newcomers) {
    newcomers.pop_front();
  }
}

void LinkServer::State::greet() {
  const Deadline now = Clock::now();
  std::erase_if(newcomers, [&](Newcomer& one) { return hear(one) || now >= one.until; });
}

bool LinkServer::State::hear(Newcomer& newcomer) {
  std::array<std::byte, sizeof(link::Header) + sizeof(link::Hello) + 1> buffer{};
  std::size_t bytes = 0;
  const link::Received received = link::receive_message(newcomer.socket.get(), buffer, bytes);
  if (received == link::Received::nothing) return false;
  if (received != link::Received::message) return true;
  bool other_version = false;
  const auto message = link::parse({buffer.data(), bytes}, &other_version);
  const auto* hello = message ? std::get_if<link::Hello>(&message->body) : nullptr;
  if (message && std::holds_alternative<link::Observe>(message->body)) {
    report_to(newcomer);
  } else if (hello != nullptr && message->generation != 0 && message->generation != generation) {
    refuse(newcomer, link::Why::stale, "the server that is asked for has ended, this is a later one");
  } else if (hello != nullptr) {
    admit(newcomer, *hello);
  } else if (other_version) {
    refuse(
        newcomer, link::Why::version,
        fmt::format("the server speaks version {} of the link: use the same gpumap on both sides", link::wire_version));
  } else {
    refuse(newcomer, link::Why::lied, "the first message is no hello: use gpumap on both sides");
  }
  return true;
}

LinkServer::State::Allowance& LinkServer::State::allowance_of(const Client& client) {
  return allowances[client.who.pid > 0 ? std::int64_t{client.who.pid} : -1 - std::int64_t{client.who.index}];
}

std::optional<std::uint32_t> LinkServer::State::place_for(pid_t pid, NoPlace& refusal) const {
  if (ending || !ring) {
    refusal = {link::Why::ended, ending ? "the server ends" : "the server has no ring at the moment"};
    return std::nullopt;
  }
  const auto is_of_it = [pid](const auto& one) { return one && one->who.pid == pid; };
  const auto own = std::count_if(clients.begin(), clients.end(), is_of_it);
  if (pid != getpid() && own >= std::ptrdiff_t{places_of_process(options.max_clients)}) {
    const std::string whose = pid > 0 ? fmt::format("process {}", pid) : "processes that the server does not see";
    refusal = {link::Why::full,
               fmt::format("{} clients of {} are connected, more are not allowed: end one of them", own, whose)};
    return std::nullopt;
  }
  std::uint32_t index = 0;
  while (index < options.max_clients && clients[index]) ++index;
  if (index < options.max_clients) return index;
  refusal = {link::Why::full, fmt::format("{} clients are connected, more are not allowed: end one of them", index)};
  return std::nullopt;
}

void LinkServer::State::admit(Newcomer& newcomer, const link::Hello& hello) {
  const auto leak = static_cast<LinkLeak>(hello.leak);
  if (leak == LinkLeak::no && !options.may_stall) {
    refuse(newcomer, link::Why::not_allowed,
           "this server lets no client hold up the producer: set leaky=oldest or newest");
    return;
  }
  // Before memory is allocated for it: a refused client may come again at once.
  NoPlace refusal;
  std::optional<std::uint32_t> place;
  std::shared_ptr<Ring> served;
  {
    const std::lock_guard lock(mutex);
    place = place_for(newcomer.peer.pid, refusal);
    served = ring;
  }
  if (!place) {
    refuse(newcomer, refusal.why, refusal.text);
    return;
  }
  auto client = std::make_unique<Client>();
  const auto make_block = [&] {
    try {
      client->memory = std::make_unique<link::BlockMemory>(served->slots(), generation);
    } catch (const Error& error) {
      place.reset();
      refusal = {link::Why::full, error.what()};
    }
  };
  make_block();
  client->process = link::watch_process(newcomer.peer.pid);
  client->who.pid = newcomer.peer.pid;
  client->who.uid = newcomer.peer.uid;
  client->who.name = hello.name.data();
  client->who.leak = leak;

  std::unique_lock lock(mutex);
  if (place) place = place_for(newcomer.peer.pid, refusal);
  if (place && ring != served) {  // it was changed meanwhile
    served = ring;
    make_block();
  }
  if (!place) {
    lock.unlock();
    refuse(newcomer, refusal.why, refusal.text);
    return;
  }
  const std::uint32_t index = *place;
  const link::Welcome welcome = welcome_to(index);
  const int fds[] = {memory_fd.get(), client->memory->fd()};
  if (link::send_message(newcomer.socket.get(), link::encode(generation, welcome), fds) != link::Sent::ok) return;
  client->socket = std::move(newcomer.socket);
  client->who.index = index;
  client->who.connection = ++counters.connected;
  clients[index] = std::move(client);
  fan->join(index, clients[index]->memory->block(), leak, welcome.first_ticket);
  events.push_back({clients[index]->who, {}, {}, nullptr});
  for (const auto& [key, message] : kept) {
    if (clients[index]) send_to(*clients[index], message);
  }
  changed.notify_all();
}

void LinkServer::State::listen_to(std::uint32_t index, short revents, bool process_ended) {
  Client& client = *clients[index];
  std::array<std::byte, link::largest_of_client + 1> buffer;
  // After a hang-up nothing more arrives, but what the client said before is still read.
  const bool over = (revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
  Allowance& allowance = allowance_of(client);
  const Deadline now = Clock::now();
  for (int turn = 0; (over || turn < messages_a_turn) && (revents & POLLIN) != 0 && allowance.any(now); ++turn) {
    std::size_t bytes = 0;
    const link::Received received = link::receive_message(client.socket.get(), buffer, bytes);
    if (received == link::Received::nothing) break;
    if (received == link::Received::gone) {
      drop(index, link::Why::ended, "it closed the connection, or ended");
      return;
    }
    const auto message = received == link::Received::message ? link::parse({buffer.data(), bytes}) : std::nullopt;
    const bool known = message && message->generation == generation;
    const bool looks = known && std::holds_alternative<link::Look>(message->body);
    auto& shown = fan->client(index);
    if (looks && client.comes > 0) {
      --client.comes;
      wants_turn = true;  // a further ring may have waited for that
    } else if (!looks || !shown || !shown->queue.takes_look()) {
      allowance.take();
    }
    if (known && std::holds_alternative<link::Bye>(message->body)) {
      client.who.ended = true;
      fan->stop_offering(index);
    } else if (const auto* ask = known ? std::get_if<link::Ask>(&message->body) : nullptr) {
      take_question(client, *ask);
    } else if (!looks) {
      drop(index, link::Why::lied, "it sent an invalid message, or one that only servers send");
      return;
    }
  }
  if (process_ended || over) {
    drop(index, link::Why::ended, process_ended ? "its process ended" : "it closed the connection, or ended");
    return;
  }
  if ((revents & POLLOUT) != 0) flush(client);
}

/// Questions of a client that has too many without an answer are left out. What clients only tell, the application
/// limits.
void LinkServer::State::take_question(Client& client, const link::Ask& ask) {
  if (!options.on_question || (ask.head.number != 0 && client.asked >= max_asked)) return;
  if (ask.head.number != 0) ++client.asked;
  client.has_asked = true;
  questions.push_back({client.who, generation, ask.head.number, {ask.payload.begin(), ask.payload.end()}});
}

void LinkServer::State::flush(Client& client) {
  while (!client.backlog.empty()) {
    const link::Sent sent = send(client, client.backlog.front().bytes, client.backlog.front().fds);
    if (sent == link::Sent::full) return;
    if (sent == link::Sent::too_long) {
      refuse_long_message(client, client.backlog.front().bytes.size());
      return;
    }
    client.backlog.pop_front();
    look_for_unread();
    wants_turn = true;
  }
}

bool LinkServer::State::tell() {
  std::vector<Event> now;
  std::vector<LinkQuestion> asked;
  {
    const std::lock_guard lock(mutex);
    now.swap(events);
    asked.swap(questions);
  }
  for (const Event& event : now) {
    if (event.gone && event.why != link::Why::ended) {
      std::fprintf(stderr, "gpumap: link %s: client %u (%s, process %d) is disconnected: %s\n", printable(path).c_str(),
                   event.who.index, event.who.name.c_str(), static_cast<int>(event.who.pid), event.reason.c_str());
    }
    if (options.on_client) options.on_client(event.who, event.reason);
  }
  for (LinkQuestion& question : asked) {
    if (!options.on_question(question)) answer(question, {});
  }
  return !now.empty();
}

// What a server tells its observers.

bool LinkServer::State::takes_times() const noexcept {
  return ring && ring->stamping() && Clock::now() < watched_until;
}

void LinkServer::State::take_time(std::uint32_t index, std::uint32_t slot, std::int64_t now_ns) noexcept {
  const std::uint64_t time_ns = since(leases[slot].info().publish_ns, now_ns);
  ++clients[index]->timed;
  clients[index]->timed_ns += time_ns;
  ++clients[index]->times[LinkTimeSteps::bucket_of(time_ns)];
}

void LinkServer::State::report_to(const Newcomer& observer) {
  const Deadline now = Clock::now();
  if (last_report.empty() || now >= report_until) {
    last_report = make_report(now);
    report_until = now + report_age;
  }
  // One message into an empty socket. An observer that does not read it costs its memory until the socket closes.
  static_cast<void>(link::send_message(observer.socket.get(), last_report));
}

link::Bytes LinkServer::State::make_report(Deadline now) {
  link::RingFigures figures;
  std::vector<link::ClientFigures> all;
  all.reserve(max_link_clients);
  figures.program = link::to_name(program_invocation_short_name);

  const std::lock_guard lock(mutex);
  if (!ring) return {};
  figures.slots = ring->slots();
  figures.slot_bytes = ring->slot_bytes();
  figures.transport = static_cast<std::uint32_t>(ring->transport());
  figures.stamps = ring->stamping() ? 1 : 0;
  const RingCounters counted = ring->counters();
  figures.dropped = counted.overtaken + (options.dropped != nullptr ? options.dropped->load() : counted.refused);
  ++counters.observed;
  collect(false);  // an observer gets no times of slots that came back before it watched
  watched_until = now + watch_time;
  const std::int64_t now_ns = monotonic_ns();
  figures.at_ns = static_cast<std::uint64_t>(now_ns);
  figures.queued = ring->queued();
  figures.busy = fan->busy();
  figures.frames = handed_on.frames;
  figures.bytes = handed_on.bytes;
  figures.unseen = handed_on.unseen;
  struct Oldest {
    std::uint64_t sequence = 0;
    std::int64_t publish_ns = 0;
    bool any = false;
  };
  std::array<Oldest, max_link_clients> oldest{};
  for (std::uint32_t slot = 0; slot < figures.slots; ++slot) {
    const std::uint32_t holders = fan->holders(slot);
    if (holders == 0) continue;
    const FrameInfo& info = leases[slot].info();
    for (std::uint32_t index = 0; index < max_link_clients; ++index) {
      Oldest& one = oldest[index];
      if ((holders >> index & 1U) == 0 || (one.any && one.sequence <= info.sequence)) continue;
      one = {info.sequence, info.publish_ns, true};
    }
  }
  for (const auto& client : clients) {
    if (!client) continue;
    const LinkClient who = describe(*client);
    const Oldest& first = oldest[who.index];
    link::ClientFigures one;
    one.index = who.index;
    one.connection = who.connection;
    one.pid = static_cast<std::uint32_t>(who.pid);
    one.uid = who.uid;
    one.leak = static_cast<std::uint32_t>(who.leak);
    one.slots = who.slots;
    one.shown = who.shown;
    one.dropped = who.dropped;
    one.lag = first.any ? handed_on.newest - first.sequence + 1 : 0;
    one.lag_ns = first.any ? since(first.publish_ns, now_ns) : 0;
    one.timed = client->timed;
    one.timed_ns = client->timed_ns;
    one.times = client->times;
    one.name = link::to_name(who.name);
    all.push_back(one);
  }
  return link::encode_report(generation, figures, all);
}

}  // namespace gpumap
