// SPDX-License-Identifier: MIT
// A client and a server that speak the wire by themselves, so that they can lie.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "link/memory.hpp"
#include "link/socket.hpp"
#include "link/wire.hpp"
#include "link_helpers.hpp"

namespace gpumap::test {

class RawClient {
 public:
  explicit RawClient(const std::string& path) : socket_(link::connect_to(path)), buffer_(link::largest_message) {
    EXPECT_TRUE(socket_) << path;
  }
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
  /// Say hello as it should be.
  void join(LinkLeak leak = LinkLeak::no) {
    link::Hello hello;
    hello.leak = static_cast<std::uint32_t>(leak);
    hello.name = {'l', 'i', 'a', 'r'};
    send(link::encode(0, hello));
    const auto message = receive();
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

/// A server of one client, whose every word is the test's.
struct RawServer {
  RawServer() : listener(path(), 0600) {}
  [[nodiscard]] std::string path() const { return folder.path() / "link"; }
  /// Greets it as it should be.
  std::unique_ptr<LinkConsumer> consumer(LinkConsumerOptions options = {}) {
    std::thread greeter([this] {
      std::vector<std::byte> hello(1000);
      std::size_t bytes = 0;
      comes_true([&] { return static_cast<bool>(socket = listener.accept()); });
      comes_true([&] { return link::receive_message(socket.get(), hello, bytes) == link::Received::message; });
      EXPECT_EQ(link::send_message(socket.get(), link::encode(5, parts.welcome), parts.fds()), link::Sent::ok);
    });
    options.path = path();
    auto made = LinkConsumer::connect(std::make_shared<FakeDevice>(), std::move(options));
    greeter.join();
    return made;
  }

  TemporaryFolder folder;
  link::Listener listener;
  HonestParts parts;
  UniqueFd socket;
};

}  // namespace gpumap::test
