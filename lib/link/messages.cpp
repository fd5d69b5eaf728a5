// SPDX-License-Identifier: MIT
// What the producer sends its clients beside the frames, and what it takes back.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "gpumap/error.hpp"
#include "link/server_state.hpp"

namespace gpumap {
namespace {

void check_size(std::span<const std::byte> message, std::size_t most = max_link_message) {
  if (message.size() <= most) return;
  throw Error(ErrorCode::invalid, fmt::format("a message of {} bytes for a link, at most {} allowed: send it in parts",
                                              message.size(), most));
}

constexpr std::size_t enough_unread = 256;

}  // namespace

void LinkServer::send(std::span<const std::byte> message, std::uint32_t keep) {
  State& state = *state_;
  check_size(message);
  if (!state.process.here()) [[unlikely]]
    return;
  const std::lock_guard order(state.order);
  const std::lock_guard lock(state.mutex);
  if (keep != 0) state.kept[keep].assign(message.begin(), message.end());
  for (auto& client : state.clients) {
    if (client) state.send_to(*client, message);
  }
}

void LinkServer::send_at_once(std::span<const std::byte> message, Unread unread) {
  check_size(message);
  if (!state_->process.here()) [[unlikely]]
    return;
  const std::lock_guard lock(state_->mutex);
  for (auto& client : state_->clients) {
    if (client && (unread == Unread::send || client->backlog.size() <= enough_unread))
      state_->send_to(*client, message, true);
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
  deliver(*client, link::encode_answer(generation, {question.number}, text));
}

/// Its backlog may not grow further.
bool LinkServer::State::leaves_unread(const std::unique_ptr<Client>& client) {
  return client && client->who.leak == LinkLeak::no && client->backlog.size() > enough_unread;
}

bool LinkServer::wait_until_read(Deadline deadline) {
  State& state = *state_;
  if (!state.process.here()) return true;
  std::unique_lock lock(state.mutex);
  const auto& clients = state.clients;
  while (std::any_of(clients.begin(), clients.end(), State::leaves_unread)) {
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
    if (!State::leaves_unread(state.clients[index])) continue;
    state.drop(index, link::Why::stalled,
               fmt::format("it left {} messages unread while the producer waited for it: it is stopped or paused, or "
                           "too slow for a client that may miss nothing",
                           state.clients[index]->backlog.size()));
  }
}

void LinkServer::withdraw_all() {
  if (!state_->process.here()) [[unlikely]]
    return;
  const std::lock_guard order(state_->order);
  const std::lock_guard lock(state_->mutex);
  state_->fan.withdraw_all();
}

void LinkServer::announce_successor() {
  if (!state_->process.here()) return;
  const std::lock_guard lock(state_->mutex);
  state_->moves = true;
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
  return state.fan.make_room(true);
}

/// Who keeps the oldest frame. One that may miss frames has but its share of the slots: it is asked last.
std::uint32_t LinkServer::State::who_stalls(std::uint64_t& oldest) const {
  std::uint32_t may_stall = 0;
  for (const auto& client : clients) {
    if (client && client->who.leak == LinkLeak::no) may_stall |= 1U << client->who.index;
  }
  for (const std::uint32_t among : {may_stall, ~0U}) {
    std::uint32_t holders = 0;
    oldest = std::numeric_limits<std::uint64_t>::max();
    for (std::uint32_t slot = 0; slot < ring->slots(); ++slot) {
      if ((fan.holders(slot) & among) == 0 || leases[slot].info().sequence >= oldest) continue;
      oldest = leases[slot].info().sequence;
      holders = fan.holders(slot) & among;
    }
    if (holders != 0) return holders;
  }
  return 0;
}

bool LinkServer::State::end_stall(Deadline since) {
  const std::uint32_t before = fan.busy();
  collect(true);
  const Deadline now = Clock::now();
  // Where clients have nothing they keep nobody waiting: what for, and since when, is the producer's affair.
  if (before == 0) nobody_holds = now;
  const auto waited = now - std::max(since, nobody_holds);
  if (options.stall_limit.count() > 0 && waited >= options.stall_limit) {
    while (fan.busy() == before) {
      std::uint64_t oldest = 0;
      const std::uint32_t holders = who_stalls(oldest);
      if (holders == 0) break;  // the producer has them all
      for (std::uint32_t index = 0; index < max_link_clients; ++index) {
        if ((holders >> index & 1U) == 0) continue;
        drop(index, link::Why::stalled,
             fmt::format("it kept frame {} while the producer found no slot for {} ms: it is stopped, or too slow for "
                         "a client that may miss nothing",
                         oldest, std::chrono::duration_cast<std::chrono::milliseconds>(waited).count()));
      }
    }
  }
  return fan.busy() != before;
}

bool LinkServer::end_stall(Deadline since) {
  State& state = *state_;
  if (!state.process.here()) [[unlikely]]
    return false;
  const std::lock_guard lock(state.mutex);
  return state.end_stall(since);
}

}  // namespace gpumap
