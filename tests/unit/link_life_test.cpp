// SPDX-License-Identifier: MIT
// How a link begins and ends, and what is left: slots come back when fences have signalled, a client that goes leaves
// nothing, who may not connect is told why.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "link_helpers.hpp"
#include "test_helpers.hpp"
#include "thread_names.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

TEST(LinkLife, SlotWaitsForItsReadFence) {
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

TEST(LinkLife, ALostGpuEndsTheConnectionAndFreesAll) {
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

// Its process lives, has heard of the fault from whatever it called, and does nothing any more.
TEST(LinkLife, ALostGpuFreesWhatNobodyTakesOrLetsGo) {
  for (const bool holds : {false, true}) {
    Served served(3);
    const auto device = std::make_shared<FakeDevice>();
    LinkConsumerOptions options;
    options.path = served.path;
    options.leak = LinkLeak::no;
    options.patience = patience;
    const auto consumer = LinkConsumer::connect(device, options);
    ReadLease lease;
    for (std::uint64_t n = 0; n < 3; ++n) ASSERT_EQ(served.send(n), RingStatus::ok);
    if (holds) {
      ASSERT_EQ(next_of(*consumer, lease), "0");
    }
    EXPECT_EQ(served.send(3, WhenFull::block, Clock::now() + 20ms), RingStatus::timeout) << "nothing was taken";
    device->is_lost = true;
    for (std::uint64_t n = 3; n < 9; ++n) ASSERT_EQ(served.send(n), RingStatus::ok) << n;
    EXPECT_TRUE(served.server->clients().empty());
    EXPECT_EQ(consumer->revoked(), true) << "what it holds may be another frame's by now";
    EXPECT_EQ(at_once(*consumer), "closed");
    EXPECT_NE(consumer->why().find("lost"), std::string::npos) << consumer->why();
  }
}

// At the end of a process a thread that still took the ring and its memory down would meet the driver's own end.
TEST(LinkLife, NoThreadHasTheRingAfterTheConsumersEnd) {
  Served served(2);
  for (int round = 0; round < 60; ++round) {
    auto consumer = served.consumer();
    const std::weak_ptr<Ring> ring = consumer->ring();
    if (round % 2 == 1) {
      // One slot never comes back by itself.
      const auto timeline = std::make_shared<FakeTimeline>();
      ReadLease lease;
      ASSERT_EQ(served.send(0), RingStatus::ok);
      ASSERT_EQ(next_of(*consumer, lease), "0");
      lease.add_read_fence(Fence(timeline, 1));
      lease.release();
      timeline->lost = true;
      ASSERT_TRUE(comes_true([&] { return !consumer->why().empty(); }));
    }
    consumer.reset();
    ASSERT_TRUE(ring.expired()) << "round " << round;
  }
}

/// Exits with 0 where the ring of a lease that ends at the process's end is left alone.
[[noreturn]] void exit_with_a_lease() {
  static ReadLease lease;
  static std::weak_ptr<Ring> ring;
  std::atexit([] {
    lease.release();
    std::this_thread::sleep_for(300ms);  // the connection's thread looks every 2 ms
    _exit(ring.expired() ? 7 : 0);
  });
  auto* const served = new Served(2);
  auto consumer = served->consumer();
  ring = consumer->ring();
  if (served->send(0) != RingStatus::ok || next_of(*consumer, lease) != "0") _exit(8);
  consumer.reset();
  if (ring.expired()) _exit(9);
  std::exit(1);
}

// What a lease had is freed by the connection's thread. At the process's end the driver may be gone by then.
TEST(LinkLife, NoThreadFreesARingWhileTheProcessEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_a_lease(), testing::ExitedWithCode(0), "");
}

TEST(LinkLife, LeasesOutliveTheirConsumer) {
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

TEST(LinkLife, AServerThatDoesNotWaitTakesItsFramesBack) {
  Served served(4, {.linger = 0s});
  const auto consumer = served.consumer();
  served.send(1);
  served.send(2);
  ReadLease lease;
  EXPECT_EQ(next_of(*consumer, lease), "1");
  served.server.reset();
  EXPECT_TRUE(consumer->revoked());
  EXPECT_FALSE(consumer->cut_off()) << "nobody writes there any more";
  EXPECT_EQ(next_of(*consumer, lease), "closed");
  EXPECT_EQ(consumer->why(), "the server ended");
}

TEST(LinkLife, ServerLingersUntilAllIsRead) {
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

// What a client holds when it ends it keeps, but it is shown no more: frames would go to nobody.
TEST(LinkLife, AClientThatHasEndedIsNotOneThatWasWaitedFor) {
  Served served(4);
  auto consumer = served.consumer();
  served.send(0);
  ReadLease held;
  LinkFrame frame;
  ASSERT_EQ(consumer->next(held, frame, soon()), LinkNext::frame);
  EXPECT_TRUE(served.server->wait_for_client(Deadline{}));
  consumer.reset();
  EXPECT_TRUE(comes_true([&] { return !served.server->wait_for_client(Deadline{}); }));
  ASSERT_EQ(served.server->clients().size(), 1U);
  EXPECT_TRUE(served.server->clients()[0].ended);
  consumer = served.consumer();
  EXPECT_TRUE(served.server->wait_for_client(soon()));
  served.send(1);
  EXPECT_EQ(next_of(*consumer), "1");
}

TEST(LinkLife, AChildOfForkDoesNothingWithEitherSide) {
  Served served(2);
  const auto consumer = served.consumer();
  ASSERT_TRUE(served.server->wait_for_client(soon()));
  served.server.reset();
  ASSERT_EQ(next_of(*consumer), "closed");
  const Served other(2);
  const auto client = other.consumer();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    other.server->change(link_ring(3));
    other.server->wake();
    other.server->close();
    other.server->forget(1);
    const bool nothing = other.server->clients().empty() && other.server->counters().connected == 0 &&
                         !other.server->wait_for_client(Deadline{}) && consumer->why().empty() && !consumer->revoked();
    _exit(nothing ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(consumer->why().empty());
  EXPECT_EQ(other.server->clients().size(), 1U);
}

TEST(LinkLife, AnotherGenerationIsRefused) {
  Served served(2);
  LinkConsumerOptions options;
  options.path = served.path;
  options.generation = served.server->generation();
  options.patience = patience;
  const auto same = LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
  EXPECT_EQ(same->generation(), options.generation);
  options.generation ^= 1U;
  const Deadline began = Clock::now();
  error_text([&] { (void)LinkConsumer::connect(std::make_shared<FakeDevice>(), options); }, ErrorCode::invalid);
  const bool answered = Clock::now() - began < 2s;  // else it tries again, for that reason
  const std::uint64_t refused = served.server->counters().refused;
  EXPECT_TRUE(refused == 1 || (refused > 1 && !answered)) << refused << ": a refusal is no reason to try again";
}

TEST(LinkLife, WhoMayNotStallIsRefused) {
  Served served(2, {.may_stall = false});
  error_text([&] { (void)served.consumer(LinkLeak::no); }, ErrorCode::invalid);
  EXPECT_NE(served.consumer(LinkLeak::newest), nullptr);
}

TEST(LinkLife, ConsumerWaitsForAServerToCome) {
  const TemporaryFolder folder;
  LinkConsumerOptions options;
  options.path = folder.path() / "link";
  error_text([&] { (void)LinkConsumer::connect(std::make_shared<FakeDevice>(), options); }, ErrorCode::not_found);
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
  error_text([&] { (void)LinkConsumer::connect(std::make_shared<FakeDevice>(), options); }, ErrorCode::not_found);
  EXPECT_LT(Clock::now() - began, patience);
}

TEST(LinkLife, ClientsAreToldOf) {
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

TEST(LinkLife, FramesMayPassThroughTheRingsByThemselves) {
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

TEST(LinkLife, MemoryThatCannotBePassedOnIsAnError) {
  const TemporaryFolder folder;
  const auto ring = Ring::create(std::make_shared<FakeDevice>(), {.slots = 2, .slot_bytes = 10});
  const std::string text =
      error_text([&] { (void)LinkServer::serve(ring, {.path = folder.path() / "link"}); }, ErrorCode::not_supported);
  EXPECT_NE(text.find("make_link_memory"), std::string::npos) << text;
}

TEST(LinkLife, ClientsCannotWriteFrames) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Served served(2);
  const auto consumer = served.consumer();
  EXPECT_DEATH(*consumer->ring()->mapping()->host() = std::byte{1}, "");
}

TEST(LinkLife, ThreadsHaveNames) {
  const Served served(2);
  const auto consumer = served.consumer();
  // A thread names itself as it begins.
  EXPECT_TRUE(comes_true([] {
    const auto names = thread_names();
    return names.contains("gpumap-server") && names.contains("gpumap-connect");
  })) << testing::PrintToString(thread_names());
}

// "Resource temporarily unavailable" alone tells nobody what to do.
TEST(LinkLife, WhereNoThreadCanBeHadThatIsSaid) {
  const Served served(2);
  const Served other(2);
  const auto ring = link_ring(2);
  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
  const auto says = [](const std::string& text) {
    EXPECT_NE(text.find("no thread for"), std::string::npos) << text;
    EXPECT_NE(text.find("ulimit -u"), std::string::npos) << text;
  };
  {
    const NoThreads none;
    says(error_text([&] { (void)served.consumer(); }, ErrorCode::no_resources));
    says(error_text([&] { (void)LinkServer::serve(ring, {.path = path}); }, ErrorCode::no_resources));
  }
  // Nothing is left of the two.
  EXPECT_TRUE(comes_true([&] { return served.server->clients().empty(); }));
  const auto server = LinkServer::serve(ring, {.path = path});
  const auto consumer = served.consumer();
  EXPECT_TRUE(comes_true([&] { return served.server->clients().size() == 1; }));
}

}  // namespace
}  // namespace gpumap
