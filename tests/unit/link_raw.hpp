// SPDX-License-Identifier: MIT
// A client and a server that speak the wire by themselves, so that they can lie.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "link/link_memory.hpp"
#include "link/socket.hpp"
#include "link/wire.hpp"
#include "link_helpers.hpp"

namespace gpumap::test {

class RawClient {
 public:
  explicit RawClient(std::string path) : path_(std::move(path)), buffer_(link::largest_message) { connect(); }
  [[nodiscard]] int fd() const { return socket_.get(); }
  void send(const link::Bytes& bytes, std::span<const int> fds = {}) const {
    EXPECT_EQ(link::send_message(socket_.get(), bytes, fds), link::Sent::ok);
  }
  /// The next message; empty once the server has closed. It is valid until the next call.
  std::optional<link::Message> receive() {
    pollfd polled{socket_.get(), POLLIN, 0};
    std::size_t bytes = 0;
    if (poll(&polled, 1, 20'000) <= 0) {
      ADD_FAILURE() << "the server says nothing";
      return std::nullopt;
    }
    if (link::receive_message(socket_.get(), buffer_, bytes, &fds_) != link::Received::message) return std::nullopt;
    auto message = link::parse({buffer_.data(), bytes});
    EXPECT_TRUE(message);
    return message;
  }
  /// Say the first word, and hear the answer; empty where the server closes without one. It waits for that word for a
  /// second: where a busy machine made this one later than that, from the beginning.
  std::optional<link::Message> say_first(const link::Bytes& bytes) {
    for (const Deadline end = soon();; connect()) {
      const bool sent = link::send_message(socket_.get(), bytes) == link::Sent::ok;
      if (sent) {
        if (auto answer = receive()) return answer;
      }
      const Deadline now = Clock::now();
      if (now - connected_ >= 1s && now < end) continue;
      EXPECT_TRUE(sent);
      return std::nullopt;
    }
  }
  /// Why the server refuses it at its first word; "nothing" where it closes in silence.
  std::string refusal_of(const link::Bytes& bytes) {
    const auto answer = say_first(bytes);
    const auto* refuse = answer ? std::get_if<link::Refuse>(&answer->body) : nullptr;
    return refuse != nullptr ? std::string(refuse->text) : "nothing";
  }
  /// Say hello as it should be.
  void join(LinkLeak leak = LinkLeak::no) {
    link::Hello hello;
    hello.leak = static_cast<std::uint32_t>(leak);
    hello.name = {'l', 'i', 'a', 'r'};
    const auto message = say_first(link::encode(0, hello));
    ASSERT_TRUE(message && std::holds_alternative<link::Welcome>(message->body));
    ASSERT_EQ(fds_.size(), 2U);
    generation_ = message->generation;
    slots_ = std::get<link::Welcome>(message->body).slots;
    memory_ = std::make_unique<link::BlockMemory>(std::move(fds_[1]), slots_, generation_);
  }
  [[nodiscard]] link::ClientBlock& block() const { return memory_->block(); }
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  /// Why the server ends it; "nothing" where it closes in silence.
  std::string farewell() {
    for (;;) {
      const auto message = receive();
      if (!message) return "nothing";
      if (const auto* bye = std::get_if<link::Bye>(&message->body)) return std::string(bye->text);
      if (const auto* refuse = std::get_if<link::Refuse>(&message->body)) return std::string(refuse->text);
    }
  }
  void close() { socket_ = UniqueFd(); }

 private:
  void connect() {
    connected_ = Clock::now();
    socket_ = link::connect_to(path_);
    EXPECT_TRUE(socket_) << path_;
  }

  std::string path_;
  Deadline connected_;
  UniqueFd socket_;
  std::vector<std::byte> buffer_;
  std::vector<UniqueFd> fds_;
  std::unique_ptr<link::BlockMemory> memory_;
  std::uint64_t generation_ = 0;
  std::uint32_t slots_ = 0;
};

/// What a server of 4 slots has for one client.
struct HonestParts {
  link::Welcome welcome;
  UniqueFd memory;
  link::BlockMemory block{4, 5};
  std::shared_ptr<Mapping> mapping = make_link_memory(std::size_t{4} * 4096);
  HonestParts() {
    welcome.slots = 4;
    welcome.slot_bytes = 1000;
    welcome.slot_stride = 4096;
    welcome.memory = link::describe(*mapping, memory);
  }
  [[nodiscard]] std::array<int, 2> fds() const { return {memory.get(), block.fd()}; }
};

/// Lets one client in, by hand. A try of its that was not answered within 2 s is followed by another: each is told the
/// same, and the last one is it.
class Greeter {
 public:
  /// `then`: what it is told after the welcome, if anything. `leaves`: nothing more follows, and the server closes.
  Greeter(const link::Listener& listener, const link::Welcome& welcome, std::span<const int> fds, link::Bytes then = {},
          bool leaves = false)
      : listener_(listener),
        welcome_(link::encode(5, welcome)),
        fds_(fds.begin(), fds.end()),
        then_(std::move(then)),
        leaves_(leaves),
        thread_([this] { greet(); }) {}
  ~Greeter() { stop(); }
  Greeter(const Greeter&) = delete;
  Greeter& operator=(const Greeter&) = delete;
  /// The client is connected: the server's end.
  UniqueFd take() {
    stop();
    return std::move(socket_);
  }

 private:
  void stop() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void greet() {
    std::vector<std::byte> hello(1000);
    for (; !over_; std::this_thread::sleep_for(1ms)) {
      UniqueFd next = listener_.accept();
      if (!next) continue;
      socket_ = std::move(next);
      std::size_t bytes = 0;
      comes_true(
          [&] { return over_ || link::receive_message(socket_.get(), hello, bytes) == link::Received::message; });
      // Where it has given up meanwhile nobody hears it.
      static_cast<void>(link::send_message(socket_.get(), welcome_, fds_));
      if (!then_.empty()) static_cast<void>(link::send_message(socket_.get(), then_));
      if (leaves_) socket_ = UniqueFd();
    }
  }

  const link::Listener& listener_;
  const link::Bytes welcome_;
  const std::vector<int> fds_;
  const link::Bytes then_;
  const bool leaves_;
  UniqueFd socket_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

/// A server of one client, whose every word is the test's.
struct RawServer {
  RawServer() : listener(path(), 0600) {}
  [[nodiscard]] std::string path() const { return folder.path() / "link"; }
  /// Greets it as it should be.
  std::unique_ptr<LinkConsumer> consumer(LinkConsumerOptions options = {}) {
    Greeter greeter(listener, parts.welcome, parts.fds());
    options.path = path();
    options.patience = patience;
    auto made = LinkConsumer::connect(std::make_shared<FakeDevice>(), std::move(options));
    socket = greeter.take();
    return made;
  }

  TemporaryFolder folder;
  link::Listener listener;
  HonestParts parts;
  UniqueFd socket;
};

}  // namespace gpumap::test
