// SPDX-License-Identifier: MIT
#include "link/incoming.hpp"

#include <sys/socket.h>

#include <utility>

#include "link/socket.hpp"

namespace gpumap::link {
namespace {

/// Messages, and their bytes, that wait here to be taken; further ones wait in the socket.
constexpr std::size_t longest_inbox = 2048;
constexpr std::size_t largest_inbox = 16 * max_link_message;
constexpr std::size_t most_rings = 16;  ///< each has two descriptors
/// How much more room there is before a message that overtakes: a server keeps at most 1,024 messages for a client,
/// beside those that fill a socket.
constexpr std::size_t times_for_urgent = 2;
/// Messages read in a row: more than a socket holds, and bounded, because a server may send as fast as they are read.
constexpr int messages_a_turn = 1024;

}  // namespace

Incoming::Incoming(int socket, std::uint64_t generation)
    : socket_(socket), generation_(generation), buffer_(largest_message) {}

void Incoming::hang_up(const std::string& reason) {
  if (why.empty()) why = reason;
  ended = true;
  gone = true;
  shutdown(socket_, SHUT_RDWR);
}

void Incoming::hang_up_unexplained(const std::string& what) {
  is_unexplained = is_unexplained || why.empty();
  hang_up(what);
}

bool Incoming::discard() {
  inbox.clear();
  urgent.clear();
  held_ = rings_ = 0;
  if (!gone) read_all(0);
  return gone;
}

void Incoming::take_data(const Data& data) {
  const DataHead& last = unfinished_.head;
  const bool follows = last.rest != 0;
  if (data.head.number != ++letters_) {
    hang_up("the server left a message out");
    return;
  }
  if (data.head.rest > max_link_message - data.payload.size() || (data.head.rest != 0 && data.payload.empty()) ||
      (follows && (data.head.before != last.before || data.head.rest + data.payload.size() != last.rest))) {
    hang_up("the server sent parts that are no message");
    return;
  }
  unfinished_.head = data.head;
  unfinished_.payload.insert(unfinished_.payload.end(), data.payload.begin(), data.payload.end());
  if (data.head.rest != 0) return;
  Letter whole = std::exchange(unfinished_, {});
  held_ += whole.payload.size();
  if (whole.head.before == link::at_once) {
    ++at_once_read;
    urgent.push_back(std::move(whole.payload));
  } else {
    inbox.push_back(std::move(whole));
  }
}

void Incoming::take_next(const NextRing& next) {
  if (next.head.number != ++letters_ || unfinished_.head.rest != 0) {
    hang_up("the server left a message out");
    return;
  }
  const bool has_ring = next.ring.slots != 0;
  if (has_ring && fds_.size() != 2) {
    hang_up("no descriptors came with the producer's next ring: raise this process's limit on open files (ulimit -n)");
    return;
  }
  ++rings_;
  inbox.push_back({next.head, {}, next.ring, has_ring ? std::exchange(fds_, {}) : std::vector<UniqueFd>()});
}

void Incoming::take_in(const Message& message) {
  if (message.generation != generation_) {
    hang_up("the server sent a message of another ring");
  } else if (const auto* data = std::get_if<Data>(&message.body)) {
    take_data(*data);
  } else if (const auto* next = std::get_if<NextRing>(&message.body)) {
    take_next(*next);
  } else if (const auto* answer = std::get_if<Answer>(&message.body)) {
    const auto found = answers.find(answer->head.number);  // gone when the caller's deadline has passed
    if (found != answers.end()) found->second.emplace(answer->payload.begin(), answer->payload.end());
  } else if (const auto* bye = std::get_if<Bye>(&message.body)) {
    why = bye->text;
    ended_well = bye->why == Why::ended;
    ended = true;
  } else if (!std::holds_alternative<Look>(message.body)) {
    hang_up("the server sent a message that only clients send");
  }
}

bool Incoming::has_room(std::uint64_t urgent_sent) const noexcept {
  const std::size_t times = at_once_read < urgent_sent ? times_for_urgent : 1;
  return inbox.size() + urgent.size() < times * longest_inbox && held_ < times * largest_inbox &&
         rings_ < times * most_rings;
}

void Incoming::read_all(std::uint64_t urgent_sent) {
  for (int turn = 0; turn < messages_a_turn && has_room(urgent_sent); ++turn) {
    std::size_t bytes = 0;
    fds_.clear();
    switch (receive_message(socket_, buffer_, bytes, &fds_)) {
      case Received::nothing:
        readable = false;
        return;
      case Received::gone:
        readable = false;
        hang_up_unexplained("the server is gone");
        return;
      case Received::too_long:
        hang_up("the server sent a message that is too long");
        return;
      case Received::no_descriptors:  // take_next() misses them
      case Received::message:
        break;
    }
    const auto message = parse({buffer_.data(), bytes});
    if (!message) {
      hang_up("the server sent an invalid message");
      return;
    }
    take_in(*message);
  }
}

bool Incoming::take_urgent(LinkFrame& frame) {
  if (urgent.empty()) return false;
  frame.info = {};
  held_ -= urgent.front().size();
  frame.message = std::move(urgent.front());
  urgent.pop_front();
  return true;
}

void Incoming::take_letter(LinkFrame& frame) {
  frame.info = {};
  held_ -= inbox.front().payload.size();
  frame.message = std::move(inbox.front().payload);
  inbox.pop_front();
  ++taken_;
}

Incoming::Letter Incoming::take_ring() {
  Letter ring = std::move(inbox.front());
  inbox.pop_front();
  --rings_;
  ++taken_;
  return ring;
}

bool Incoming::begin_call() noexcept {
  return std::exchange(dealt_with, taken_) != taken_;
}

}  // namespace gpumap::link
