// SPDX-License-Identifier: MIT
// What the producer sends its clients beside the frames, what it takes back, and whom it waits for.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "gpumap/error.hpp"
#include "link/link_server.hpp"

namespace gpumap {
namespace {

constexpr std::size_t enough_unread = 256;

void check_size(std::span<const std::byte> message, std::size_t most = max_link_message) {
  if (message.size() <= most) return;
  throw Error(ErrorCode::invalid, fmt::format("a message of {} bytes for a link, at most {} allowed: send it in parts",
                                              message.size(), most));
}

}  // namespace

void LinkServer::send(std::span<const std::byte> message, std::uint32_t keep, Unread unread) {
  State& state = *state_;
  check_size(message);
  if (!state.process.here()) [[unlikely]]
    return;
  const std::lock_guard order(state.order);
  const std::lock_guard lock(state.mutex);
  if (keep != 0) state.kept[keep].assign(message.begin(), message.end());
  for (auto& client : state.clients) {
    if (!client || (unread == Unread::skip && State::may_miss(*client))) continue;
    if (unread == Unread::replace && state.replace_last(*client, message, keep)) continue;
    state.send_to(*client, message, keep);
  }
}

void LinkServer::send_at_once(std::span<const std::byte> message, Unread unread) {
  check_size(message);
  if (!state_->process.here()) [[unlikely]]
    return;
  const std::lock_guard lock(state_->mutex);
  for (auto& client : state_->clients) {
    if (client && (unread != Unread::skip || client->backlog.size() <= enough_unread))
      state_->send_to(*client, message, 0, true);
  }
}

void LinkServer::answer(const LinkQuestion& question, std::span<const std::byte> text) {
  check_size(text, max_link_answer);
  if (state_->process.here()) state_->answer(question, text);
}

void LinkServer::State::answer(const LinkQuestion& question, std::span<const std::byte> text) {
  if (question.number == 0 || question.server != generation) return;
  const std::lock_guard lock(mutex);
  const auto& client = clients.at(question.who.index);
  if (!client || client->who.connection != question.who.connection) return;
  if (client->asked > 0) --client->asked;
  deliver(*client, {link::encode_answer(generation, {question.number}, text)});
}

bool LinkServer::all_follow(Whom whom) const {
  if (!state_->process.here()) return true;
  const std::lock_guard lock(state_->mutex);
  return std::none_of(state_->clients.begin(), state_->clients.end(), [whom](const auto& client) {
    if (!client) return false;
    const bool counts = whom == Whom::all && !client->who.ended && !client->is_behind;
    return State::holds_up(*client) || (counts && !State::is_here(*client));
  });
}

/// Whether the client may miss a message, as it may miss frames, and has not taken many.
bool LinkServer::State::may_miss(const Client& client) {
  return client.who.leak != LinkLeak::no &&
         client.letters - client.memory->block().dealt_with.load(std::memory_order_relaxed) > enough_unread;
}

/// Whether the client's backlog must not grow further.
bool LinkServer::State::leaves_unread(const std::unique_ptr<Client>& client) {
  return client && client->who.leak == LinkLeak::no && client->backlog.size() > enough_unread;
}

void LinkServer::State::look_for_unread() noexcept {
  unread.store(std::any_of(clients.begin(), clients.end(), leaves_unread), std::memory_order_relaxed);
}

bool LinkServer::wait_until_read(Deadline deadline) {
  State& state = *state_;
  if (!state.process.here() || !state.unread.load(std::memory_order_relaxed)) return true;
  std::unique_lock lock(state.mutex);
  while (state.unread.load(std::memory_order_relaxed)) {
    if (Clock::now() >= deadline) return false;
    state.changed.wait_until(lock, deadline);
  }
  return true;
}

void LinkServer::end_unread() {
  State& state = *state_;
  if (!state.process.here()) return;
  const std::lock_guard lock(state.mutex);
  for (std::uint32_t index = 0; index < max_link_clients; ++index) {
    const auto& client = state.clients[index];
    if (client && State::holds_up(*client)) {
      state.drop(
          index, link::Why::stalled,
          "it keeps frames of the last ring while the producer waits to go on with another one: it is stopped or "
          "paused, or too slow for a client that may miss nothing");
      continue;
    }
    if (!State::leaves_unread(client)) continue;
    state.drop(index, link::Why::stalled,
               fmt::format("it left {} messages unread while the producer waited for it: it is stopped or paused, or "
                           "too slow for a client that may miss nothing",
                           state.clients[index]->backlog.size()));
  }
}

void LinkServer::mark() {
  if (!state_->process.here()) return;
  const std::lock_guard lock(state_->mutex);
  for (const auto& client : state_->clients) {
    if (client) client->marked = client->letters;
  }
}

bool LinkServer::is_past_mark(const LinkQuestion& question) const {
  if (!state_->process.here()) return true;
  const std::lock_guard lock(state_->mutex);
  const LinkClient& asker = question.who;
  const auto counts = [&](const State::Client& client) {
    if (question.server == state_->generation && client.who.connection == asker.connection) return true;
    // Processes of a namespace that is not seen here all have the number 0.
    return asker.pid != 0 && client.who.pid == asker.pid && client.has_asked;
  };
  return std::ranges::none_of(state_->clients, [&](const auto& client) {
    return client && !client->who.ended && counts(*client) &&
           client->memory->block().dealt_with.load(std::memory_order_relaxed) < client->marked;
  });
}

void LinkServer::withdraw_all() {
  if (!state_->process.here()) [[unlikely]]
    return;
  const std::lock_guard order(state_->order);
  const std::lock_guard lock(state_->mutex);
  state_->fan->withdraw_all();
}

void LinkServer::forget(std::uint32_t keep) {
  if (!state_->process.here()) return;
  const std::lock_guard lock(state_->mutex);
  state_->kept.erase(keep);
}

bool LinkServer::make_room() {
  State& state = *state_;
  if (!state.process.here()) [[unlikely]]
    return false;
  const std::lock_guard lock(state.mutex);
  return state.fan->make_room(true);
}

/// The clients that hold the oldest frame. Clients that may miss frames have only their share of the slots, so they are
/// considered last.
std::uint32_t LinkServer::State::who_stalls(std::uint64_t& oldest) const {
  std::uint32_t may_stall = 0;
  for (const auto& client : clients) {
    if (client && client->who.leak == LinkLeak::no) may_stall |= 1U << client->who.index;
  }
  for (const std::uint32_t among : {may_stall, ~0U}) {
    std::uint32_t holders = 0;
    oldest = std::numeric_limits<std::uint64_t>::max();
    for (std::uint32_t slot = 0; slot < slots(); ++slot) {
      if ((fan->holders(slot) & among) == 0 || leases[slot].info().sequence >= oldest) continue;
      oldest = leases[slot].info().sequence;
      holders = fan->holders(slot) & among;
    }
    if (holders != 0) return holders;
  }
  return 0;
}

bool LinkServer::State::end_stall(Deadline since) {
  const std::uint32_t before = fan->busy();
  collect(true);
  const Deadline now = Clock::now();
  // Clients without slots keep nobody waiting: then the producer waits for its own frames.
  if (before == 0) nobody_holds = now;
  // Between two looks this process may have been stopped, and its clients with it: so one look decides nothing.
  const Deadline last = std::max(since, std::exchange(stall_looked, now));
  const auto too_long = now - last - options.stall_limit / 2;
  if (too_long.count() > 0) nobody_holds = std::min<Deadline>(now, std::max(since, nobody_holds) + too_long);
  const auto waited = now - std::max(since, nobody_holds);
  if (options.stall_limit.count() > 0 && waited >= options.stall_limit) {
    while (fan->busy() == before) {
      std::uint64_t oldest = 0;
      const std::uint32_t holders = who_stalls(oldest);
      if (holders == 0) break;  // the producer holds all slots
      for (std::uint32_t index = 0; index < max_link_clients; ++index) {
        if ((holders >> index & 1U) == 0) continue;
        drop(index, link::Why::stalled,
             fmt::format("it kept frame {} while the producer found no slot for {} ms: it is stopped, or too slow for "
                         "a client that may miss nothing",
                         oldest + earlier_frames,
                         std::chrono::duration_cast<std::chrono::milliseconds>(waited).count()));
      }
    }
  }
  return fan->busy() != before;
}

std::optional<LinkClient> LinkServer::who_stalls() const {
  State& state = *state_;
  if (!state.process.here()) return std::nullopt;
  const std::lock_guard lock(state.mutex);
  std::uint64_t oldest = 0;
  if (const std::uint32_t holders = state.who_stalls(oldest); holders != 0) {
    return state.describe(*state.clients[static_cast<std::size_t>(std::countr_zero(holders))]);
  }
  // Frames wait for the next ring, or behind messages.
  const auto waited_for = std::find_if(state.clients.begin(), state.clients.end(), [](const auto& client) {
    return client && (State::holds_up(*client) || State::leaves_unread(client));
  });
  return waited_for != state.clients.end() ? std::optional(state.describe(**waited_for)) : std::nullopt;
}

bool LinkServer::end_stall(Deadline since) {
  State& state = *state_;
  if (!state.process.here()) [[unlikely]]
    return false;
  const std::lock_guard lock(state.mutex);
  return state.end_stall(since);
}

}  // namespace gpumap
