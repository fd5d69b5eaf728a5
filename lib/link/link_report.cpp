// SPDX-License-Identifier: MIT
// What a server tells its observers, in the service thread.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <vector>

#include "gpumap/latency.hpp"
#include "link/server_state.hpp"

namespace gpumap {
namespace {

/// However many ask, the frames' lock is taken this often at most.
constexpr std::chrono::milliseconds report_age{10};
/// An observer asks again within this time.
constexpr std::chrono::seconds watch_time{10};

std::uint64_t since(std::int64_t then_ns, std::int64_t now_ns) noexcept {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(now_ns - then_ns, 0));
}

}  // namespace

bool LinkServer::State::takes_times() const noexcept {
  return ring->stamping() && Clock::now() < watched_until;
}

void LinkServer::State::take_time(std::uint32_t index, std::uint32_t slot, std::int64_t now_ns) noexcept {
  ++clients[index]->timed;
  clients[index]->timed_ns += since(leases[slot].info().publish_ns, now_ns);
}

void LinkServer::State::report_to(const Newcomer& observer) {
  const Deadline now = Clock::now();
  if (last_report.empty() || now >= report_until) {
    last_report = make_report(now);
    report_until = now + report_age;
  }
  // One message into an empty socket. Who does not read it costs its memory until it closes.
  static_cast<void>(link::send_message(observer.socket.get(), last_report));
}

link::Bytes LinkServer::State::make_report(Deadline now) {
  link::RingFigures figures;
  std::vector<link::ClientFigures> all;
  all.reserve(max_link_clients);
  figures.program = link::to_name(program_invocation_short_name);
  figures.slots = ring->slots();
  figures.slot_bytes = ring->slot_bytes();
  figures.transport = static_cast<std::uint32_t>(ring->transport());
  figures.stamps = ring->stamping() ? 1 : 0;
  const RingCounters counted = ring->counters();
  figures.dropped = counted.overtaken + (options.dropped != nullptr ? options.dropped->load() : counted.refused);

  const std::lock_guard lock(mutex);
  ++counters.observed;
  collect(false);  // who begins to watch takes no times of what came back before
  watched_until = now + watch_time;
  const std::int64_t now_ns = monotonic_ns();
  figures.at_ns = static_cast<std::uint64_t>(now_ns);
  figures.queued = ring->queued();
  figures.busy = fan.busy();
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
    const std::uint32_t holders = fan.holders(slot);
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
    one.name = link::to_name(who.name);
    all.push_back(one);
  }
  return link::encode_report(generation, figures, all);
}

}  // namespace gpumap
