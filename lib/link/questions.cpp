// SPDX-License-Identifier: MIT
// What a consumer says and asks beside the frames, and what it hears at once.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "gpumap/error.hpp"
#include "link/consumer_state.hpp"

namespace gpumap {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds second_look{100};
/// The thread that calls next() may have read the answer.
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

void LinkConsumer::State::begin_call() {
  if (incoming.begin_call() && !incoming.answers.empty()) changed.notify_all();
}

void LinkConsumer::State::ring_bell() const noexcept {
  constexpr std::uint64_t one = 1;
  static_cast<void>(!write(bell.get(), &one, sizeof one));
}

LinkNext LinkConsumer::hear(LinkFrame& frame, Deadline deadline) {
  const std::shared_ptr<State> state = state_;
  if (!state->process.here()) [[unlikely]]
    return LinkNext::closed;
  std::unique_lock lock(state->mutex);
  state->begin_call();
  for (bool late = false;;) {
    state->collect();
    if (state->interrupted.exchange(false)) return LinkNext::interrupted;
    if (state->incoming.readable && !state->incoming.ended) state->read_incoming();
    if (state->incoming.take_urgent(frame)) return LinkNext::message;
    // Who waits for no time looks once all the same.
    if (late) return LinkNext::timeout;
    late = Clock::now() >= deadline;
    // What stays unread would keep poll() from sleeping.
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
                       Answer when) {
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
    lock.lock();
    if (ready <= 0 || place) continue;
    state->read_incoming();
    // What was read may be what the other thread sleeps for.
    state->ring_bell();
    // No room for messages: the other thread has to take some first.
    if (!place && state->incoming.readable) state->changed.wait_for(lock, milliseconds(1));
  }
  const bool came = place.has_value();
  // Of the two each in its order: what came later may overtake.
  const auto dealt_with = [&, first = state->incoming.in_order.read, second = state->incoming.at_once.read] {
    return state->incoming.in_order.done >= first && state->incoming.at_once.done >= second;
  };
  while (came && when == Answer::in_order && !dealt_with() && !state->incoming.ended && Clock::now() < deadline) {
    state->changed.wait_until(lock, std::min<Deadline>(deadline, Clock::now() + second_look));
  }
  if (came) answer = std::move(*place);
  state->incoming.answers.erase(number);
  return came;
}

}  // namespace gpumap
