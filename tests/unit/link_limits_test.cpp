// SPDX-License-Identifier: MIT
// Where a limit is met: open files, connections that wait, a server that does not answer. Nobody spins, nothing leaks,
// and what can be waited for is.
#include <dirent.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "link/link_consumer.hpp"
#include "link_raw.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

int open_files() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count - 3;  // ., .. and the folder itself
}

/// What part of a processor this process takes while it waits: 1 where a thread spins.
double share_of_cpu() {
  timespec began{};
  timespec ended{};
  const Deadline from = Clock::now();
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &began);
  std::this_thread::sleep_for(500ms);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
  const std::chrono::duration<double> time = Clock::now() - from;
  const double cpu =
      static_cast<double>(ended.tv_sec - began.tv_sec) + static_cast<double>(ended.tv_nsec - began.tv_nsec) / 1e9;
  return cpu / time.count();
}

/// While it lives, so many more descriptors can be had.
class FewFiles {
 public:
  explicit FewFiles(std::size_t more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 256;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    do taken_.emplace_back(dup(0));
    while (taken_.back());
    taken_.resize(taken_.size() - 1 - more);
  }
  ~FewFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;

 private:
  rlimit before_{};
  std::vector<UniqueFd> taken_;
};

TEST(LinkLimits, NoDescriptorLeftIsWaitedForInSleep) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's run time needs descriptors itself";
  Served served(2);
  const auto first = served.consumer();
  std::unique_ptr<RawClient> waiting;
  {
    const FewFiles few(1);
    waiting = std::make_unique<RawClient>(served.path);  // has the last one
    std::this_thread::sleep_for(50ms);
    EXPECT_LT(share_of_cpu(), 0.2) << "it spins";
    // Those who are there go on.
    ASSERT_EQ(served.send(7), RingStatus::ok);
    EXPECT_EQ(next_of(*first), "7");
    EXPECT_GT(served.server->counters().starved, 0U);
  }
  waiting->join();
  EXPECT_TRUE(comes_true([&] { return served.server->clients().size() == 2; }));
}

TEST(LinkLimits, WhoHasTheLastDescriptorDoesNotWaitForOne) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's run time needs descriptors itself";
  Served served(2);
  const FewFiles few(2);
  const RawClient client(served.path);
  EXPECT_TRUE(comes_true([] { return !UniqueFd(dup(0)); })) << "the server accepts it";
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(served.server->counters().starved, 0U);
}

// Each descriptor that its set-up takes is missing once, and the thread. The client's error has a code of its own and
// ends its tries; the others miss nothing, and nothing stays behind at the server.
TEST(LinkLimits, AClientWithoutResourcesSaysSoAndCostsNobodyAnything) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's run time needs descriptors itself";
  const auto device = std::make_shared<FakeDevice>();
  Served served(4);
  const auto steady = served.consumer();
  std::uint64_t sent = 0;
  std::set<std::string> reasons;
  const auto connects = [&](std::size_t descriptors, bool threads) {
    LinkConsumerOptions options;
    options.path = served.path;
    options.patience = patience;  // for a busy server: a lack is not waited for
    const FewFiles few(descriptors);
    std::optional<NoThreads> none;
    if (!threads) none.emplace();
    try {
      return LinkConsumer::connect(device, options) != nullptr;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::no_resources) << error.what();
      EXPECT_NE(std::string(error.what()).find("ulimit"), std::string::npos) << error.what();
      reasons.insert(error.cause().substr(0, error.cause().find(served.path)));
      return false;
    }
  };
  const auto others_are_well = [&] {
    for (const std::uint64_t before = sent; sent < before + 10; ++sent) {
      ASSERT_EQ(served.send(sent), RingStatus::ok);
      ASSERT_EQ(next_of(*steady), std::to_string(sent));
    }
    EXPECT_TRUE(comes_true([&] { return served.server->clients().size() == 1; }));
  };
  EXPECT_FALSE(connects(100, false));
  others_are_well();
  // Its socket, and those of the server in this process: accepted, block, process.
  std::size_t descriptors = 4;
  for (; descriptors < 20 && !connects(descriptors, true); ++descriptors) others_are_well();
  EXPECT_GT(descriptors, 5U);
  EXPECT_LT(descriptors, 20U);
  EXPECT_FALSE(connects(0, true));
  others_are_well();
  EXPECT_GE(reasons.size(), 3U) << testing::PrintToString(reasons);
}

TEST(LinkLimits, MoreThanCanBeHeardAreWaitedForInSleep) {
  Served served(2);
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int n = 0; n < 60; ++n) silent.push_back(std::make_unique<RawClient>(served.path));
  std::this_thread::sleep_for(50ms);
  EXPECT_LT(share_of_cpu(), 0.2) << "it spins";
}

// A process that connects and says nothing takes the places of its own process only.
TEST(LinkLimits, SilentConnectionsOfOneProcessKeepNobodyOut) {
  Served served(2);
  std::atomic<bool> over{false};
  std::atomic<std::size_t> open{0};
  std::thread silent([&] {
    std::vector<UniqueFd> all(100);
    std::size_t at = 0;
    for (; !over; at = (at + 1) % all.size()) {
      pollfd polled{all[at].get(), 0, 0};
      if (all[at] && poll(&polled, 1, 0) == 0) continue;  // it was not closed
      all[at] = link::connect_to(served.path);
      if (all[at]) ++open;
    }
  });
  EXPECT_TRUE(comes_true([&] { return open >= 100; }));
  for (int n = 0; n < 3; ++n) {
    const auto honest = served.consumer();
    EXPECT_EQ(served.send(7), RingStatus::ok);
    EXPECT_EQ(next_of(*honest), "7");
  }
  over = true;
  silent.join();
}

// Nor do those that say hello, in a process that takes all the places that it gets.
TEST(LinkLimits, OneProcessLeavesPlacesToOthers) {
  Served served(8);
  link::Hello leaky;
  leaky.leak = static_cast<std::uint32_t>(LinkLeak::newest);
  const link::Bytes hello = link::encode(0, leaky);
  const pid_t child = fork();
  if (child == 0) {
    std::vector<UniqueFd> all;
    for (int n = 0; n < 32; ++n) {
      all.push_back(link::connect_to(served.path));
      static_cast<void>(link::send_message(all.back().get(), hello));
    }
    pause();
    _exit(0);
  }
  EXPECT_TRUE(comes_true([&] { return served.server->counters().refused == 20; }));
  EXPECT_EQ(served.server->clients().size(), 12U);
  for (int n = 0; n < 3; ++n) {
    const auto honest = served.consumer();
    EXPECT_EQ(served.send(7), RingStatus::ok);
    EXPECT_EQ(next_of(*honest), "7");
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(comes_true([&] { return served.server->clients().empty(); }));
}

TEST(LinkLimits, WhoFindsNoPlaceIsToldWhy) {
  LinkServerOptions few;
  few.max_clients = 1;
  Served served(2, few);
  const auto first = served.consumer();
  LinkConsumerOptions options;
  options.path = served.path;
  options.patience = 2s;
  std::vector<std::string> told;
  options.on_full = [&](const std::string& why) { told.push_back(why); };
  const std::string why = "1 clients are connected, more are not allowed: end one of them";
  const std::string text = error_text([&] { (void)LinkConsumer::connect(options); }, ErrorCode::busy);
  EXPECT_EQ(text, "the server at " + served.path + " has no place: " + why);
  EXPECT_EQ(told, std::vector<std::string>{why});
}

// They stay in its socket.
TEST(LinkLimits, WordsThatNobodyWantedAreHeardNowAndThen) {
  Served served(3);
  RawClient client(served.path);
  client.join(LinkLeak::oldest);
  const auto honest = served.consumer();
  const link::Bytes look = link::encode(client.generation(), link::Look{});
  const Deadline began = Clock::now();
  std::uint64_t heard = 0;
  constexpr std::uint64_t at_once = 10'000;
  // A busy machine sends as many in more time.
  while (Clock::now() - began < 2s || (heard <= at_once && Clock::now() - began < 1min)) {
    const link::Sent sent = link::send_message(client.fd(), look);
    ASSERT_NE(sent, link::Sent::gone);
    heard += sent == link::Sent::ok ? 1 : 0;
  }
  const std::chrono::duration<double> time = Clock::now() - began;
  // So much at once, so much in a second, and what the socket holds.
  EXPECT_LT(static_cast<double>(heard), at_once + 5'000 * time.count() + 2'000);
  EXPECT_GT(heard, at_once);
  EXPECT_EQ(served.server->clients().size(), 2U);
  for (std::uint64_t n = 0; n < 10; ++n) {
    ASSERT_EQ(served.send(n), RingStatus::ok);
    EXPECT_EQ(next_of(*honest), std::to_string(n));
  }
}

// It may be paused: it misses nothing, and the producer is told that it has to wait.
TEST(LinkLimits, MessagesOfAClientThatReadsNoneCanBeHeldBack) {
  Served served(3);
  const auto consumer = served.consumer(LinkLeak::no);
  const auto leaky = served.consumer(LinkLeak::oldest);
  std::uint64_t sent = 0;
  while (served.server->wait_until_read(Deadline{})) {
    served.server->send(bytes_of(std::to_string(sent++)));
    ASSERT_LT(sent, 100'000U);
  }
  EXPECT_GE(sent, 256U);
  EXPECT_FALSE(served.server->wait_until_read(Clock::now() + 20ms));
  EXPECT_EQ(served.server->clients().size(), 2U);
  for (std::uint64_t n = 0; n < sent; ++n) ASSERT_EQ(next_of(*consumer), "'" + std::to_string(n) + "'");
  EXPECT_TRUE(served.server->wait_until_read(soon())) << "the other one may miss what it does not read";
  while (served.server->wait_until_read(Deadline{})) served.server->send(bytes_of("x"));
  served.server->end_unread();
  EXPECT_TRUE(served.server->wait_until_read(Deadline{}));
  std::string last;
  do last = next_of(*consumer);
  while (last == "'x'");
  EXPECT_EQ(last, "closed");
  EXPECT_EQ(served.server->clients().size(), 1U);
}

// It may be paused for hours, beside a clock that drifts.
TEST(LinkLimits, AMessageMayTakeThePlaceOfTheLastOneThatIsUnsent) {
  Served served(3);
  const auto client = served.consumer(LinkLeak::no);
  const auto send = [&](const std::string& text, std::uint32_t keep) {
    served.server->send(bytes_of(text), keep, LinkServer::Unread::replace);
  };
  for (int n = 0; n < 5000; ++n) send("1: " + std::to_string(n), 1);
  ASSERT_EQ(served.server->clients().size(), 1U);
  EXPECT_TRUE(served.server->wait_until_read(Deadline{}));
  send("2", 2);
  send("1: last", 1);
  ASSERT_EQ(served.send(0), RingStatus::ok);
  send("1: behind the frame", 1);
  std::vector<std::string> got;
  do got.push_back(next_of(*client));
  while (got.back() != "'1: behind the frame'" && got.size() < 5000);
  ASSERT_GT(got.size(), 5U);
  EXPECT_THAT(std::vector(got.end() - 5, got.end()),
              testing::ElementsAre("'1: 4999'", "'2'", "'1: last'", "0", "'1: behind the frame'"));
}

// Its socket is full: no last words can come.
TEST(LinkLimits, AClientThatWasCutOffKnowsWhy) {
  Served served(3);
  const auto client = served.consumer();
  while (!served.server->clients().empty()) served.server->send(bytes_of("x"));
  std::string last;
  do last = next_of(*client);
  while (last == "'x'");
  EXPECT_EQ(last, "closed");
  EXPECT_THAT(client->why(), testing::HasSubstr("left too many messages unread"));
}

TEST(LinkLimits, WhatOvertakesMaySkipAClientThatReadsNone) {
  Served served(2);
  const auto client = served.consumer();
  for (int n = 0; n < 3000; ++n) served.server->send_at_once(bytes_of("word"), LinkServer::Unread::skip);
  EXPECT_EQ(served.server->clients().size(), 1U);
  EXPECT_EQ(next_of(*client), "'word'");
}

TEST(LinkLimits, AThousandClientsLeaveNoDescriptor) {
  Served served(2);
  { const auto first = served.consumer(); }
  ASSERT_TRUE(comes_true([&] { return served.server->clients().empty(); }));
  const int before = open_files();
  for (std::uint64_t n = 0; n < 1000; ++n) {
    const auto consumer = served.consumer(static_cast<LinkLeak>(n % 3));
    ASSERT_TRUE(comes_true([&] { return served.server->clients().size() == 1; }));
    ASSERT_EQ(served.send(n), RingStatus::ok);
    ASSERT_EQ(next_of(*consumer), std::to_string(n));
  }
  EXPECT_TRUE(comes_true([&] { return served.server->clients().empty() && open_files() <= before; }));
  EXPECT_EQ(served.server->counters().disconnected, 1001U);
}

TEST(LinkLimits, ASpinningProducerAsksNobodyToWakeIt) {
  Served served(4);
  served.ring->set_spin(1h);  // the server: 50 ms at most
  RawClient client(served.path);
  client.join();
  ASSERT_TRUE(served.server->wait_for_client(soon()));
  const auto times_out_after = [&](std::chrono::nanoseconds time) {
    WriteLease lease;
    EXPECT_EQ(served.server->acquire(lease, WhenFull::block, Clock::now() + time), RingStatus::timeout);
  };
  for (std::uint64_t n = 0; n < 4; ++n) ASSERT_EQ(served.send(n), RingStatus::ok);
  EXPECT_EQ(client.block().wanted.load(), 0U) << "a full ring costs the client a message for each frame";
  times_out_after(5ms);
  EXPECT_EQ(client.block().wanted.load(), 0U);
  // Who sleeps is woken.
  served.ring->set_spin(0ns);
  EXPECT_TRUE(comes_true([&] {
    times_out_after(100ms);  // it may be late on its way to sleep
    return client.block().wanted.load() == 1;
  }));

  // And who waits for a slot in the ring itself: the service thread collects for it.
  Served other(2);
  RawClient another(other.path);
  another.join();
  ASSERT_TRUE(other.server->wait_for_client(soon()));
  for (int n = 0; n < 2; ++n) {
    WriteLease lease;
    ASSERT_EQ(other.ring->acquire(lease), RingStatus::ok);
    other.server->publish(lease, {});
  }
  EXPECT_EQ(another.block().wanted.load(), 1U);
}

TEST(LinkLimits, AServerThatDoesNotAnswerCanBeLeft) {
  const TemporaryFolder folder;
  LinkConsumerOptions options;
  options.path = folder.path() / "link";
  const link::Listener silent(options.path, 0600);
  // A try takes 2 s; a busy machine may be late, too, but not always.
  EXPECT_TRUE(comes_true([&] {
    std::atomic<bool> cancel{false};
    options.cancel = &cancel;
    options.patience = patience;
    std::thread later([&] {
      std::this_thread::sleep_for(50ms);
      cancel = true;
    });
    const Deadline began = Clock::now();
    error_text([&] { (void)LinkConsumer::connect(std::make_shared<FakeDevice>(), options); }, ErrorCode::busy);
    const Deadline ended = Clock::now();
    later.join();
    return ended - began < 1s;
  }));
}

// Who waits for a server fills its queue in the end.
TEST(LinkLimits, AServerThatTakesNobodyInIsThere) {
  const TemporaryFolder folder;
  LinkConsumerOptions options;
  options.path = folder.path() / "link";
  const link::Listener silent(options.path, 0600);
  std::vector<UniqueFd> waiting;
  do waiting.push_back(link::connect_to(options.path));
  while (waiting.back());
  const std::string text = error_text([&] { (void)LinkConsumer::connect(options); }, ErrorCode::busy);
  EXPECT_NE(text.find("does not answer"), std::string::npos) << text;
}

/// Between the tries of a client that is let go each time. Empty where a busy machine was so late with that, 2 s, that
/// it tried again by itself.
std::vector<std::chrono::nanoseconds> pauses_of_a_client() {
  const TemporaryFolder folder;
  LinkConsumerOptions options;
  options.path = folder.path() / "link";
  const link::Listener closes(options.path, 0600);
  std::atomic<bool> cancel{false};
  options.cancel = &cancel;
  options.patience = 1h;
  std::thread client([&] {
    // Which error it is depends on whether it pauses or waits for an answer when it is cancelled.
    EXPECT_THROW((void)LinkConsumer::connect(std::make_shared<FakeDevice>(), options), Error);
  });
  std::vector<Deadline> tries;
  bool late = false;
  const bool came = comes_true([&] {
    // It is let go, and pauses, only once the time was taken.
    if (const UniqueFd one = closes.accept()) {
      tries.push_back(Clock::now());
      pollfd polled{one.get(), 0, 0};
      late = poll(&polled, 1, 0) == 1;  // it has hung up
    }
    return late || tries.size() == 25;
  });
  cancel = true;
  client.join();
  EXPECT_TRUE(came) << tries.size();
  std::vector<std::chrono::nanoseconds> pauses;
  for (std::size_t at = 1; at < tries.size() && came && !late; ++at) pauses.emplace_back(tries[at] - tries[at - 1]);
  return pauses;
}

// Who finds no server asks ever more rarely, up to once a second. A busy machine makes pauses longer, and none shorter.
TEST(LinkLimits, TriesToConnectAreEverFartherApart) {
  EXPECT_TRUE(comes_true([] {
    const auto pauses = pauses_of_a_client();
    // The client counts from a little before its first try arrives.
    std::chrono::nanoseconds tried{};
    for (const auto pause : pauses) {
      EXPECT_GE(pause, link::pause_after(tried));
      tried += pause;
    }
    return !pauses.empty() || testing::Test::HasFailure();
  }));
  EXPECT_EQ(link::pause_after(0ms), 10ms);
  EXPECT_EQ(link::pause_after(1s), 125ms);
  EXPECT_EQ(link::pause_after(24h), 1s);
}

// Servers that are too much: one that sent more than is read in a row, one whose frame waits for ever. A caller that
// waits for something else is back at his deadline.

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
