// SPDX-License-Identifier: MIT
// What clients hold, and have yet to take, when the other side ends.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "link_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

[[nodiscard]] bool has_frame(const ReadLease& lease, std::uint64_t sequence) {
  return torn_at(lease.ring()->mapping()->host() + lease.offset(), 960, sequence, lease.slot()) == 960;
}

// A gpumapsrc lets its connection go as soon as it is closed, with frames in a queue behind it.
TEST(LinkEnd, ASideThatHearsOfTheEndFirstKeepsWhatItHolds) {
  Served served(4, {.linger = patience});
  auto consumer = served.consumer();
  ReadLease lease;
  served.send();
  ASSERT_EQ(next_of(*consumer, lease), "0");
  std::atomic<bool> over{false};
  std::thread end([&] {
    served.server.reset();
    over = true;
  });
  EXPECT_EQ(next_of(*consumer), "closed");
  const std::function<bool()> cut_off = consumer->asks_whether_cut_off();
  consumer.reset();
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(over) << "the server did not wait";
  EXPECT_FALSE(cut_off());
  EXPECT_TRUE(has_frame(lease, 0));
  const Deadline released = Clock::now();
  lease.release();
  end.join();
  EXPECT_LT(Clock::now() - released, patience / 2);
}

TEST(LinkEnd, AServerThatLeavesTakesNothingBack) {
  for (const LinkLeak leak : {LinkLeak::no, LinkLeak::oldest}) {
    Served served(6, {.linger = patience});
    const auto consumer = served.consumer(leak);
    ReadLease first;
    for (std::uint64_t n = 0; n < 3; ++n) ASSERT_EQ(served.send(n), RingStatus::ok);
    ASSERT_EQ(next_of(*consumer, first), "0");
    served.server->send(bytes_of("eos"));
    const Deadline began = Clock::now();
    std::vector<ReadLease> theirs = served.server->leave();
    served.server.reset();
    EXPECT_LT(Clock::now() - began, patience / 2) << "it waited for readers";
    EXPECT_EQ(theirs.size(), 3U);
    // The slots that nobody has are there to be written, and no others.
    std::vector<WriteLease> free(7);
    std::size_t count = 0;
    while (served.ring->acquire(free.at(count), WhenFull::drop_newest) == RingStatus::ok) {
      write_frame(free.at(count).host(), 960, 99, free.at(count).slot());
      ++count;
    }
    EXPECT_EQ(count, 3U);
    ReadLease second;
    EXPECT_EQ(next_of(*consumer, second), "1");
    ReadLease third;
    EXPECT_EQ(next_of(*consumer, third), "2");
    EXPECT_EQ(next_of(*consumer), "'eos'");
    EXPECT_EQ(next_of(*consumer), "closed");
    EXPECT_TRUE(consumer->ended_well());
    EXPECT_FALSE(consumer->revoked());
    EXPECT_TRUE(has_frame(first, 0));
    EXPECT_TRUE(has_frame(second, 1));
    EXPECT_TRUE(has_frame(third, 2));
    free.clear();
    theirs.clear();
    free.resize(7);
    for (count = 0; served.ring->acquire(free.at(count), WhenFull::drop_newest) == RingStatus::ok;) ++count;
    EXPECT_EQ(count, 6U);
  }
}

TEST(LinkEnd, MessagesThatWaitForRoomGoOutBeforeTheEnd) {
  for (const bool leaves : {false, true}) {
    Served served(2, {.linger = patience});
    const auto consumer = served.consumer();
    const std::vector<std::byte> text(max_link_answer, std::byte{7});
    constexpr int messages = 200;  // more than a socket has room for
    for (int n = 0; n < messages; ++n) served.server->send(text);
    std::thread end([&] {
      if (leaves) {
        EXPECT_TRUE(served.server->leave().empty());
      }
      served.server.reset();
    });
    std::this_thread::sleep_for(20ms);
    LinkFrame frame;
    ReadLease lease;
    int came = 0;
    while (consumer->next(lease, frame, soon()) == LinkNext::message) came += frame.message == text ? 1 : 0;
    end.join();
    EXPECT_EQ(came, messages);
    EXPECT_TRUE(consumer->ended_well()) << consumer->why();
  }
}

// Messages go to it as long as it holds a slot; unread, they would get it disconnected.
TEST(LinkEnd, WhoHasOnlyLeasesLeftReadsOn) {
  const auto reads_on = [](std::chrono::milliseconds pause) {
    Served served(3);
    auto consumer = served.consumer();
    const std::function<bool()> cut_off = consumer->asks_whether_cut_off();
    ReadLease lease;
    served.send();
    EXPECT_EQ(next_of(*consumer, lease), "0");
    consumer.reset();
    // More than a socket has room for and a server keeps beside it.
    for (int n = 0; n < 2000; ++n) {
      served.server->send(std::vector<std::byte>(100, std::byte{7}));
      if (n % 20 == 0) std::this_thread::sleep_for(pause);
    }
    const bool stays = !cut_off() && served.server->clients().size() == 1;
    lease.release();
    EXPECT_TRUE(comes_true([&] { return served.server->clients().empty(); }));
    return stays;
  };
  // A busy machine may keep it from reading until 1300 have come: then at a slower pace. Who does not read keeps none.
  EXPECT_TRUE(reads_on(5ms) || reads_on(20ms) || reads_on(100ms));
}

TEST(LinkEnd, ALeaseThatIsLeftHearsThatItIsCutOff) {
  Served served(2, {.stall_limit = 50ms});
  auto consumer = served.consumer(LinkLeak::no);
  const std::function<bool()> cut_off = consumer->asks_whether_cut_off();
  ReadLease held[2];
  for (ReadLease& lease : held) {
    served.send();
    ASSERT_EQ(next_of(*consumer, lease), "0");
  }
  consumer.reset();
  EXPECT_FALSE(cut_off());
  EXPECT_EQ(served.send(), RingStatus::ok);
  EXPECT_TRUE(cut_off());
  std::this_thread::sleep_for(200ms);  // nothing of the connection is left
  EXPECT_TRUE(cut_off());
}

// A paused consumer hears what overtakes, and what does not piles up with it.
TEST(LinkEnd, MoreMessagesThanAreKeptUnreadComeBeforeTheirFrame) {
  for (const bool ends : {false, true}) {
    Served served(4, {.linger = patience});
    const auto consumer = served.consumer();
    constexpr int messages = 2100;  // a consumer keeps 2048
    LinkFrame frame;
    for (int n = 0; n < messages; ++n) {
      served.server->send(bytes_of(std::to_string(n)));
      if (n % 50 == 0) {
        ASSERT_EQ(consumer->hear(frame, Deadline{}), LinkNext::timeout);
      }
    }
    ASSERT_EQ(served.send(7), RingStatus::ok);
    std::vector<ReadLease> theirs;
    if (ends) {
      theirs = served.server->leave();
      served.server.reset();
    }
    for (int n = 0; n < messages; ++n) ASSERT_EQ(next_of(*consumer), "'" + std::to_string(n) + "'");
    EXPECT_EQ(next_of(*consumer), "7");
  }
}

// A bye may find no room either.
TEST(LinkEnd, AChildOfForkKeepsNoConnectionOpen) {
  Served served(2, {.linger = 50ms});
  const auto consumer = served.consumer();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // it ends with the test at the latest
    for (;;) pause();
  }
  const std::vector<std::byte> text(max_link_answer, std::byte{7});
  for (int n = 0; n < 50; ++n) served.server->send(text);
  served.server.reset();
  LinkFrame frame;
  ReadLease lease;
  LinkNext next = LinkNext::message;
  while (next == LinkNext::message) next = consumer->next(lease, frame, Clock::now() + 2s);
  EXPECT_EQ(next, LinkNext::closed);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// Else it would be offered frames that nobody takes, until its last lease ends.
TEST(LinkEnd, AGoodbyeThatFindsNoRoomIsSaidLater) {
  std::atomic<bool> busy{true};
  LinkServerOptions options;
  options.on_question = [&](LinkQuestion&) {
    while (busy) std::this_thread::sleep_for(1ms);
    return true;
  };
  Served served(3, std::move(options));
  auto consumer = served.consumer();
  ReadLease lease;
  served.send();
  ASSERT_EQ(next_of(*consumer, lease), "0");
  const std::vector<std::byte> text(max_link_question, std::byte{7});
  ASSERT_TRUE(comes_true([&] { return !consumer->tell(text); })) << "there is always room";
  std::this_thread::sleep_for(100ms);
  while (consumer->tell(text)) continue;
  consumer.reset();
  busy = false;
  for (int n = 0; n < 6; ++n) EXPECT_EQ(served.send(n), RingStatus::ok) << "frame " << n;
}

TEST(LinkEnd, WhatWasToldBeforeAHangUpIsHeard) {
  std::atomic<bool> busy{true};
  std::atomic<int> heard{0};
  LinkServerOptions options;
  options.on_question = [&](LinkQuestion&) {
    while (busy) std::this_thread::sleep_for(1ms);
    ++heard;
    return true;
  };
  Served served(2, std::move(options));
  auto consumer = served.consumer();
  const std::vector<std::byte> text(3, std::byte{7});
  ASSERT_TRUE(consumer->tell(text));
  std::this_thread::sleep_for(50ms);  // the server is busy
  constexpr int told = 100;           // more than are read in a row
  for (int n = 1; n < told; ++n) ASSERT_TRUE(consumer->tell(text));
  consumer.reset();
  busy = false;
  EXPECT_TRUE(comes_true([&] { return served.server->clients().empty() && heard == told; })) << heard;
}

TEST(LinkEnd, WhoComesToItsEndIsToldOfIt) {
  Served served(2, {.linger = patience});
  const auto consumer = served.consumer();
  ReadLease lease;
  served.send();
  ASSERT_EQ(next_of(*consumer, lease), "0");
  std::thread end([&] { served.server.reset(); });
  EXPECT_EQ(next_of(*consumer), "closed");
  const std::string text = served.refusal(ErrorCode::not_found);
  EXPECT_NE(text.find("(the server ends)"), std::string::npos) << text;
  lease.release();
  end.join();
}

// They wait in the ring, where nobody can take them any more once its handles are gone.
TEST(LinkEnd, FramesThatNobodyTookGoBackWithTheConsumer) {
  for (const bool keeps_ring : {false, true}) {
    Served served(2);
    auto consumer = served.consumer();
    std::shared_ptr<Ring> ring = keeps_ring ? consumer->ring() : nullptr;
    LinkFrame frame;
    for (int n = 0; n < 2; ++n) {
      ASSERT_EQ(served.send(), RingStatus::ok);
      ASSERT_EQ(consumer->pass(
                    frame, [](std::uint32_t) {}, soon()),
                LinkNext::frame);
    }
    consumer.reset();
    if (keeps_ring) {
      EXPECT_EQ(served.send(0, WhenFull::block, Clock::now() + 200ms), RingStatus::timeout);
      ReadLease lease;
      EXPECT_EQ(ring->receive(lease, soon()), RingStatus::ok);
      ring.reset();
    }
    for (int n = 0; n < 4; ++n) EXPECT_EQ(served.send(), RingStatus::ok);
    EXPECT_TRUE(comes_true([&] { return served.server->clients().empty(); }));
  }
}

TEST(LinkEnd, AFrameThatCannotBePassedOnGoesBack) {
  Served served(2);
  const auto consumer = served.consumer();
  LinkFrame frame;
  const auto fails = [](std::uint32_t) { throw std::runtime_error("no room"); };
  for (int n = 0; n < 5; ++n) {
    ASSERT_EQ(served.send(), RingStatus::ok);
    EXPECT_THROW(static_cast<void>(consumer->pass(frame, fails, soon())), std::runtime_error);
  }
  ASSERT_EQ(served.send(), RingStatus::ok);
  EXPECT_EQ(consumer->pass(
                frame, [](std::uint32_t) {}, soon()),
            LinkNext::frame);
}

// Who keeps the producer of a link waiting, and for how long: who is disconnected for it, and who is not.

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

// As a job of both that is suspended and continues: its client has had no time to give anything back.
TEST(LinkStall, AProducerThatWasStoppedItselfBlamesNobodyAtOnce) {
  Served served(2, {.stall_limit = 2s});
  const auto client = served.consumer(LinkLeak::no, "stopped as well");
  ReadLease kept[2];
  for (auto& lease : kept) {
    ASSERT_EQ(served.send(), RingStatus::ok);
    ASSERT_EQ(next_of(*client, lease), "0");
  }
  const Deadline since = Clock::now();
  EXPECT_FALSE(served.server->end_stall(since));
  std::this_thread::sleep_for(3s);
  EXPECT_FALSE(served.server->end_stall(since));
  EXPECT_EQ(served.server->clients().size(), 1U);
  EXPECT_FALSE(client->cut_off());
  // But it has no more time than that.
  EXPECT_TRUE(comes_true([&] { return served.server->end_stall(since); }));
  EXPECT_TRUE(client->cut_off());
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
