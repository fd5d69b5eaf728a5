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
  for (const bool moves : {false, true}) {
    Served served(4, {.linger = patience});
    auto consumer = served.consumer();
    ReadLease lease;
    served.send();
    ASSERT_EQ(next_of(*consumer, lease), "0");
    if (moves) served.server->announce_successor();
    std::atomic<bool> over{false};
    std::thread end([&] {
      served.server.reset();
      over = true;
    });
    EXPECT_EQ(next_of(*consumer), "closed");
    EXPECT_EQ(consumer->moved(), moves);
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
  const std::string text = served.refusal();
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

}  // namespace
}  // namespace gpumap
