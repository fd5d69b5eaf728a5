// SPDX-License-Identifier: MIT
// Servers that never stop: one that sends as fast as it is read, one whose frame waits for ever. Whoever waits for
// something else is back at his deadline.
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "link_raw.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words
using link::Entry;
using link::Offer;

/// `act` over and over in more threads than there are readers; ends by itself where it has stopped somebody.
class Flood {
 public:
  explicit Flood(const std::function<void()>& act) {
    for (int n = 0; n < 3; ++n) {
      threads_.emplace_back([this, act, end = soon()] {
        while (!done_ && Clock::now() < end) act();
      });
    }
  }
  ~Flood() {
    done_ = true;
    for (auto& one : threads_) one.join();
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

 private:
  std::atomic<bool> done_{false};
  std::vector<std::thread> threads_;
};

/// Long before the flood ends by itself.
template <typename Call>
void expect_back(Call call) {
  const Deadline began = Clock::now();
  call();
  EXPECT_LT(Clock::now() - began, patience / 2);
}

TEST(LinkFlood, AServerThatNeverStopsTalkingHoldsNobodyBack) {
  for (const link::Bytes& message : {link::encode(5, link::Look{}), link::encode_answer(5, {77}, {})}) {
    RawServer server;
    const auto consumer = server.consumer();
    const Flood flood([&] { static_cast<void>(link::send_message(server.socket.get(), message)); });
    expect_back([&] { EXPECT_EQ(at_once(*consumer), "timeout"); });
    expect_back([&] {
      ReadLease lease;
      EXPECT_EQ(next_of(*consumer, lease, Clock::now() + 100ms), "timeout");
    });
    expect_back([&] {
      std::vector<std::byte> answer;
      EXPECT_FALSE(consumer->ask({}, answer, Clock::now() + 100ms));
    });
    expect_back([&] {
      consumer->interrupt();
      EXPECT_EQ(next_of(*consumer), "interrupted");
    });
  }
}

/// Bytes that the other end has not read.
int unread(int socket) {
  int bytes = 0;
  EXPECT_EQ(ioctl(socket, SIOCOUTQ, &bytes), 0);
  return bytes;
}

// What such a server does on a machine with more processors.
TEST(LinkFlood, AConsumerReadsSoMuchInARow) {
  RawServer server;
  const auto consumer = server.consumer();
  constexpr int large = 32 << 20;
  if (setsockopt(server.socket.get(), SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof large) != 0) {
    GTEST_SKIP() << "only root can make a socket's buffer so large";
  }
  for (int n = 0; n < 20'000; ++n) {
    ASSERT_EQ(link::send_message(server.socket.get(), link::encode(5, link::Look{})), link::Sent::ok) << n;
  }
  EXPECT_EQ(at_once(*consumer), "timeout");
  EXPECT_GT(unread(server.socket.get()), 0);
  EXPECT_TRUE(comes_true([&] {
    EXPECT_EQ(at_once(*consumer), "timeout");
    return unread(server.socket.get()) == 0;
  }));
}

TEST(LinkFlood, WhatComesAmongIdleMessagesIsNotLost) {
  RawServer server;
  const auto consumer = server.consumer();
  const auto fill = [&] {
    while (link::send_message(server.socket.get(), link::encode(5, link::Look{})) == link::Sent::ok) {
    }
  };
  for (std::uint64_t n = 1; n <= 3; ++n) {
    fill();
    EXPECT_EQ(at_once(*consumer), "timeout");
    EXPECT_EQ(link::send_message(server.socket.get(), link::encode_data(5, {n, 0}, {})), link::Sent::ok);
    EXPECT_EQ(next_of(*consumer), "''");
  }
  fill();
  server.socket = UniqueFd();
  EXPECT_EQ(next_of(*consumer), "closed");
}

TEST(LinkFlood, ASpinningConsumerLeavesAFrameWhoseMessagesNeverCome) {
  RawServer server;
  const auto consumer = server.consumer({.spin = 10ms});
  link::ClientBlock& block = server.parts.block.block();
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    block.shown[slot].info.bytes = 100;
    block.shown[slot].messages = 1;  // that was never sent
    block.entry[slot] = Entry{slot, slot, Offer::offered}.word();
  }
  std::atomic<bool> back{false};
  std::thread rescue([&] {
    for (const Deadline end = soon(); !back && Clock::now() < end;) std::this_thread::sleep_for(1ms);
    server.socket = UniqueFd();  // which ends it
  });
  expect_back([&] {
    ReadLease lease;
    EXPECT_EQ(next_of(*consumer, lease, Clock::now() + 50ms), "timeout");
  });
  back = true;
  rescue.join();
}

}  // namespace
}  // namespace gpumap
