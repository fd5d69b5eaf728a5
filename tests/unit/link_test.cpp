// SPDX-License-Identifier: MIT
// A ring between two sides of a link: what goes in comes out, in order and whole, for one client and for sixteen; slow
// clients cost what they asked for; messages keep their place among the frames.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

// Who sleeps until a frame comes, and who spins: how each is woken, and what that costs.

TEST(LinkSleep, InterruptEndsASleep) {
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

TEST(LinkSleep, ASleeperIsWokenAndABusyOneCostsNothing) {
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

TEST(LinkSleep, ASpinningOneIsNotWoken) {
  Served served(8);
  LinkConsumerOptions options;
  options.path = served.path;
  options.leak = LinkLeak::no;
  options.patience = patience;
  options.spin = 50ms;
  const auto consumer = LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
  std::thread producer([&] {
    for (std::uint64_t n = 0; n < 50; ++n) {
      std::this_thread::sleep_for(500us);
      served.send(n);
    }
  });
  std::uint64_t slept = 0;  // where the machine kept the producer from sending
  for (std::uint64_t n = 0; n < 50; ++n) {
    const Deadline began = Clock::now();
    EXPECT_EQ(next_of(*consumer), std::to_string(n));
    slept += Clock::now() - began >= options.spin ? 1 : 0;
  }
  producer.join();
  EXPECT_LE(served.server->counters().wakes, 2 * slept);
  EXPECT_EQ(at_once(*consumer), "timeout");
}

// A consumer that never sleeps in next(): its timeout is 0, or it spins for all of it.
TEST(LinkSleep, WhoNeverSleepsHearsOfMessagesAndOfTheEnd) {
  for (const auto& [spin, wait] : {std::pair(0ms, 0ms), std::pair(50ms, 0ms), std::pair(50ms, 5ms)}) {
    Served served(2);
    LinkConsumerOptions options;
    options.path = served.path;
    options.patience = patience;
    options.spin = spin;
    const auto consumer = LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
    ReadLease lease;
    const auto comes = [&, wait = wait](const std::string& what) {
      return comes_true([&] {
        const std::string next = next_of(*consumer, lease, Clock::now() + wait);
        EXPECT_TRUE(next == what || next == "timeout") << next;
        return next == what;
      });
    };
    EXPECT_EQ(next_of(*consumer, lease, Clock::now() + wait), "timeout");
    served.server->send(bytes_of("message"));
    EXPECT_TRUE(comes("'message'"));
    served.send(17);
    EXPECT_TRUE(comes("17"));
    lease.release();
    served.server.reset();
    EXPECT_TRUE(comes("closed"));
  }
}

TEST(LinkSleep, WhoHearsWithoutATimeLooksOnceAllTheSame) {
  Served served(2);
  const auto consumer = served.consumer();
  LinkFrame frame;
  for (const char* text : {"first", "second"}) {
    EXPECT_EQ(consumer->hear(frame, Deadline{}), LinkNext::timeout);
    served.server->send_at_once(bytes_of(text));
    ASSERT_EQ(consumer->hear(frame, Deadline{}), LinkNext::message);
    EXPECT_EQ(text_of(frame.message), text);
  }
}

// A path that is taken before there is a ring: who connects waits, nobody else gets it, one server follows another.

struct AddressOfALink : testing::Test {
  [[nodiscard]] std::unique_ptr<LinkServer> serve(const std::shared_ptr<Ring>& ring) const {
    LinkServerOptions options;
    options.address = address;
    return LinkServer::serve(ring, std::move(options));
  }
  [[nodiscard]] std::future<std::unique_ptr<LinkConsumer>> connect() const {
    return std::async(std::launch::async, [path = path] {
      LinkConsumerOptions options;
      options.path = path;
      options.leak = LinkLeak::no;
      options.patience = patience;
      return LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
    });
  }

  TemporaryFolder folder;
  std::string path = folder.path() / "link";
  std::shared_ptr<LinkAddress> address = LinkAddress::take(path);
};

TEST_F(AddressOfALink, IsNobodyElsesFromTheBeginning) {
  EXPECT_EQ(address->path(), path);
  struct stat found {};
  ASSERT_EQ(lstat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777U, 0600U);
  const std::string text = error_text([&] { (void)LinkAddress::take(path); }, ErrorCode::invalid);
  EXPECT_NE(text.find("served by process " + std::to_string(getpid())), std::string::npos) << text;
  LinkServerOptions options;
  options.path = path;
  error_text([&] { (void)LinkServer::serve(link_ring(2), options); }, ErrorCode::invalid);
  address.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_NO_THROW((void)LinkServer::serve(link_ring(2), options));
}

TEST_F(AddressOfALink, WhoConnectsBeforeThereIsARingMissesNothing) {
  std::vector<std::future<std::unique_ptr<LinkConsumer>>> coming;
  for (int n = 0; n < 5; ++n) coming.push_back(connect());
  for (auto& one : coming) EXPECT_EQ(one.wait_for(50ms), std::future_status::timeout) << "nobody answers yet";
  const auto ring = link_ring(3);
  const auto server = serve(ring);
  EXPECT_EQ(server->path(), path);
  std::vector<std::unique_ptr<LinkConsumer>> all;
  for (auto& one : coming) all.push_back(one.get());
  for (std::uint64_t n = 0; n < 20; ++n) {
    ASSERT_EQ(send_frame(*server, *ring, n), RingStatus::ok);
    for (const auto& one : all) EXPECT_EQ(next_of(*one), std::to_string(n));
  }
}

TEST_F(AddressOfALink, OneServerFollowsAnother) {
  const auto first_ring = link_ring(2);
  auto first = serve(first_ring);
  const std::string text = error_text([&] { (void)serve(link_ring(2)); }, ErrorCode::invalid);
  EXPECT_NE(text.find("second server"), std::string::npos) << text;
  auto consumer = connect().get();
  EXPECT_EQ(send_frame(*first, *first_ring, 7), RingStatus::ok);
  EXPECT_EQ(next_of(*consumer), "7");
  first.reset();
  EXPECT_EQ(next_of(*consumer), "closed");
  EXPECT_TRUE(std::filesystem::exists(path)) << "others could take it";
  auto again = connect();
  const auto second_ring = link_ring(4);
  const auto second = serve(second_ring);
  consumer = again.get();
  EXPECT_EQ(consumer->ring()->slots(), 4U);
  EXPECT_EQ(send_frame(*second, *second_ring, 8), RingStatus::ok);
  EXPECT_EQ(next_of(*consumer), "8");
}

TEST_F(AddressOfALink, WhoGaveUpIsInNobodysWay) {
  for (int n = 0; n < 40; ++n) {
    LinkConsumerOptions options;
    options.path = path;
    std::atomic<bool> cancel{true};
    options.cancel = &cancel;
    error_text([&] { (void)LinkConsumer::connect(std::make_shared<FakeDevice>(), options); }, ErrorCode::busy);
  }
  const auto ring = link_ring(2);
  const auto server = serve(ring);
  const auto consumer = connect().get();
  EXPECT_EQ(send_frame(*server, *ring, 1), RingStatus::ok);
  EXPECT_EQ(next_of(*consumer), "1");
  EXPECT_TRUE(comes_true([&] { return server->clients().size() == 1; }));
}

TEST_F(AddressOfALink, IsLeftAloneByAChildOfFork) {
  const pid_t child = fork();
  if (child == 0) {
    address.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(std::filesystem::exists(path));
  const auto server = serve(link_ring(2));
  EXPECT_NE(connect().get(), nullptr);
}

}  // namespace
}  // namespace gpumap
