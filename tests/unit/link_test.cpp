// SPDX-License-Identifier: MIT
// A ring between two sides of a link: what goes in comes out, in order and whole, for one client and for sixteen; slow
// clients cost what they asked for; slots come back when fences have signalled, and whoever goes leaves nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "link_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}
std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// What comes next, as "17" (a frame's offset), "'text'", or the status.
std::string next_of(LinkConsumer& consumer, ReadLease& lease, Deadline deadline = soon()) {
  LinkFrame frame;
  switch (consumer.next(lease, frame, deadline)) {
    case LinkNext::frame:
      EXPECT_TRUE(is_whole(consumer, lease, frame)) << "frame " << frame.info.sequence;
      return std::to_string(frame.info.offset);
    case LinkNext::message:
      return "'" + text_of(frame.message) + "'";
    case LinkNext::timeout:
      return "timeout";
    case LinkNext::interrupted:
      return "interrupted";
    case LinkNext::closed:
      return "closed";
  }
  return "?";
}
std::string next_of(LinkConsumer& consumer) {
  ReadLease lease;
  return next_of(consumer, lease);
}
std::string at_once(LinkConsumer& consumer) {
  ReadLease lease;
  return next_of(consumer, lease, Deadline{});
}

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
  const std::string text = error_text([&] { (void)served.consumer(); }, ErrorCode::io);
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

TEST(Link, MessagesOfAllLengthsArriveWhole) {
  Served served(2);
  const auto consumer = served.consumer();
  std::mt19937 random(7);
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{4097}, max_link_message}) {
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
    served.server->send(std::vector<std::byte>(max_link_message, static_cast<std::byte>(n)));
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

TEST(Link, SlotWaitsForItsReadFence) {
  Served served(2);
  const auto consumer = served.consumer();
  const auto timeline = std::make_shared<FakeTimeline>();
  ReadLease lease;
  served.send(0);
  ASSERT_EQ(next_of(*consumer, lease), "0");
  const std::uint32_t slot = lease.slot();
  lease.add_read_fence(Fence(timeline, 1));
  lease.release();
  // The other slot goes round; this one stays, whatever is called meanwhile.
  for (std::uint64_t n = 1; n < 20; ++n) {
    ASSERT_EQ(served.send(n), RingStatus::ok);
    ASSERT_EQ(next_of(*consumer, lease), std::to_string(n));
    EXPECT_NE(lease.slot(), slot) << "frame " << n;
    lease.release();
  }
  // Nobody calls next() any more: the connection's thread sees the fence.
  timeline->reached = 1;
  WriteLease one;
  WriteLease two;
  EXPECT_EQ(served.server->acquire(one, WhenFull::block, soon()), RingStatus::ok);
  EXPECT_EQ(served.server->acquire(two, WhenFull::block, soon()), RingStatus::ok);
}

TEST(Link, ALostGpuEndsTheConnectionAndFreesAll) {
  Served served(2);
  const auto consumer = served.consumer();
  const auto timeline = std::make_shared<FakeTimeline>();
  ReadLease lease;
  served.send(0);
  ASSERT_EQ(next_of(*consumer, lease), "0");
  lease.add_read_fence(Fence(timeline, 1));
  lease.release();
  timeline->lost = true;
  EXPECT_TRUE(comes_true([&] { return served.server->clients().empty(); }));
  EXPECT_NE(consumer->why().find("lost"), std::string::npos) << consumer->why();
  EXPECT_EQ(next_of(*consumer), "closed");
}

TEST(Link, LeasesOutliveTheirConsumer) {
  Served served(2);
  auto consumer = served.consumer();
  ReadLease lease;
  served.send(0);
  served.send(1);
  ASSERT_EQ(next_of(*consumer, lease), "0");
  consumer.reset();
  // Frame 1 was never taken: its slot is back. Frame 0's is not.
  EXPECT_EQ(served.send(2), RingStatus::ok);
  EXPECT_EQ(served.send(3), RingStatus::ok);
  EXPECT_EQ(served.server->clients().at(0).slots, 1U);
  EXPECT_EQ(torn_at(lease.ring()->mapping()->host() + lease.offset(), 960, 0, lease.slot()), 960U);
  lease.release();
  EXPECT_TRUE(comes_true([&] { return served.server->clients().empty(); }));
}

TEST(Link, AServerThatDoesNotWaitTakesItsFramesBack) {
  Served served(4, {.linger = 0s});
  const auto consumer = served.consumer();
  served.send(1);
  served.send(2);
  ReadLease lease;
  EXPECT_EQ(next_of(*consumer, lease), "1");
  served.server.reset();
  EXPECT_TRUE(consumer->revoked());
  EXPECT_EQ(next_of(*consumer, lease), "closed");
  EXPECT_EQ(consumer->why(), "the server ended");
}

TEST(Link, ServerLingersUntilAllIsRead) {
  Served served(4, {.linger = patience});
  const auto consumer = served.consumer();
  for (std::uint64_t n = 0; n < 3; ++n) served.send(n);
  served.server->send(bytes_of("eos"));
  std::thread reader([&] {
    for (const char* const n : {"0", "1", "2", "'eos'", "closed"}) EXPECT_EQ(next_of(*consumer), n);
  });
  const Deadline began = Clock::now();
  served.server.reset();
  EXPECT_LT(Clock::now() - began, patience);
  reader.join();
  EXPECT_FALSE(consumer->revoked());
}

TEST(Link, InterruptEndsASleep) {
  Served served(2);
  const auto consumer = served.consumer();
  std::thread other([&] {
    std::this_thread::sleep_for(20ms);
    consumer->interrupt();
  });
  EXPECT_EQ(next_of(*consumer), "interrupted");
  other.join();
  EXPECT_EQ(at_once(*consumer), "timeout") << "once";
}

TEST(Link, ASleeperIsWokenAndABusyOneCostsNothing) {
  Served served(8);
  const auto consumer = served.consumer();
  std::thread sleeper([&] { EXPECT_EQ(next_of(*consumer), "0"); });
  std::this_thread::sleep_for(20ms);
  served.send(0);
  sleeper.join();
  const std::uint64_t wakes = served.server->counters().wakes;
  EXPECT_LE(wakes, 1U);
  for (std::uint64_t n = 1; n < 1000; ++n) {
    served.send(n);
    EXPECT_EQ(next_of(*consumer), std::to_string(n));
  }
  EXPECT_EQ(served.server->counters().wakes, wakes) << "it never slept";
}

TEST(Link, AStoppedClientIsDisconnectedAfterTheLimit) {
  Served served(2, {.stall_limit = 50ms});
  const auto stopped = served.consumer(LinkLeak::no, "stopped");
  served.send(0);
  ReadLease kept;
  ASSERT_EQ(next_of(*stopped, kept), "0");
  served.send(1);
  EXPECT_FALSE(stopped->revoked());
  EXPECT_EQ(served.send(2), RingStatus::ok);
  EXPECT_TRUE(stopped->revoked()) << "what it reads is no longer its own";
  kept.release();
  EXPECT_EQ(next_of(*stopped), "closed");
  EXPECT_NE(stopped->why().find("kept frame 0"), std::string::npos) << stopped->why();
}

TEST(Link, AnotherGenerationIsRefused) {
  Served served(2);
  LinkConsumerOptions options;
  options.path = served.path;
  options.generation = served.server->generation();
  const auto same = LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
  EXPECT_EQ(same->generation(), options.generation);
  options.generation ^= 1U;
  options.patience = patience;  // no reason to try again
  error_text([&] { (void)LinkConsumer::connect(std::make_shared<FakeDevice>(), options); }, ErrorCode::invalid);
  EXPECT_EQ(served.server->counters().refused, 1U);
}

TEST(Link, WhoMayNotStallIsRefused) {
  Served served(2, {.may_stall = false});
  error_text([&] { (void)served.consumer(LinkLeak::no); }, ErrorCode::invalid);
  EXPECT_NE(served.consumer(LinkLeak::newest), nullptr);
}

TEST(Link, ConsumerWaitsForAServerToCome) {
  const TemporaryFolder folder;
  LinkConsumerOptions options;
  options.path = folder.path() / "link";
  error_text([&] { (void)LinkConsumer::connect(std::make_shared<FakeDevice>(), options); }, ErrorCode::io);
  std::unique_ptr<LinkServer> server;
  const auto ring = link_ring(2);
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    server = LinkServer::serve(ring, {.path = options.path});
  });
  options.patience = patience;
  const auto consumer = LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
  later.join();
  EXPECT_TRUE(server->wait_for_client(soon()));
  send_frame(*server, *ring, 5);
  EXPECT_EQ(next_of(*consumer), "5");

  std::atomic<bool> cancel{true};
  options.path += "-none";
  options.cancel = &cancel;
  const Deadline began = Clock::now();
  error_text([&] { (void)LinkConsumer::connect(std::make_shared<FakeDevice>(), options); }, ErrorCode::io);
  EXPECT_LT(Clock::now() - began, patience);
}

TEST(Link, ClientsAreToldOf) {
  std::mutex mutex;
  std::vector<std::string> told;
  Served served(2, {.on_client = [&](const LinkClient& client, const std::string& reason) {
                  const std::lock_guard lock(mutex);
                  told.push_back((reason.empty() ? "+" : "-") + client.name);
                }});
  auto one = served.consumer(LinkLeak::no, "one");
  auto two = served.consumer(LinkLeak::no, "two");
  EXPECT_EQ(served.server->clients().at(1).name, "two");
  EXPECT_EQ(served.server->clients().at(1).pid, getpid());
  one.reset();
  EXPECT_TRUE(comes_true([&] {
    const std::lock_guard lock(mutex);
    return told.size() == 3;
  }));
  const std::lock_guard lock(mutex);
  EXPECT_EQ(told, (std::vector<std::string>{"+one", "+two", "-one"}));
}

TEST(Link, FramesMayPassThroughTheRingsByThemselves) {
  Served served(3);
  const auto consumer = served.consumer();
  const Ring& ring = *consumer->ring();
  for (std::uint64_t n = 0; n < 20; ++n) {
    WriteLease write;
    ASSERT_EQ(served.server->acquire(write, WhenFull::block, soon()), RingStatus::ok);
    write_frame(write.host(), write.bytes(), n, write.slot());
    served.ring->publish(write, {.bytes = write.bytes(), .offset = n});
    served.server->send(bytes_of("before"));
    ReadLease received;
    ASSERT_EQ(served.ring->receive(received, soon()), RingStatus::ok);
    served.server->show(std::move(received));
    LinkFrame frame;
    std::optional<std::uint32_t> slot;
    const auto before = [&](std::uint32_t one) {
      EXPECT_EQ(ring.queued(), 0U) << "before it can be received";
      slot = one;
    };
    ASSERT_EQ(consumer->pass(frame, before, soon()), LinkNext::message);
    ASSERT_FALSE(slot);
    ASSERT_EQ(consumer->pass(frame, before, soon()), LinkNext::frame);
    ReadLease lease;
    ASSERT_EQ(consumer->ring()->receive(lease, soon()), RingStatus::ok);
    EXPECT_EQ(lease.slot(), slot);
    EXPECT_EQ(lease.info().offset, n);
    EXPECT_TRUE(is_whole(*consumer, lease, frame));
  }
  served.server->show({});
  const auto other = link_ring(2);
  WriteLease write;
  ASSERT_EQ(other->acquire(write), RingStatus::ok);
  other->publish(write, {});
  ReadLease stray;
  ASSERT_EQ(other->receive(stray), RingStatus::ok);
  error_text([&] { served.server->show(std::move(stray)); }, ErrorCode::invalid);
}

TEST(Link, MemoryThatCannotBePassedOnIsAnError) {
  const TemporaryFolder folder;
  const auto ring = Ring::create(std::make_shared<FakeDevice>(), {.slots = 2, .slot_bytes = 10});
  const std::string text =
      error_text([&] { (void)LinkServer::serve(ring, {.path = folder.path() / "link"}); }, ErrorCode::not_supported);
  EXPECT_NE(text.find("make_link_memory"), std::string::npos) << text;
}

TEST(Link, ClientsCannotWriteFrames) {
  Served served(2);
  const auto consumer = served.consumer();
  EXPECT_DEATH(*consumer->ring()->mapping()->host() = std::byte{1}, "");
}

}  // namespace
}  // namespace gpumap
