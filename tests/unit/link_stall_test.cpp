// SPDX-License-Identifier: MIT
// Who keeps the producer of a link waiting, and for how long: who is disconnected for it, and who is not.
#include <gtest/gtest.h>

#include <thread>

#include "link_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

TEST(LinkStall, AStoppedClientIsDisconnectedAfterTheLimit) {
  Served served(2, {.stall_limit = 50ms});
  const auto stopped = served.consumer(LinkLeak::no, "stopped");
  served.send(0);
  ReadLease kept;
  ASSERT_EQ(next_of(*stopped, kept), "0");
  served.send(1);
  EXPECT_FALSE(stopped->revoked());
  EXPECT_EQ(served.send(2), RingStatus::ok);
  EXPECT_TRUE(stopped->revoked()) << "what it reads is no longer its own";
  EXPECT_TRUE(stopped->cut_off());
  kept.release();
  EXPECT_EQ(next_of(*stopped), "closed");
  EXPECT_NE(stopped->why().find("kept frame 0"), std::string::npos) << stopped->why();
}

// A producer that drops frames instead of waiting is held up all the same: it gets none across.
TEST(LinkStall, AStoppedClientIsDisconnectedWhereTheProducerDoesNotWait) {
  for (const WhenFull when_full : {WhenFull::drop_newest, WhenFull::drop_oldest}) {
    Served served(2, {.stall_limit = 500ms});
    const auto stopped = served.consumer(LinkLeak::no, "stopped");
    ReadLease kept[2];
    for (auto& lease : kept) {
      ASSERT_EQ(served.send(), RingStatus::ok);
      ASSERT_EQ(next_of(*stopped, lease), "0");
    }
    const Deadline began = Clock::now();
    const RingStatus first = served.send(0, when_full);
    const bool in_time = Clock::now() - began < 500ms;  // else the limit may have been over at the first look
    if (in_time || first != RingStatus::ok) {
      EXPECT_EQ(first, RingStatus::full);
      EXPECT_TRUE(comes_true([&] { return served.send(0, when_full) == RingStatus::ok; }));
    }
    EXPECT_GE(Clock::now() - began, 500ms);
    EXPECT_TRUE(stopped->cut_off());
    EXPECT_TRUE(served.server->clients().empty());
  }
}

// As a gpumapsink does.
TEST(LinkStall, WhoWaitsInTheRingItselfEndsAStall) {
  for (const auto limit : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(1h), std::chrono::nanoseconds(50ms)}) {
    Served served(2, {.stall_limit = limit});
    const auto stopped = served.consumer(LinkLeak::no, "stopped");
    ReadLease kept[2];
    for (auto& lease : kept) {
      ASSERT_EQ(served.send(), RingStatus::ok);
      ASSERT_EQ(next_of(*stopped, lease), "0");
    }
    WriteLease write;
    const Deadline since = Clock::now();
    const auto finds_one = [&] {
      return served.ring->acquire(write, WhenFull::block, Deadline{}) == RingStatus::ok ||
             served.server->end_stall(since);
    };
    if (limit != 50ms) {
      for (int n = 0; n < 100; ++n) EXPECT_FALSE(finds_one());
      EXPECT_EQ(served.server->clients().size(), 1U);
      // What came back meanwhile is found, and ends no connection.
      kept[1].release();
      EXPECT_TRUE(comes_true(finds_one));
      EXPECT_FALSE(stopped->revoked());
      continue;
    }
    EXPECT_TRUE(comes_true(finds_one));
    EXPECT_GE(Clock::now() - since, limit);
    EXPECT_TRUE(stopped->cut_off());
    EXPECT_EQ(served.ring->acquire(write, WhenFull::block, Deadline{}), RingStatus::ok);
  }
}

// A producer that holds its frames back for the first client has waited for nobody.
TEST(LinkStall, WhoComesLateIsNotBlamedForTheWaitBefore) {
  Served served(2, {.stall_limit = 10s});
  const Deadline long_ago = Clock::now() - 1h;
  EXPECT_FALSE(served.server->end_stall(long_ago));
  const auto late = served.consumer(LinkLeak::no, "late");
  ReadLease kept[2];
  for (auto& lease : kept) {
    ASSERT_EQ(served.send(), RingStatus::ok);
    ASSERT_EQ(next_of(*late, lease), "0");
  }
  EXPECT_FALSE(served.server->end_stall(long_ago));
  EXPECT_EQ(served.server->clients().size(), 1U);
  const auto asks = late->asks_whether_cut_off();
  EXPECT_FALSE(asks());
}

// Many short waits are no long one, also where the producer spins for them.
TEST(LinkStall, ASlowClientThatGivesBackIsNotDisconnected) {
  constexpr auto limit = 1s;
  // False where a busy machine made one wait as long as the limit by itself: that shows nothing.
  const auto stays = [&](std::chrono::nanoseconds spin) {
    Served served(2, {.stall_limit = limit});
    served.ring->set_spin(spin);
    const auto slow = served.consumer(LinkLeak::no, "slow");
    ReadLease kept[2];
    const Deadline began = Clock::now();
    for (std::uint64_t n = 0; n < 2 || Clock::now() - began < 1500ms; ++n) {
      ReadLease& lease = kept[n % 2];
      std::thread gives_back([&] {
        std::this_thread::sleep_for(20ms);
        lease.release();
      });
      const Deadline waits = Clock::now();
      const RingStatus status = served.send(n);
      const bool long_wait = Clock::now() - waits >= limit;
      gives_back.join();
      if (long_wait) return false;
      EXPECT_EQ(status, RingStatus::ok);
      const std::string next = next_of(*slow, lease);
      EXPECT_EQ(next, std::to_string(n)) << slow->why();
      if (next == "closed") break;
    }
    return true;
  };
  for (const auto spin : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(1h)}) {
    EXPECT_TRUE(comes_true([&] { return stays(spin); }));
  }
}

// It keeps an older frame, but one slot: that would stop nobody.
TEST(LinkStall, AClientThatMayMissFramesIsNotDisconnectedForAnother) {
  Served served(4, {.stall_limit = 50ms});
  const auto idle = served.consumer(LinkLeak::newest, "idle");
  const auto stopped = served.consumer(LinkLeak::no, "stopped");
  ReadLease of_idle;
  ReadLease read;
  ASSERT_EQ(served.send(0), RingStatus::ok);
  ASSERT_EQ(next_of(*idle, of_idle), "0");
  ASSERT_EQ(next_of(*stopped, read), "0");
  for (std::uint64_t n = 1; n < 4; ++n) ASSERT_EQ(served.send(n), RingStatus::ok);
  ASSERT_EQ(next_of(*stopped, read), "1");
  for (std::uint64_t n = 4; n < 20; ++n) ASSERT_EQ(served.send(n), RingStatus::ok) << n;
  EXPECT_TRUE(stopped->cut_off());
  EXPECT_FALSE(idle->revoked());
  const auto left = served.server->clients();
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].name, "idle");
  EXPECT_EQ(torn_at(idle->ring()->mapping()->host() + of_idle.offset(), 960, 0, of_idle.slot()), 960U);
}

// As a gpumapsink does: it knows the ring, and nobody asks the server for a slot.
TEST(LinkStall, WhoWaitsInTheRingItselfGetsWhatClientsGiveBack) {
  Served served(3);
  const auto consumer = served.consumer();
  for (std::uint64_t n = 0; n < 3; ++n) ASSERT_EQ(served.send(n), RingStatus::ok);
  ReadLease read;
  for (std::uint64_t n = 0; n < 20; ++n) {
    ASSERT_EQ(next_of(*consumer, read), std::to_string(n));
    WriteLease write;
    ASSERT_EQ(served.ring->acquire(write, WhenFull::block, Clock::now() + 5ms), RingStatus::timeout);
    std::thread reader([&] {
      std::this_thread::sleep_for(2ms);
      read.release();
    });
    const RingStatus status = served.ring->acquire(write, WhenFull::block, soon());
    reader.join();
    ASSERT_EQ(status, RingStatus::ok) << "frame " << n;
    write_frame(write.host(), write.bytes(), served.ring->published(), write.slot());
    served.server->publish(write, {.bytes = write.bytes(), .offset = n + 3});
  }
}

}  // namespace
}  // namespace gpumap
