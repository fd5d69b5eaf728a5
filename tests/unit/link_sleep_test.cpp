// SPDX-License-Identifier: MIT
// Who sleeps until a frame comes, and who spins: how each is woken, and what that costs.
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "link_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

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

}  // namespace
}  // namespace gpumap
