// SPDX-License-Identifier: MIT
// One ring follows another at a server: on the same connections, in order with frames and messages.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "link_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;

/// Frame `number` of all rings, as its content and its offset say.
RingStatus send_numbered(LinkServer& server, std::uint64_t number) {
  WriteLease lease;
  const RingStatus status = server.acquire(lease, WhenFull::block, soon());
  if (status != RingStatus::ok) return status;
  write_frame(lease.host(), lease.bytes(), number, lease.slot());
  FrameInfo info;
  info.bytes = lease.bytes();
  info.offset = number;
  server.publish(lease, info);
  return status;
}

[[nodiscard]] bool has_number(const ReadLease& lease, std::uint64_t number) {
  const std::size_t bytes = lease.info().bytes;
  return torn_at(lease.ring()->mapping()->host() + lease.offset(), bytes, number, lease.slot()) == bytes;
}

TEST(LinkChange, OneRingFollowsAnotherInItsPlace) {
  for (const LinkLeak leak : {LinkLeak::no, LinkLeak::oldest, LinkLeak::newest}) {
    Served served(6);
    const auto consumer = served.consumer(leak);
    ASSERT_TRUE(served.server->wait_for_client(soon()));
    for (std::uint64_t n = 0; n < 3; ++n) ASSERT_EQ(send_numbered(*served.server, n), RingStatus::ok);
    ReadLease held;
    LinkFrame frame;
    ASSERT_EQ(consumer->next(held, frame, soon()), LinkNext::frame);
    served.server->send(bytes_of("last"));
    const auto ring = link_ring(9, 5000);
    served.server->change(ring, 3);
    served.server->send(bytes_of("first"), 7);
    ASSERT_EQ(send_numbered(*served.server, 3), RingStatus::ok);

    std::string order;
    ReadLease lease;
    for (int turn = 0; turn < 6; ++turn) {
      switch (consumer->next(lease, frame, soon())) {
        case LinkNext::frame:
          EXPECT_EQ(frame.info.sequence, frame.info.offset);
          EXPECT_TRUE(has_number(lease, frame.info.offset)) << frame.info.offset;
          order += std::to_string(frame.info.offset) + " ";
          break;
        case LinkNext::message:
          order += text_of(frame.message) + " ";
          break;
        case LinkNext::ring:
          order += "ring ";
          EXPECT_EQ(consumer->ring()->slots(), 9U);
          EXPECT_EQ(consumer->ring()->slot_bytes(), 5000U);
          break;
        default:
          order += "? ";
      }
    }
    EXPECT_EQ(order, "1 2 last ring first 3 ");
    EXPECT_TRUE(has_number(held, 0));
    EXPECT_FALSE(consumer->revoked());
    const auto clients = served.server->clients();
    ASSERT_EQ(clients.size(), 1U);
    EXPECT_EQ(clients[0].connection, 1U);
    EXPECT_EQ(clients[0].shown, 4U);
    EXPECT_EQ(served.server->counters().disconnected, 0U);
  }
}

TEST(LinkChange, WhatAClientHasOfTheRingBeforeIsWrittenByNobody) {
  Served served(6);
  const auto consumer = served.consumer();
  for (std::uint64_t n = 0; n < 3; ++n) ASSERT_EQ(send_numbered(*served.server, n), RingStatus::ok);
  ReadLease held;
  LinkFrame frame;
  ASSERT_EQ(consumer->next(held, frame, soon()), LinkNext::frame);
  served.server->change(link_ring(2));
  std::vector<WriteLease> free(7);
  std::size_t count = 0;
  for (; served.ring->acquire(free.at(count), WhenFull::drop_newest) == RingStatus::ok; ++count) {
    write_frame(free.at(count).host(), 960, 99, free.at(count).slot());
  }
  EXPECT_EQ(count, 3U);
  ReadLease lease;
  ASSERT_EQ(consumer->next(lease, frame, soon()), LinkNext::frame);
  EXPECT_TRUE(has_number(lease, 1));
  EXPECT_TRUE(has_number(held, 0));
}

// Of their return the server does not hear any more.
TEST(LinkChange, ARingThatClientsHadFramesOfIsNotServedAgain) {
  Served served(4);
  const auto consumer = served.consumer();
  ASSERT_EQ(served.send(0), RingStatus::ok);
  const auto refuses = [&](const std::shared_ptr<Ring>& ring) {
    try {
      served.server->change(ring);
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::invalid;
    }
  };
  EXPECT_TRUE(refuses(served.ring));
  EXPECT_EQ(next_of(*consumer), "0");
  ReadLease held;
  LinkFrame frame;
  ASSERT_EQ(served.send(1), RingStatus::ok);
  ASSERT_EQ(consumer->next(held, frame, soon()), LinkNext::frame);
  served.server->change(link_ring(3));
  EXPECT_EQ(next_of(*consumer), "ring of 3");
  EXPECT_TRUE(refuses(served.ring));
}

// Each has a connection at its own speed; a spin does not see the socket.
TEST(LinkChange, NothingIsLostOfRingsThatFollowQuickly) {
  constexpr std::uint64_t frames = 1500;
  std::mt19937 engine(20261128);
  const auto random = [&](std::uint32_t from, std::uint32_t to) {
    return std::uniform_int_distribution<std::uint32_t>(from, to)(engine);
  };
  Served served(3);
  struct Client {
    LinkLeak leak;
    std::chrono::nanoseconds spin;
  };
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  const std::vector<Client> all{{LinkLeak::no, 0ns}, {LinkLeak::no, 200us}, {LinkLeak::oldest, 0ns}};
  for (const Client& client : all) {
    threads.emplace_back([&, client] {
      LinkConsumerOptions options;
      options.path = served.path;
      options.leak = client.leak;
      options.spin = client.spin;
      options.patience = patience;
      const auto consumer = LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
      ++ready;
      LinkFrame frame;
      std::vector<ReadLease> kept(2);
      std::uint64_t next = 0;
      for (std::uint64_t turn = 0;; ++turn) {
        ReadLease& lease = kept[turn % kept.size()];
        const LinkNext what = consumer->next(lease, frame, soon());
        if (what == LinkNext::closed) break;
        if (what == LinkNext::ring) continue;
        ASSERT_EQ(what, LinkNext::frame);
        if (client.leak == LinkLeak::no) {
          ASSERT_EQ(frame.info.offset, next);
        }
        ASSERT_GE(frame.info.offset, next);
        ASSERT_EQ(frame.info.sequence, frame.info.offset);
        ASSERT_TRUE(has_number(lease, frame.info.offset)) << frame.info.offset;
        next = frame.info.offset + 1;
      }
      if (client.leak == LinkLeak::no) {
        EXPECT_EQ(next, frames) << consumer->why();
      }
    });
  }
  ASSERT_TRUE(comes_true([&] { return ready == 3 && served.server->clients().size() == 3; }));
  for (std::uint64_t n = 0; n < frames; ++n) {
    if (random(1, 7) == 1) {
      const auto ring = link_ring(random(3, 8), random(64, 6500));
      if (random(1, 4) == 1) served.server->change(nullptr);
      served.server->change(ring, n);
    }
    ASSERT_EQ(send_numbered(*served.server, n), RingStatus::ok);
  }
  EXPECT_EQ(served.server->counters().disconnected, 0U);
  served.server.reset();
  for (std::thread& thread : threads) thread.join();
}

// More rings than it keeps descriptors for, all of them unread.
TEST(LinkChange, AClientThatMayMissNothingComesThroughAllRings) {
  Served served(2);
  const auto consumer = served.consumer();
  ASSERT_TRUE(served.server->wait_for_client(soon()));
  EXPECT_TRUE(served.server->all_follow());
  for (std::uint32_t n = 0; n < 40; ++n) {
    served.server->change(link_ring(4 + n), n);
    ASSERT_EQ(send_numbered(*served.server, n), RingStatus::ok);
    EXPECT_FALSE(served.server->all_follow());
  }
  for (std::uint32_t n = 0; n < 40; ++n) {
    ASSERT_EQ(next_of(*consumer), "ring of " + std::to_string(4 + n));
    EXPECT_EQ(served.server->all_follow(), n == 39);
    LinkFrame frame;
    ReadLease lease;
    ASSERT_EQ(consumer->next(lease, frame, soon()), LinkNext::frame);
    EXPECT_TRUE(has_number(lease, n));
  }
}

// So it keeps the memory of two rings, and not of all.
TEST(LinkChange, AClientThatMayMissFramesMissesRings) {
  for (const LinkLeak leak : {LinkLeak::oldest, LinkLeak::newest}) {
    Served served(6);
    const auto consumer = served.consumer(leak);
    ASSERT_TRUE(served.server->wait_for_client(soon()));
    ASSERT_EQ(send_numbered(*served.server, 0), RingStatus::ok);
    for (std::uint32_t n = 1; n < 40; ++n) {
      EXPECT_TRUE(n == 2 || served.server->all_follow());
      served.server->change(link_ring(6 + n), n);
      EXPECT_TRUE(served.server->all_follow(LinkServer::Whom::may_miss_nothing));
      served.server->send(bytes_of(std::to_string(n)));
      ASSERT_EQ(send_numbered(*served.server, n), RingStatus::ok);
    }
    EXPECT_TRUE(served.server->all_follow());
    LinkFrame frame;
    ReadLease lease;
    ASSERT_EQ(consumer->next(lease, frame, soon()), LinkNext::frame);
    EXPECT_TRUE(has_number(lease, 0));
    lease.release();
    EXPECT_EQ(next_of(*consumer), "ring of 7");
    // Its messages are where they were sent: one before the frame, the others behind it.
    EXPECT_EQ(next_of(*consumer), "'1'");
    ASSERT_EQ(consumer->next(lease, frame, soon()), LinkNext::frame);
    EXPECT_TRUE(has_number(lease, 1));
    for (std::uint32_t n = 2; n < 40; ++n) EXPECT_EQ(next_of(*consumer), "'" + std::to_string(n) + "'");
    EXPECT_EQ(next_of(*consumer), "ring of 45");
    ASSERT_EQ(send_numbered(*served.server, 40), RingStatus::ok);
    ASSERT_EQ(consumer->next(lease, frame, soon()), LinkNext::frame);
    EXPECT_TRUE(has_number(lease, 40));
    EXPECT_EQ(frame.info.sequence, 40U);
  }
}

TEST(LinkChange, WhoDoesNotFollowCanBeDisconnected) {
  Served served(4);
  const auto consumer = served.consumer();
  ASSERT_EQ(served.send(0), RingStatus::ok);
  served.server->change(link_ring(2));
  EXPECT_FALSE(served.server->all_follow());
  served.server->end_unread();
  EXPECT_TRUE(served.server->all_follow());
  EXPECT_TRUE(comes_true([&] { return served.server->clients().empty(); }));
  EXPECT_EQ(next_of(*consumer), "0");
  while (consumer->why().empty()) static_cast<void>(at_once(*consumer));
  EXPECT_NE(consumer->why().find("keeps frames of the last ring"), std::string::npos) << consumer->why();
}

TEST(LinkChange, AMessageAtOnceOvertakesTheFramesOfBothRings) {
  Served served(4);
  const auto consumer = served.consumer();
  served.server->send_at_once(bytes_of("before"));
  EXPECT_EQ(next_of(*consumer), "'before'");
  for (std::uint64_t n = 0; n < 2; ++n) ASSERT_EQ(served.send(n), RingStatus::ok);
  EXPECT_EQ(next_of(*consumer), "0");
  const auto ring = link_ring(3);
  served.server->change(ring);
  ASSERT_EQ(send_frame(*served.server, *ring, 2), RingStatus::ok);
  served.server->send_at_once(bytes_of("now"));
  EXPECT_EQ(next_of(*consumer), "'now'");
  EXPECT_EQ(next_of(*consumer), "1");
  EXPECT_EQ(next_of(*consumer), "ring of 3");
  served.server->send_at_once(bytes_of("again"));
  EXPECT_EQ(next_of(*consumer), "'again'");
  EXPECT_EQ(next_of(*consumer), "2");
}

TEST(LinkChange, BetweenTwoRingsThereMayBeNone) {
  Served served(4);
  const auto consumer = served.consumer();
  ASSERT_EQ(served.send(0), RingStatus::ok);
  const std::weak_ptr<Mapping> memory = consumer->ring()->mapping();
  served.server->change(nullptr);
  served.server->send(bytes_of("meanwhile"));
  EXPECT_EQ(next_of(*consumer), "0");
  EXPECT_EQ(next_of(*consumer), "no ring");
  EXPECT_EQ(next_of(*consumer), "'meanwhile'");
  EXPECT_EQ(consumer->held(), 0U);
  EXPECT_EQ(at_once(*consumer), "timeout");
  EXPECT_TRUE(comes_true([&] { return memory.expired(); })) << "its memory stays";
  WriteLease lease;
  EXPECT_EQ(served.server->acquire(lease, WhenFull::block, soon()), RingStatus::closed);
  EXPECT_EQ(served.server->clients().size(), 1U);
  EXPECT_FALSE(served.server->wait_for_client(Deadline{}));
  // Who comes now waits for the ring.
  auto coming = std::async(std::launch::async, [&] { return served.consumer(); });
  EXPECT_EQ(coming.wait_for(100ms), std::future_status::timeout);
  const auto ring = link_ring(5);
  served.server->change(ring);
  const auto later = coming.get();
  EXPECT_EQ(later->ring()->slots(), 5U);
  EXPECT_EQ(next_of(*consumer), "ring of 5");
  ASSERT_EQ(send_frame(*served.server, *ring, 1), RingStatus::ok);
  EXPECT_EQ(next_of(*consumer), "1");
  EXPECT_EQ(next_of(*later), "1");
}

// It would not see the next ring, nor a message, before the spin is over.
TEST(LinkChange, NobodySpinsWithoutARing) {
  Served served(3);
  LinkConsumerOptions options;
  options.path = served.path;
  options.spin = 50ms;
  options.patience = patience;
  const auto consumer = LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
  served.server->change(nullptr);
  EXPECT_EQ(next_of(*consumer), "no ring");
  const auto before = time_used(CLOCK_THREAD_CPUTIME_ID);
  ReadLease lease;
  EXPECT_EQ(next_of(*consumer, lease, Clock::now() + 1s), "timeout");
  EXPECT_LT(time_used(CLOCK_THREAD_CPUTIME_ID) - before, 40ms);
  served.server->change(link_ring(7));
  EXPECT_EQ(next_of(*consumer), "ring of 7");
}

TEST(LinkChange, AServerMayBeginWithoutARing) {
  const TemporaryFolder folder;
  LinkServerOptions options;
  options.path = folder.path() / "link";
  std::atomic<int> turns{0};
  options.on_turn = [&] { ++turns; };
  options.turn = std::chrono::hours(1);
  const auto server = LinkServer::serve(options);
  server->send(bytes_of("kept"), 1);
  auto coming = std::async(std::launch::async, [&] {
    LinkConsumerOptions wanted;
    wanted.path = options.path;
    wanted.patience = patience;
    return LinkConsumer::connect(std::make_shared<FakeDevice>(), wanted);
  });
  EXPECT_EQ(coming.wait_for(100ms), std::future_status::timeout);
  const auto ring = link_ring(3);
  server->change(ring);
  const auto consumer = coming.get();
  EXPECT_EQ(next_of(*consumer), "'kept'");
  const int before = turns;
  server->wake();
  EXPECT_TRUE(comes_true([&] { return turns > before; }));
}

// What it held of the ring before stays its own.
TEST(LinkChange, WhoIsCutOffKeepsWhatItHasOfTheRingBefore) {
  Served served(3, {.stall_limit = 50ms});
  const auto consumer = served.consumer();
  ASSERT_EQ(served.send(0), RingStatus::ok);
  ReadLease held;
  LinkFrame frame;
  ASSERT_EQ(consumer->next(held, frame, soon()), LinkNext::frame);
  const std::function<bool()> cut_off_before = consumer->asks_whether_cut_off();
  served.go_on_with(link_ring(2));
  EXPECT_EQ(next_of(*consumer), "ring of 2");
  const std::function<bool()> cut_off = consumer->asks_whether_cut_off();
  for (std::uint64_t n = 0; n < 4; ++n) ASSERT_EQ(served.send(n), RingStatus::ok);
  EXPECT_TRUE(comes_true([&] { return cut_off(); }));
  // Numbers go on from ring to ring.
  while (consumer->why().empty()) static_cast<void>(at_once(*consumer));
  EXPECT_NE(consumer->why().find("it kept frame 1 while"), std::string::npos) << consumer->why();
  EXPECT_TRUE(consumer->revoked());
  EXPECT_FALSE(cut_off_before());
  EXPECT_TRUE(has_number(held, 0));
}

TEST(LinkChange, AClientThatHasEndedStaysBehind) {
  Served served(3);
  auto consumer = served.consumer();
  ASSERT_EQ(served.send(0), RingStatus::ok);
  ReadLease held;
  ASSERT_EQ(next_of(*consumer, held), "0");
  consumer.reset();
  ASSERT_TRUE(comes_true([&] { return served.server->clients().at(0).ended; }));
  const auto ring = link_ring(2);
  served.server->change(ring);
  for (std::uint64_t n = 0; n < 9; ++n) ASSERT_EQ(send_frame(*served.server, *ring, n), RingStatus::ok);
  EXPECT_TRUE(served.server->clients().at(0).ended);
  EXPECT_TRUE(has_number(held, 0));
  held.release();
  EXPECT_TRUE(comes_true([&] { return served.server->clients().empty(); }));
}

// The producer may wait for that before a further ring, and is woken.
TEST(LinkChange, TheServerHearsThatAClientHasCome) {
  std::atomic<int> turns{0};
  LinkServerOptions options;
  options.on_turn = [&] { ++turns; };
  options.turn = std::chrono::hours(1);
  Served served(3, options);
  const auto consumer = served.consumer();
  ASSERT_TRUE(comes_true([&] { return turns > 0; }));
  for (std::uint32_t n = 1; n < 9; ++n) {
    const int before = turns;
    served.go_on_with(link_ring(3 + n));
    ASSERT_EQ(served.send(n), RingStatus::ok);
    EXPECT_FALSE(served.server->all_follow());
    EXPECT_EQ(next_of(*consumer), "ring of " + std::to_string(3 + n));
    ASSERT_TRUE(comes_true([&] { return turns > before; }));
    EXPECT_EQ(next_of(*consumer), std::to_string(n));
  }
  EXPECT_EQ(served.server->counters().disconnected, 0U);
}

// As it may miss frames; otherwise the producer would hold them back for the first client while one is there.
TEST(LinkChange, AClientThatMissesARingIsThere) {
  Served served(6);
  auto consumer = served.consumer(LinkLeak::newest);
  ASSERT_TRUE(served.server->wait_for_client(soon()));
  for (int turn = 0; turn < 2; ++turn) served.go_on_with(link_ring(5));
  EXPECT_TRUE(served.server->wait_for_client(Deadline{}));
  EXPECT_EQ(served.send(), RingStatus::ok);
  consumer.reset();
  EXPECT_TRUE(comes_true([&] { return !served.server->wait_for_client(Deadline{}); }));
}

TEST(LinkChange, AClientThatHoldsUpTheNextRingIsNamed) {
  Served served(4);
  const auto consumer = served.consumer();
  EXPECT_TRUE(comes_true([&] { return !served.server->who_stalls(); }));
  served.server->change(link_ring(3));
  ASSERT_TRUE(served.server->who_stalls());
  EXPECT_EQ(served.server->who_stalls()->name, "test");
  EXPECT_EQ(next_of(*consumer), "ring of 3");
  EXPECT_FALSE(served.server->who_stalls());
}

// Coming to the ring that it missed is its last act: it takes no frames of the one behind that.
TEST(LinkChange, AClientThatEndsAsItComesGetsNoFurtherRing) {
  std::atomic<bool> holds{false};
  std::atomic<bool> held{false};
  LinkServerOptions options;
  options.on_turn = [&] {
    while (holds) {
      held = true;
      std::this_thread::sleep_for(1ms);
    }
  };
  options.turn = 1ms;
  Served served(6, options);
  auto consumer = served.consumer(LinkLeak::newest);
  served.go_on_with(link_ring(5));
  ASSERT_EQ(served.send(1), RingStatus::ok);
  served.go_on_with(link_ring(7));
  holds = true;
  ASSERT_TRUE(comes_true([&] { return held.load(); }));
  EXPECT_EQ(next_of(*consumer), "ring of 5");
  ReadLease lease;
  EXPECT_EQ(next_of(*consumer, lease), "1");
  auto ending = std::async(std::launch::async, [&] { consumer.reset(); });
  ASSERT_EQ(ending.wait_for(patience), std::future_status::ready);
  holds = false;
  ASSERT_TRUE(comes_true([&] { return served.server->clients().at(0).ended; }));
  for (std::uint64_t n = 2; n < 20; ++n) ASSERT_EQ(served.send(n), RingStatus::ok);
  EXPECT_EQ(served.server->clients().at(0).slots, 0U);
  EXPECT_FALSE(served.server->wait_for_client(Deadline{}));
}

TEST(LinkChange, AServerThatClosesWaitsForNobody) {
  Served served(4);
  const auto consumer = served.consumer();
  ASSERT_EQ(served.send(0), RingStatus::ok);
  served.server->close();
  EXPECT_EQ(next_of(*consumer), "0");
  EXPECT_EQ(next_of(*consumer), "closed");
  EXPECT_TRUE(consumer->ended_well());
  EXPECT_TRUE(comes_true([&] { return !std::filesystem::exists(served.path); }));
  const auto other = LinkAddress::take(served.path);  // it is free
  EXPECT_EQ(other->path(), served.path);
}

}  // namespace
}  // namespace gpumap
