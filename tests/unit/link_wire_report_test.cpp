// SPDX-License-Identifier: MIT
// A report as bytes: figures that cannot be are no report.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "link/wire.hpp"

namespace gpumap {
namespace {

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

}  // namespace
}  // namespace gpumap
