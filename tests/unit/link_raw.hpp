// SPDX-License-Identifier: MIT
// A client that speaks the wire by itself, so that it can lie.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <optional>
#include <string>
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

}  // namespace gpumap::test
