// SPDX-License-Identifier: MIT
// A ring between two sides of a link: what goes in comes out, in order and whole, for one client and for sixteen; slow
// clients cost what they asked for; messages keep their place among the frames.
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "link_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

TEST(Link, FramesCrossInOrderAndWhole) {
  Served served(4);
  const auto consumer = served.consumer();
  ReadLease lease;
  LinkFrame frame;
  for (std::uint64_t n = 0; n < 1000; ++n) {
    ASSERT_EQ(served.send(n), RingStatus::ok);
    ASSERT_EQ(consumer->next(lease, frame, soon()), LinkNext::frame);
    EXPECT_EQ(frame.info.sequence, n);
    EXPECT_EQ(frame.info.offset, n);
    EXPECT_GT(frame.info.publish_ns, 0);
    EXPECT_TRUE(is_whole(*consumer, lease, frame));
  }
}

TEST(Link, ThreadsOnBothSidesLoseNothing) {
  Served served(3);
  const auto consumer = served.consumer();
  constexpr std::uint64_t frames = 20'000;
  std::thread producer([&] {
    for (std::uint64_t n = 0; n < frames; ++n) ASSERT_EQ(served.send(n), RingStatus::ok);
  });
  ReadLease lease;
  LinkFrame frame;
  for (std::uint64_t n = 0; n < frames; ++n) {
    ASSERT_EQ(consumer->next(lease, frame, soon()), LinkNext::frame);
    ASSERT_EQ(frame.info.offset, n);
    ASSERT_TRUE(is_whole(*consumer, lease, frame));
  }
  producer.join();
}

TEST(Link, SixteenClientsSeeEveryFrame) {
  Served served(4);
  std::vector<std::unique_ptr<LinkConsumer>> consumers;
  for (std::uint32_t n = 0; n < max_link_clients; ++n) consumers.push_back(served.consumer());
  EXPECT_EQ(served.server->clients().size(), max_link_clients);
  const std::string text = served.refusal();
  EXPECT_NE(text.find("16 clients"), std::string::npos) << text;
  for (std::uint64_t n = 0; n < 50; ++n) {
    ASSERT_EQ(served.send(n), RingStatus::ok);
    for (auto& consumer : consumers) ASSERT_EQ(next_of(*consumer), std::to_string(n));
  }
}

TEST(Link, WithoutAClientFramesAreDropped) {
  Served served(2);
  for (std::uint64_t n = 0; n < 10; ++n) EXPECT_EQ(served.send(n), RingStatus::ok);
  const auto late = served.consumer();
  EXPECT_EQ(at_once(*late), "timeout");
  served.send(10);
  EXPECT_EQ(next_of(*late), "10");
}

TEST(Link, NobodyLosesASlotThatOneStillReads) {
  Served served(2);
  const auto quick = served.consumer();
  const auto slow = served.consumer();
  served.send(0);
  ReadLease kept;
  EXPECT_EQ(next_of(*slow, kept), "0");
  EXPECT_EQ(next_of(*quick), "0");
  EXPECT_EQ(at_once(*quick), "timeout");
  for (std::uint64_t n = 1; n < 10; ++n) {
    served.send(n, WhenFull::block, soon());
    EXPECT_EQ(next_of(*quick), std::to_string(n));
    EXPECT_EQ(torn_at(slow->ring()->mapping()->host() + kept.offset(), 960, 0, kept.slot()), 960U);
    // The slow one has what it was shown: the ring is full until it takes the next.
    if (n == 1) break;
  }
  EXPECT_EQ(served.send(2, WhenFull::block, Clock::now() + 50ms), RingStatus::timeout);
  EXPECT_EQ(next_of(*slow, kept), "1");
  kept.release();
  EXPECT_EQ(at_once(*slow), "timeout");
  EXPECT_EQ(served.send(2), RingStatus::ok);
}

TEST(Link, OldestGoesFirst) {
  Served served(4, {.reserve = 1});
  const auto slow = served.consumer(LinkLeak::oldest);
  for (std::uint64_t n = 0; n < 10; ++n) EXPECT_EQ(served.send(n), RingStatus::ok);
  EXPECT_EQ(next_of(*slow), "7") << "its share is three slots";
  EXPECT_EQ(next_of(*slow), "8");
  EXPECT_EQ(next_of(*slow), "9");
  const LinkClient client = served.server->clients().at(0);
  EXPECT_EQ(client.shown, 3U);
  EXPECT_EQ(client.dropped, 7U);
}

TEST(Link, NewestGoesFirst) {
  Served served(4, {.reserve = 1});
  const auto slow = served.consumer(LinkLeak::newest);
  for (std::uint64_t n = 0; n < 10; ++n) EXPECT_EQ(served.send(n), RingStatus::ok);
  for (const char* const n : {"0", "1", "2"}) EXPECT_EQ(next_of(*slow), n);
  EXPECT_EQ(at_once(*slow), "timeout");
}

TEST(Link, WhoKeepsAllStopsNobodyElse) {
  Served served(6);
  const auto hoarder = served.consumer(LinkLeak::oldest);
  const auto other = served.consumer(LinkLeak::oldest);
  std::vector<ReadLease> kept;
  for (std::uint64_t n = 0; n < 100; ++n) {
    ASSERT_EQ(served.send(n, WhenFull::block, soon()), RingStatus::ok);
    ASSERT_EQ(next_of(*other), std::to_string(n));
    ReadLease lease;
    if (next_of(*hoarder, lease, Deadline{}) != "timeout") kept.push_back(std::move(lease));
  }
  EXPECT_EQ(kept.size(), 2U) << "its share of six slots without the reserve of two";
}

TEST(Link, ProducerThatDropsTakesBackWhatNobodyTook) {
  Served served(2);
  const auto slow = served.consumer(LinkLeak::no);
  for (std::uint64_t n = 0; n < 5; ++n) EXPECT_EQ(served.send(n, WhenFull::drop_oldest), RingStatus::ok);
  EXPECT_EQ(next_of(*slow), "3");
  ReadLease kept;
  EXPECT_EQ(next_of(*slow, kept), "4");
  served.send(5, WhenFull::drop_oldest);
  EXPECT_EQ(served.send(6, WhenFull::drop_newest), RingStatus::full);
}

TEST(Link, MessagesKeepTheirPlace) {
  Served served(8);
  served.server->send(bytes_of("caps 1"), 1);
  const auto early = served.consumer();
  served.send(0);
  served.send(1);
  served.server->send(bytes_of("caps 2"), 1);
  served.server->send(bytes_of("tag"));
  served.send(2);
  served.server->send(bytes_of("eos"));
  const auto late = served.consumer();
  for (const char* const wanted : {"'caps 1'", "0", "1", "'caps 2'", "'tag'", "2", "'eos'", "timeout"}) {
    EXPECT_EQ(next_of(*early, *std::make_unique<ReadLease>(), Clock::now() + 50ms), wanted);
  }
  EXPECT_EQ(next_of(*late), "'caps 2'") << "the one that holds";
  EXPECT_EQ(at_once(*late), "timeout");
}

/// Frame `n`, with a note of random bytes that belongs to no other frame.
std::vector<std::byte> note_of(std::uint64_t n) {
  std::mt19937 random(static_cast<std::uint32_t>(n));
  const std::size_t lengths[] = {0, 1, 77, 4097, max_link_note};
  std::vector<std::byte> note(lengths[n % 5]);
  for (auto& one : note) one = static_cast<std::byte>(random());
  return note;
}
void show_with_note(Served& served, std::uint64_t n) {
  WriteLease written;
  ASSERT_EQ(served.server->acquire(written, WhenFull::block, soon()), RingStatus::ok);
  write_frame(written.host(), written.bytes(), served.ring->published(), written.slot());
  FrameInfo info;
  info.bytes = written.bytes();
  info.offset = n;
  served.ring->publish(written, info);
  ReadLease lease;
  ASSERT_EQ(served.ring->receive(lease, soon()), RingStatus::ok);
  served.server->show(std::move(lease), note_of(n));
}

// Also to those that miss frames, and who come later.
TEST(Link, ANoteArrivesWithItsFrameAndNoOther) {
  Served served(16);
  std::vector<std::unique_ptr<LinkConsumer>> consumers;
  for (const LinkLeak leak : {LinkLeak::no, LinkLeak::newest, LinkLeak::oldest, LinkLeak::oldest}) {
    consumers.push_back(served.consumer(leak));
  }
  std::mt19937 random(11);
  std::vector<std::uint64_t> seen(consumers.size() + 1);
  const auto take_one = [&](std::size_t which) {
    ReadLease lease;
    LinkFrame frame;
    if (consumers[which]->next(lease, frame, Deadline{}) != LinkNext::frame) return;
    ASSERT_TRUE(frame.note == note_of(frame.info.offset)) << "frame " << frame.info.offset << " of client " << which;
    ++seen[which];
  };
  constexpr std::uint64_t frames = 2000;
  for (std::uint64_t n = 0; n < frames; ++n) {
    if (n == frames / 2) consumers.push_back(served.consumer(LinkLeak::oldest));
    if (n % 100 == 0) served.server->withdraw_all();
    show_with_note(served, n);
    if (n % 7 == 0) served.server->send(bytes_of("between"));
    for (int turn = 0; turn < 3; ++turn) take_one(0);
    take_one(random() % consumers.size());
  }
  for (std::size_t which = 1; which < consumers.size(); ++which) {
    EXPECT_GT(seen[which], 10U) << which;
    EXPECT_LT(seen[which], frames - 10) << which << ": it missed none";
  }
  const std::string text =
      error_text([&] { served.server->show({}, std::vector<std::byte>(max_link_note + 1)); }, ErrorCode::invalid);
  EXPECT_NE(text.find("16385"), std::string::npos) << text;
}

TEST(Link, MessagesOfAllLengthsArriveWhole) {
  Served served(2);
  const auto consumer = served.consumer();
  std::mt19937 random(7);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{4097}, max_link_answer,
                                  max_link_answer + 1, 2 * max_link_answer, max_link_message}) {
    std::vector<std::byte> sent(bytes);
    for (auto& one : sent) one = static_cast<std::byte>(random());
    served.server->send(sent);
    ReadLease lease;
    LinkFrame frame;
    ASSERT_EQ(consumer->next(lease, frame, soon()), LinkNext::message);
    EXPECT_EQ(frame.message, sent);
  }
  error_text([&] { served.server->send(std::vector<std::byte>(max_link_message + 1)); }, ErrorCode::invalid);
}

TEST(Link, MessagesThatWaitForRoomKeepTheirPlace) {
  Served served(4);
  const auto consumer = served.consumer();
  // More than a socket holds.
  for (std::uint64_t n = 0; n < 100; ++n) {
    served.server->send(std::vector<std::byte>(max_link_answer, static_cast<std::byte>(n)));
    if (n == 50) served.send(50);
  }
  ReadLease lease;
  LinkFrame frame;
  for (std::uint64_t n = 0; n < 100; ++n) {
    ASSERT_EQ(consumer->next(lease, frame, soon()), LinkNext::message) << n;
    EXPECT_EQ(frame.message.at(17), static_cast<std::byte>(n));
    if (n == 50) {
      ASSERT_EQ(consumer->next(lease, frame, soon()), LinkNext::frame);
    }
  }
}

TEST(Link, WhoReadsNoMessagesIsDisconnected) {
  Served served(2);
  const auto consumer = served.consumer();
  const std::vector<std::byte> message(1000);
  for (int n = 0; n < 5000 && !served.server->clients().empty(); ++n) served.server->send(message);
  EXPECT_TRUE(served.server->clients().empty());
  EXPECT_EQ(served.server->counters().disconnected, 1U);
}

}  // namespace
}  // namespace gpumap
