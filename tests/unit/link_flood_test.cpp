// SPDX-License-Identifier: MIT
// Servers that are too much: one that sent more than is read in a row, one whose frame waits for ever. A caller that
// waits for something else is back at his deadline.
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "link_raw.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words
using link::Entry;
using link::Offer;

/// Bytes that the other end has not read.
int unread(int socket) {
  int bytes = 0;
  EXPECT_EQ(ioctl(socket, SIOCOUTQ, &bytes), 0);
  return bytes;
}

// A server that sends faster than it is read keeps nobody for ever. Its messages are there already: whether threads
// send them faster than one reads is up to the machine, and on two processors they do not.
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
  LinkFrame frame;
  EXPECT_EQ(consumer->hear(frame, Deadline{}), LinkNext::timeout);
  EXPECT_GT(unread(server.socket.get()), 0);
  consumer->interrupt();
  EXPECT_EQ(next_of(*consumer), "interrupted");
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
  const Deadline began = Clock::now();
  ReadLease lease;
  EXPECT_EQ(next_of(*consumer, lease, began + 50ms), "timeout");
  EXPECT_LT(Clock::now() - began, patience / 2) << "long before it is rescued";
  back = true;
  rescue.join();
}

}  // namespace
}  // namespace gpumap
