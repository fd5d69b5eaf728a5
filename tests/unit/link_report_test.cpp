// SPDX-License-Identifier: MIT
// What a server tells its observers: the figures, that observing costs its clients and its frames nothing, and
// that an observer believes no server more than it must.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gpumap/link_report.hpp"
#include "link/server_discovery.hpp"
#include "link/wire.hpp"
#include "link_child.hpp"
#include "link_helpers.hpp"
#include "link_raw.hpp"

// Asking one server for its report.
namespace gpumap::test {

inline LinkSight observe(const std::string& path, std::chrono::nanoseconds patience_here = patience) {
  return observe_links(std::span(&path, 1), Clock::now() + patience_here).at(0);
}
inline LinkReport report_of(const std::string& path) {
  LinkSight sight;
  comes_true([&] {
    const Deadline began = Clock::now();
    sight = observe(path);
    // Who is late with its question, by a second, is not waited for; nor is there always room to ask.
    const bool is_crowded = sight.trouble.starts_with("too many wait");
    return sight.report || (!is_crowded && Clock::now() - began < 1s);
  });
  EXPECT_EQ(sight.trouble, "");
  return sight.report.value_or(LinkReport{});
}
/// One that is not from before this call.
inline LinkReport new_report_of(const std::string& path) {
  std::this_thread::sleep_for(15ms);
  return report_of(path);
}

}  // namespace gpumap::test

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

TEST(LinkReport, TellsWhatTheServerKnows) {
  Served served(8);
  EXPECT_EQ(served.send(0), RingStatus::ok);  // nobody sees it
  const auto quick = served.consumer(LinkLeak::no, "quick");
  const auto slow = served.consumer(LinkLeak::newest, "slow");
  constexpr std::uint64_t frames = 20;
  for (std::uint64_t n = 1; n <= frames; ++n) {
    ASSERT_EQ(served.send(n), RingStatus::ok);
    EXPECT_EQ(next_of(*quick), std::to_string(n));
  }
  const LinkReport report = new_report_of(served.path);
  EXPECT_EQ(report.generation, served.server->generation());
  EXPECT_EQ(report.pid, getpid());
  EXPECT_EQ(report.program, program_invocation_short_name);
  EXPECT_NEAR(static_cast<double>(report.at_ns), static_cast<double>(monotonic_ns()), 20e9);
  EXPECT_EQ(report.transport, Transport::zero_copy);
  EXPECT_EQ(report.slots, 8U);
  EXPECT_EQ(report.slot_bytes, 1000U);
  EXPECT_EQ(report.frames, frames + 1);
  EXPECT_EQ(report.bytes, (frames + 1) * 1000);
  EXPECT_EQ(report.unseen, 1U);
  EXPECT_EQ(report.dropped, 0U);
  EXPECT_EQ(report.queued, 0U);
  EXPECT_FALSE(report.stamps);
  ASSERT_EQ(report.clients.size(), 2U);
  const LinkClientReport& first = report.clients[0];
  EXPECT_EQ(first.who.name, "quick");
  EXPECT_EQ(first.who.pid, getpid());
  EXPECT_EQ(first.who.uid, geteuid());
  EXPECT_EQ(first.who.leak, LinkLeak::no);
  EXPECT_EQ(first.who.shown, frames);
  EXPECT_EQ(first.who.dropped, 0U);
  // It has its share of 6 slots, and misses all that come later.
  const LinkClientReport& second = report.clients[1];
  EXPECT_EQ(second.who.name, "slow");
  EXPECT_EQ(second.who.index, 1U);
  EXPECT_EQ(second.who.leak, LinkLeak::newest);
  EXPECT_EQ(second.who.shown, 6U);
  EXPECT_EQ(second.who.dropped, frames - 6);
  EXPECT_EQ(second.who.slots, 6U);
  EXPECT_EQ(second.lag, frames) << "it has the first one that it was shown";
  EXPECT_GE(second.lag_ns, 15'000'000);
  EXPECT_GE(report.busy, 6U);
  EXPECT_LE(report.busy, 8U);
  EXPECT_EQ(second.timed, 0U);
  // What goes back is told.
  for (int n = 0; n < 6; ++n) EXPECT_NE(next_of(*slow), "closed");
  EXPECT_TRUE(comes_true([&] {
    const auto now = report_of(served.path);
    return now.busy == 0 && now.clients.at(1).lag == 0 && now.clients.at(1).lag_ns == 0;
  }));
}

TEST(LinkReport, TellsWhatAFullRingCosts) {
  Served served(4);
  const auto client = served.consumer();
  for (int n = 0; n < 4; ++n) ASSERT_EQ(served.send(), RingStatus::ok);
  for (int n = 0; n < 3; ++n) EXPECT_EQ(served.send(0, WhenFull::drop_newest), RingStatus::full);
  const LinkReport report = new_report_of(served.path);
  EXPECT_EQ(report.dropped, 3U);
  EXPECT_EQ(report.busy, 4U);
  EXPECT_EQ(report.clients.at(0).lag, 4U);
}

TEST(LinkReport, TellsWhatIsNotHandedOn) {
  Served served(4);
  for (int n = 0; n < 3; ++n) {
    WriteLease lease;
    ASSERT_EQ(served.server->acquire(lease), RingStatus::ok);
    FrameInfo info;
    info.bytes = 10;
    served.ring->publish(lease, info);
  }
  const LinkReport report = report_of(served.path);
  EXPECT_EQ(report.queued, 3U);
  EXPECT_EQ(report.frames, 0U);
}

struct LinkLatencies : testing::Test {
  Served served{4};
  const std::unique_ptr<LinkConsumer> client = served.consumer();
  std::int64_t kept_ns = 0;  ///< how long the client had frames, at least

  void keep_one() {
    ReadLease lease;
    LinkFrame frame;
    ASSERT_EQ(served.send(), RingStatus::ok);
    ASSERT_EQ(client->next(lease, frame, soon()), LinkNext::frame);
    std::this_thread::sleep_for(20ms);
    kept_ns += monotonic_ns() - frame.info.publish_ns;
    lease = {};
    EXPECT_EQ(at_once(*client), "timeout");  // which gives it back
  }
  [[nodiscard]] LinkClientReport report() const {
    // So that it has been seen, without a look by who asks: all slots are free.
    EXPECT_TRUE(comes_true([&] {
      std::array<WriteLease, 4> all;
      return std::ranges::all_of(all, [&](WriteLease& one) { return served.server->acquire(one) == RingStatus::ok; });
    }));
    return new_report_of(served.path).clients.at(0);
  }
};

TEST_F(LinkLatencies, AreTakenWhileStampsAreOnAndSomebodyWatches) {
  served.ring->set_stamping(true);
  keep_one();
  EXPECT_EQ(report().timed, 0U) << "nobody watched";
  served.ring->set_stamping(false);
  keep_one();
  EXPECT_EQ(report().timed, 0U) << "without stamps";
  served.ring->set_stamping(true);
  kept_ns = 0;
  for (int n = 0; n < 3; ++n) keep_one();
  const LinkClientReport timed = report();
  EXPECT_EQ(timed.timed, 3U);
  EXPECT_GE(timed.timed_ns, kept_ns);
  std::uint64_t counted = 0;
  for (std::size_t bucket = 0; bucket < timed.times.size(); ++bucket) {
    counted += timed.times[bucket];
    // A step of LinkTimeSteps is up to a sixteenth around its middle.
    if (timed.times[bucket] == 0) continue;
    EXPECT_GE(LinkTimeSteps::middle_of(bucket), 20'000'000 / 17 * 16);
  }
  EXPECT_EQ(counted, 3U);
  EXPECT_TRUE(report_of(served.path).stamps);
}

// Its second looks are 100 ms apart: between them a frame would wait for 50 ms.
TEST_F(LinkLatencies, AreExactForWhatComesBackWakesTheServer) {
  served.ring->set_stamping(true);
  (void)report();
  constexpr int frames = 16;
  constexpr std::int64_t late_ns = std::int64_t{frames} * 25'000'000;
  // A busy machine is late, too, but not always.
  EXPECT_TRUE(comes_true([&] {
    const std::int64_t before = report().timed_ns;
    kept_ns = 0;
    for (int n = 0; n < frames; ++n) {
      keep_one();
      EXPECT_TRUE(comes_true([&] { return served.server->clients().at(0).slots == 0; }));
    }
    return report().timed_ns - before < kept_ns + late_ns;
  }));
}

// --- An observer is no client

TEST(LinkObserver, IsNobodyToTheServer) {
  std::atomic<int> told{0};
  LinkServerOptions options;
  options.max_clients = 1;
  options.on_client = [&](const LinkClient&, const std::string&) { ++told; };
  Served served(4, options);
  for (int n = 0; n < 5; ++n) EXPECT_EQ(report_of(served.path).generation, served.server->generation());
  EXPECT_FALSE(served.server->wait_for_client(Clock::now() + 50ms));
  EXPECT_EQ(served.server->counters().connected, 0U);
  EXPECT_GE(served.server->counters().observed, 1U);
  EXPECT_EQ(told, 0);
  // It takes no place, and a full server tells all the same.
  const auto client = served.consumer();
  const LinkReport report = new_report_of(served.path);
  EXPECT_EQ(report.clients.size(), 1U);
  EXPECT_EQ(report.clients.at(0).who.index, 0U);
  EXPECT_EQ(served.server->counters().refused, 0U);
}

TEST(LinkObserver, GetsOneMessageWithoutDescriptors) {
  Served served(4);
  RawClient observer(served.path);
  observer.send(link::encode(0, link::Observe{}));
  pollfd polled{observer.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&polled, 1, 20'000), 1);
  std::vector<std::byte> buffer(link::largest_message);
  std::size_t bytes = 0;
  std::vector<UniqueFd> fds;
  ASSERT_EQ(link::receive_message(observer.fd(), buffer, bytes, &fds), link::Received::message);
  EXPECT_TRUE(fds.empty());
  EXPECT_LE(bytes, link::largest_report);
  ASSERT_EQ(poll(&polled, 1, 20'000), 1);
  EXPECT_EQ(link::receive_message(observer.fd(), buffer, bytes, &fds), link::Received::gone);
}

TEST(LinkObserver, ThatNeverReadsHarmsNobody) {
  Served served(4);
  const auto honest = served.consumer();
  std::vector<UniqueFd> deaf;
  for (std::uint64_t n = 0; n < 200; ++n) {
    // They come faster than they are accepted, and the queue is as long as it is.
    ASSERT_TRUE(comes_true([&] {
      const UniqueFd& one = deaf.emplace_back(link::connect_to(served.path));
      return one && link::send_message(one.get(), link::encode(0, link::Observe{})) == link::Sent::ok;
    }));
    ASSERT_EQ(served.send(n), RingStatus::ok);
    ASSERT_EQ(next_of(*honest), std::to_string(n));
  }
  EXPECT_EQ(report_of(served.path).generation, served.server->generation());
  // The server has closed its ends: only what the deaf have not read is left of them.
  for (const UniqueFd& one : deaf) {
    if (!one) continue;
    EXPECT_TRUE(comes_true([&] {
      pollfd polled{one.get(), POLLIN, 0};
      return poll(&polled, 1, 0) == 1 && (polled.revents & POLLHUP) != 0;
    }));
  }
  EXPECT_EQ(served.server->counters().disconnected, 0U);
}

TEST(LinkObserver, AFloodOfThemTakesTheFramesLockRarely) {
  Served served(4);
  const auto honest = served.consumer();
  std::atomic<bool> done{false};
  std::vector<std::thread> all;
  std::atomic<std::uint64_t> reports{0};
  const Deadline began = Clock::now();
  for (int n = 0; n < 3; ++n) {
    all.emplace_back([&] {
      while (!done) reports += observe(served.path).report ? 1 : 0;
    });
  }
  std::uint64_t frames = 0;
  for (; (frames < 2000 || reports < 300) && !HasFailure(); ++frames) {
    EXPECT_EQ(served.send(frames), RingStatus::ok);
    EXPECT_EQ(next_of(*honest), std::to_string(frames));
  }
  done = true;
  for (auto& one : all) one.join();
  const auto most = static_cast<std::uint64_t>((Clock::now() - began) / 10ms) + 2;
  EXPECT_LE(served.server->counters().observed, most) << "of " << reports << " reports";
  EXPECT_EQ(new_report_of(served.path).frames, frames);
}

TEST(LinkObserver, WhoSaysMoreIsNotHeard) {
  Served served(4);
  const auto honest = served.consumer();
  RawClient greedy(served.path);
  greedy.send(link::encode(0, link::Observe{}));
  // What follows may find the connection closed, and must not make a client of it.
  static_cast<void>(link::send_message(greedy.fd(), link::encode(0, link::Hello{})));
  static_cast<void>(greedy.farewell());
  EXPECT_EQ(served.server->clients().size(), 1U);
  // An observer may not send a client's messages, and gets no memory of a client's.
  RawClient liar(served.path);
  liar.join();
  liar.send(link::encode(liar.generation(), link::Observe{}));
  EXPECT_THAT(liar.farewell(), HasSubstr("sent an invalid message"));
  RawClient other(served.path);
  link::Bytes longer = link::encode(0, link::Observe{});
  longer.push_back(std::byte{0});
  EXPECT_THAT(other.refusal_of(longer), HasSubstr("no hello"));
  ASSERT_EQ(served.send(5), RingStatus::ok);
  EXPECT_EQ(next_of(*honest), "5");
}

// --- A server that is not to be believed

/// What is said of a server that answers with `answer`, and closes where it is empty.
std::string trouble_with(const link::Bytes& answer) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
  const link::Listener listener(path, 0600);
  std::thread server([&] {
    UniqueFd socket;
    comes_true([&] { return static_cast<bool>(socket = listener.accept()); });
    if (answer.empty()) return;
    EXPECT_EQ(link::send_message(socket.get(), answer), link::Sent::ok);
  });
  const LinkSight sight = observe(path);
  server.join();
  EXPECT_FALSE(sight.report);
  return sight.trouble;
}

TEST(LinkObserver, SaysWhyThereIsNoReport) {
  EXPECT_THAT(trouble_with({}), HasSubstr("closed the connection"));
  EXPECT_THAT(trouble_with(link::encode(7, link::Look{})), HasSubstr("sent an invalid report"));
  EXPECT_THAT(trouble_with(link::Bytes(5000)), HasSubstr("sent an invalid report"));
  EXPECT_THAT(trouble_with(link::encode_reason(7, link::MessageType::refuse, link::Why::full, "no room")),
              HasSubstr("refuses: no room"));
  // An older server says in its own version that it knows no other.
  link::Bytes older = link::encode_reason(7, link::MessageType::refuse, link::Why::version, "use the same");
  older[4] = std::byte{2};
  EXPECT_THAT(trouble_with(older), HasSubstr("another version of the link"));
}

TEST(LinkObserver, OneThatIsSilentCostsTheOthersNothing) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
  const link::Listener silent(path, 0600);
  const Served served(4);
  const std::vector<std::string> paths{path, served.path, path};
  // A busy machine may need more time for the one that answers. A few looks alone: those at the silent one are in its
  // queue for good, which has an end.
  std::vector<LinkSight> sights;
  for (std::chrono::nanoseconds time = 100ms; time < patience; time *= 4) {
    sights = observe_links(paths, Clock::now() + time);
    if (sights.at(1).report) break;
  }
  ASSERT_EQ(sights.size(), 3U);
  EXPECT_THAT(sights[0].trouble, HasSubstr("did not answer"));
  EXPECT_TRUE(sights[1].report);
  EXPECT_EQ(sights[1].path, served.path);
  EXPECT_FALSE(sights[2].report);
  EXPECT_TRUE(observe_links({}, Clock::now()).empty());
}

// A report as bytes: figures that cannot be are no report.

TEST(LinkWireReport, FiguresThatCannotBeAreNoReport) {
  const auto refused = [](auto change) {
    link::RingFigures ring;
    ring.slots = 4;
    ring.slot_bytes = 10;
    ring.program = link::to_name("program");
    std::vector<link::ClientFigures> clients(3);
    for (std::uint32_t n = 0; n < 3; ++n) clients[n].index = 2 * n;
    change(ring, clients);
    return !link::parse(link::encode_report(1, ring, clients));
  };
  using Ring = link::RingFigures;
  using Clients = std::vector<link::ClientFigures>;
  EXPECT_FALSE(refused([](Ring&, Clients&) {}));
  EXPECT_FALSE(refused([](Ring&, Clients& all) { all.clear(); }));
  EXPECT_TRUE(refused([](Ring& one, Clients&) { one.slots = 1; }));
  EXPECT_TRUE(refused([](Ring& one, Clients&) { one.slots = max_slots + 1; }));
  EXPECT_TRUE(refused([](Ring& one, Clients&) { one.slot_bytes = 0; }));
  EXPECT_TRUE(refused([](Ring& one, Clients&) { one.queued = 5; }));
  EXPECT_TRUE(refused([](Ring& one, Clients&) { one.busy = 5; }));
  EXPECT_TRUE(refused([](Ring& one, Clients&) { one.transport = 4; }));
  EXPECT_TRUE(refused([](Ring& one, Clients&) { one.stamps = 2; }));
  EXPECT_TRUE(refused([](Ring& one, Clients&) { one.at_ns = std::uint64_t{1} << 63U; }));
  EXPECT_TRUE(refused([](Ring&, Clients& all) { all[2].lag_ns = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](Ring&, Clients& all) { all[2].timed_ns = std::uint64_t{1} << 63U; }));
  EXPECT_TRUE(refused([](Ring& one, Clients&) { one.program[0] = '\x1b'; }));
  EXPECT_TRUE(refused([](Ring&, Clients& all) { all[2].name = {'\xc2', '\x9b', 'm'}; })) << "CSI";
  EXPECT_TRUE(refused([](Ring&, Clients& all) { all[2].name = {'\xe0', '\x80', '\x9b'}; })) << "no UTF-8";
  EXPECT_FALSE(refused([](Ring&, Clients& all) { all[2].name = {'\xc3', '\xa4'}; }));
  EXPECT_TRUE(refused([](Ring& one, Clients&) { one.program.fill('x'); }));
  EXPECT_TRUE(refused([](Ring&, Clients& all) { all[2].index = all[1].index; }));
  EXPECT_TRUE(refused([](Ring&, Clients& all) { all[2].index = max_link_clients; }));
  EXPECT_TRUE(refused([](Ring&, Clients& all) { all[0].leak = 3; }));
  EXPECT_TRUE(refused([](Ring&, Clients& all) { all[0].slots = 5; }));
  EXPECT_TRUE(refused([](Ring&, Clients& all) { all[0].zero = 1; }));
  EXPECT_TRUE(refused([](Ring&, Clients& all) { all[0].name.fill('x'); }));
  EXPECT_TRUE(refused([](Ring&, Clients& all) { all.resize(17); }));
  EXPECT_EQ(std::string(link::to_name("a\x1b[2Jb\n").data()), "a[2Jb");
  EXPECT_EQ(std::string(link::to_name(std::string(100, 'x')).data()), std::string(63, 'x'));
  EXPECT_EQ(std::string(link::to_name("\xc2\x9b"
                                      "2J\xff\xc3\xa4")
                            .data()),
            "2J\xc3\xa4");
  EXPECT_EQ(std::string(link::to_name(std::string(62, 'x') + "\xc3\xa4").data()), std::string(62, 'x')) << "no half";
}

TEST(LinkWireReport, WhatIsEncodedIsParsed) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 100; ++round) {
    link::RingFigures ring;
    ring.at_ns = random() >> 1U;
    ring.frames = random();
    ring.bytes = random();
    ring.unseen = random();
    ring.dropped = random();
    ring.slot_bytes = random() | 1U;
    ring.slots = static_cast<std::uint32_t>(2 + random() % 255);
    ring.queued = static_cast<std::uint32_t>(random() % ring.slots);
    ring.busy = static_cast<std::uint32_t>(random() % ring.slots);
    ring.transport = static_cast<std::uint32_t>(random() % 4);
    std::vector<link::ClientFigures> clients;
    for (std::uint32_t index = 0; index < max_link_clients; ++index) {
      if (random() % 2 == 0) continue;
      link::ClientFigures client;
      client.index = index;
      client.connection = random();
      client.shown = random();
      client.lag = random();
      client.timed_ns = random() >> 1U;
      for (std::uint32_t& count : client.times) count = static_cast<std::uint32_t>(random());
      client.name = link::to_name(std::to_string(random()));
      clients.push_back(client);
    }
    const link::Bytes bytes = link::encode_report(random(), ring, clients);
    ASSERT_LE(bytes.size(), link::largest_report);
    const auto message = link::parse(bytes);
    ASSERT_TRUE(message);
    const auto& report = std::get<link::Report>(message->body);
    EXPECT_EQ(report.ring.at_ns, ring.at_ns);
    EXPECT_EQ(report.ring.dropped, ring.dropped);
    ASSERT_EQ(report.ring.clients, clients.size());
    for (std::size_t n = 0; n < clients.size(); ++n) {
      const auto client = report.client(n);
      EXPECT_EQ(std::memcmp(&client, &clients[n], sizeof client), 0);
    }
  }
}

// How servers are found: in tables that are made up, and in the kernel's.

using ::testing::Contains;
using ::testing::Not;

std::vector<std::string> paths_in(const std::string& table, uid_t user = 1000) {
  std::vector<std::string> paths;
  for (const auto& place : link::marked_servers(table, user))
    paths.push_back(std::to_string(place.pid) + " " + place.path);
  return paths;
}

constexpr auto table =
    "Num       RefCount Protocol Flags    Type St Inode Path\n"
    "00000000abe11fd7: 00000002 00000000 00010000 0005 01    17 /run/user/1000/second\n"
    "0000000092a2618a: 00000003 00000000 00000000 0001 03 1334039\n"
    "00000000dc3b7be2: 00000002 00000000 00000000 0005 01 18 @gpumap-link/1000/4711/17/8ab\n"
    "00000000abe11fd7: 00000002 00000000 00010000 0005 01 1352473 /tmp/a camera\n"
    "00000000abe11fd7: 00000002 00000000 00000000 0005 01 1352474 @gpumap-link/1000/42/1352473/ffffffffffffffff\n"
    // Of another user, a server of a foreign kind, and marks of what does not listen, is no SEQPACKET or is abstract.
    "00000000abe11fd7: 00000002 00000000 00010000 0005 01 30 /tmp/theirs\n"
    "00000000abe11fd7: 00000002 00000000 00000000 0005 01 31 @gpumap-link/1001/43/30/1\n"
    "00000000abe11fd7: 00000002 00000000 00010000 0005 01 40 /tmp/foreign\n"
    "00000000abe11fd7: 00000002 00000000 00000000 0005 01 41 @gpumap-link/1000/44/99/1\n"
    "00000000abe11fd7: 00000003 00000000 00000000 0005 03 50 /tmp/connected\n"
    "00000000abe11fd7: 00000002 00000000 00000000 0005 01 51 @gpumap-link/1000/44/50/1\n"
    "00000000abe11fd7: 00000002 00000000 00010000 0001 01 60 /tmp/stream\n"
    "00000000abe11fd7: 00000002 00000000 00000000 0005 01 61 @gpumap-link/1000/44/60/1\n"
    "00000000abe11fd7: 00000002 00000000 00010000 0005 01 70 @abstract\n"
    "00000000abe11fd7: 00000002 00000000 00000000 0005 01 71 @gpumap-link/1000/44/70/1\n"
    // A listener that calls itself a mark is none.
    "00000000abe11fd7: 00000002 00000000 00010000 0005 01 81 @gpumap-link/1000/44/40/1\n";

TEST(LinkPlaces, OnlyMarkedListenersOfTheUser) {
  EXPECT_EQ(paths_in(table), (std::vector<std::string>{"4711 /run/user/1000/second", "42 /tmp/a camera"}));
  EXPECT_EQ(paths_in(table, 1001), (std::vector<std::string>{"43 /tmp/theirs"}));
  EXPECT_TRUE(paths_in(table, 0).empty());
  EXPECT_TRUE(paths_in("").empty());
}

TEST(LinkPlaces, MarksThatMakeNoSenseAreLeftOut) {
  for (const char* const mark : {"@gpumap-link/1000/42/17", "@gpumap-link/1000/42/17/", "@gpumap-link/1000/42/17/1x",
                                 "@gpumap-link/1000/-1/17/1", "@gpumap-link/1000/0/17/1", "@gpumap-link/1000/42/0x17/1",
                                 "@gpumap-link/1000//17/1", "@gpumap-link/", "@gpumap-link/1000/42/17/1/2",
                                 "@gpumap-link/1000/42/99999999999999999999/1", "gpumap-link/1000/42/17/1"}) {
    const std::string lines = "0: 2 0 00010000 0005 01 17 /tmp/here\n0: 2 0 00000000 0005 01 18 ";
    EXPECT_TRUE(paths_in(lines + mark + "\n").empty()) << mark;
    EXPECT_EQ(paths_in(lines + "@gpumap-link/1000/42/17/1\n").size(), 1U);
  }
}

TEST(LinkPlaces, TablesThatAreCutAndChangedDoNoHarm) {
  std::mt19937 random(1);
  const std::string whole = table;
  for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) EXPECT_LE(paths_in(whole.substr(0, bytes)).size(), 2U);
  for (int round = 0; round < 2000; ++round) {
    std::string changed = whole;
    for (int n = 0; n < 5; ++n) changed[random() % changed.size()] = static_cast<char>(random());
    EXPECT_LE(paths_in(changed).size(), 5U);
  }
}

TEST(LinkPlaces, AServerIsFoundWhileItServes) {
  std::string path;
  {
    const Served served(4);
    path = served.path;
    EXPECT_THAT(find_links(), Contains(path));
    const Served other(3);
    EXPECT_THAT(find_links(), Contains(path));
    EXPECT_THAT(find_links(), Contains(other.path));
  }
  EXPECT_THAT(find_links(), Not(Contains(path)));
}

TEST(LinkPlaces, ARelativePathIsFoundFromElsewhere) {
  const TemporaryFolder folder;
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  {
    const auto server = LinkServer::serve(link_ring(2), {.path = "in-the-folder"});
    const std::string path = std::filesystem::canonical(folder.path()) / "in-the-folder";
    EXPECT_THAT(find_links(), Contains(path));
    EXPECT_EQ(report_of(path).generation, server->generation());
  }
  std::filesystem::current_path(here);
}

TEST(LinkPlaces, AKilledServerIsNotFoundAndSaysSoByItsPath) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
  Child server({"produce", path, "1", "leased", "1000000"});  // waits for a client
  ASSERT_TRUE(comes_true([&] { return observe(path).report.has_value(); }));
  EXPECT_THAT(find_links(), Contains(path));
  const LinkReport report = report_of(path);
  EXPECT_EQ(report.pid, server.pid());
  EXPECT_EQ(report.program, "link_peer");
  server.signal(SIGSTOP);
  const std::string silent = "process " + std::to_string(server.pid()) + " did not answer: it is stopped, or busy";
  EXPECT_TRUE(comes_true([&] { return observe(path, 50ms).trouble == silent; }));
  server.signal(SIGKILL);
  EXPECT_EQ(server.wait(), "signal 9");
  EXPECT_THAT(find_links(), Not(Contains(path)));
  EXPECT_TRUE(std::filesystem::exists(path)) << "what it left";
  EXPECT_EQ(observe(path).trouble, "Connection refused");
  EXPECT_EQ(observe(folder.path() / "none").trouble, "No such file or directory");
  EXPECT_THAT(observe(std::string(108, 'x')).trouble, HasSubstr("choose a shorter one"));
}

}  // namespace
}  // namespace gpumap
