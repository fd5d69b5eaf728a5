// SPDX-License-Identifier: MIT
// A consumer finds its server: tries, with growing pauses, and the first two messages.

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"
#include "link/link_consumer.hpp"

namespace gpumap {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds time_to_answer{2000};
constexpr milliseconds cancel_interval{10};
/// A server that ends while another one follows also refuses clients, but for less time.
constexpr std::chrono::seconds time_to_get_place{1};

link::Hello make_hello(const LinkConsumerOptions& options) {
  link::Hello hello;
  hello.leak = static_cast<std::uint32_t>(options.leak);
  if (options.name.size() >= hello.name.size()) {
    throw Error(ErrorCode::invalid, fmt::format("a client's name of {} bytes requested, at most {} allowed: shorten it",
                                                options.name.size(), hello.name.size() - 1));
  }
  std::copy(options.name.begin(), options.name.end(), hello.name.begin());
  if (!link::parse(link::encode(0, hello))) {
    throw Error(ErrorCode::invalid, "a client's name has bytes that cannot be printed: choose another");
  }
  return hello;
}

struct Reply {
  UniqueFd socket;  ///< empty: try again, for `trouble`
  std::string trouble;
  bool is_full = false;    ///< the server has no place
  bool is_silent = false;  ///< it listens, and does not answer
  link::Welcome welcome;
  std::uint64_t generation = 0;
  std::vector<UniqueFd> fds;
};

[[noreturn]] void refused(const std::string& path, std::string_view text) {
  throw Error(ErrorCode::invalid, fmt::format("the server at {} refuses: {}", printable(path), printable(text)));
}

/// Of use to nobody is another try: each would cost frames that the server offers to the new client.
[[noreturn]] void no_room(const std::string& path, const char* why) {
  throw Error(ErrorCode::no_resources, fmt::format("this process cannot connect to {}: {}", printable(path), why),
              "raise its limit on open files (ulimit -n), or close some");
}

bool is_cancelled(const LinkConsumerOptions& options) {
  return options.cancel != nullptr && options.cancel->load();
}

/// Whether an answer came. Can be cancelled while the server is suspended.
bool wait_for_answer(int socket, const LinkConsumerOptions& options) {
  pollfd polled{socket, POLLIN, 0};
  const Deadline end = Clock::now() + time_to_answer;
  while (Clock::now() < end && !is_cancelled(options)) {
    const int ready = poll(&polled, 1, static_cast<int>(cancel_interval.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
  return false;
}

/// One try. Throws Error(invalid), or Error(no_resources), when another try cannot succeed.
Reply say_hello(const LinkConsumerOptions& options, const link::Hello& hello) {
  Reply reply;
  UniqueFd socket = link::connect_to(options.path);
  if (!socket) {
    const int cause = errno;
    reply.is_silent = cause == EAGAIN;  // the server's queue is full: it takes nobody in
    if (!reply.is_silent && code_of_errno(cause) == ErrorCode::no_resources)
      no_room(options.path, std::strerror(cause));
    reply.trouble = std::strerror(cause);
    return reply;
  }
  const link::Peer peer = link::peer_of(socket.get());
  if (!link::is_allowed(peer, options.allowed_users)) {
    throw Error(ErrorCode::invalid, fmt::format("{} is served by user {}, who is not trusted here: run both as one "
                                                "user, or allow it",
                                                printable(options.path), peer.uid));
  }
  const link::Bytes bytes = link::encode(options.generation, hello);
  std::vector<std::byte> buffer(link::largest_message);
  std::size_t got = 0;
  // A server that is suspended, or dies now, costs one try. A server that refuses may have closed the socket already,
  // and has said why.
  static_cast<void>(link::send_message(socket.get(), bytes));
  auto received = link::Received::nothing;
  if (wait_for_answer(socket.get(), options)) {
    received = link::receive_message(socket.get(), buffer, got, &reply.fds);
  }
  if (received == link::Received::no_descriptors) no_room(options.path, "no room for the server's descriptors");
  if (received != link::Received::message) {
    reply.is_silent = received == link::Received::nothing;
    reply.trouble = "no answer";
    return reply;
  }
  bool other_version = false;
  const auto message = link::parse({buffer.data(), got}, &other_version);
  if (other_version) refused(options.path, "it speaks another version of the link: use the same gpumap on both sides");
  if (!message) refused(options.path, "it sent an invalid message");
  if (const auto* refuse = std::get_if<link::Refuse>(&message->body)) {
    reply.is_full = refuse->why == link::Why::full;
    if (!reply.is_full && refuse->why != link::Why::ended) refused(options.path, refuse->text);
    reply.trouble = printable(refuse->text);
    return reply;
  }
  const auto* welcome = std::get_if<link::Welcome>(&message->body);
  const bool same = options.generation == 0 || options.generation == message->generation;
  if (welcome == nullptr || reply.fds.size() != 2 || message->generation == 0 || !same) {
    refused(options.path, "its welcome is incomplete");
  }
  reply.welcome = *welcome;
  reply.generation = message->generation;
  reply.socket = std::move(socket);
  return reply;
}

}  // namespace

std::unique_ptr<LinkConsumer> LinkConsumer::connect(std::shared_ptr<Device> device, LinkConsumerOptions options) {
  if (!device) throw Error(ErrorCode::invalid, "a link's consumer needs a device, got none: open one");
  return connect_on(std::move(device), std::move(options));
}

std::unique_ptr<LinkConsumer> LinkConsumer::connect(LinkConsumerOptions options) {
  return connect_on(nullptr, std::move(options));
}

/// `device` null: on the device of the server's memory.
std::unique_ptr<LinkConsumer> LinkConsumer::connect_on(std::shared_ptr<Device> device, LinkConsumerOptions options) {
  const link::Hello hello = make_hello(options);
  const Deadline end =
      Clock::now() + std::min<std::chrono::nanoseconds>(options.patience, std::chrono::hours(24 * 365));
  Deadline full_from = Deadline::max();
  for (const Deadline began = Clock::now();;) {
    Reply reply = say_hello(options, hello);
    if (reply.socket) {
      options.on_full = nullptr;
      auto state = std::make_shared<State>(std::move(device), std::move(options), std::move(reply.socket),
                                           reply.welcome, reply.generation, reply.fds);
      auto consumer = std::unique_ptr<LinkConsumer>(new LinkConsumer(state));
      State::start(std::move(state));
      return consumer;
    }
    const Deadline now = Clock::now();
    full_from = reply.is_full ? std::min(full_from, now) : Deadline::max();
    if (reply.is_full && options.on_full && now - full_from >= time_to_get_place) {
      std::exchange(options.on_full, nullptr)(reply.trouble);
    }
    const Deadline next = now + link::pause_after(now - began);
    while (Clock::now() < std::min(next, end)) {
      if (is_cancelled(options)) break;
      std::this_thread::sleep_for(std::min<Clock::duration>(std::min(next, end) - Clock::now(), cancel_interval));
    }
    const bool cancelled = is_cancelled(options);
    if (cancelled || Clock::now() >= end) {
      const std::string path = printable(options.path);
      const char* const ends = cancelled ? ", cancelled" : "";
      if (reply.is_full) {
        throw Error(ErrorCode::busy, fmt::format("the server at {} has no place: {}{}", path, reply.trouble, ends));
      }
      if (reply.is_silent) {
        throw Error(
            ErrorCode::busy, fmt::format("the process that listens at {} does not answer{}", path, ends),
            "it has no frame yet, is suspended, or is no gpumapsink: see which it is (ss -xlp), or wait longer");
      }
      throw Error(ErrorCode::not_found, fmt::format("nobody serves {} ({}){}", path, reply.trouble, ends),
                  "start the producer first, or wait longer for it");
    }
  }
}

}  // namespace gpumap
