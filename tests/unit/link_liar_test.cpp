// SPDX-License-Identifier: MIT
// A client or server that lies is disconnected, with a reason, and the producer and the honest go on: on the socket, in
// the block, and as a server. What random bytes do is the fuzzers' business (link_wire_fuzz.cpp, link_block_fuzz.cpp).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "link_raw.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words
using link::Entry;
using link::Offer;

/// A server with an honest client and a liar.
struct Company : Served {
  Company() : Served(4), honest(consumer(LinkLeak::no, "honest")), liar(path) {}
  /// A frame that the honest one gets, whole; the liar is shown it, too.
  void frame() {
    ASSERT_EQ(send(0, WhenFull::drop_oldest), RingStatus::ok);
    ReadLease lease;
    LinkFrame got;
    ASSERT_EQ(honest->next(lease, got, soon()), LinkNext::frame);
    ASSERT_TRUE(is_whole(*honest, lease, got));
  }
  /// Only the honest one is left, and nothing is missing.
  void expect_unharmed(std::uint64_t liars) {
    EXPECT_TRUE(comes_true([&] { return server->clients().size() == 1; }));
    EXPECT_EQ(server->clients().at(0).name, "honest");
    EXPECT_EQ(server->counters().liars, liars);
    for (int n = 0; n < 10; ++n) frame();
    std::vector<WriteLease> all(ring->slots());
    for (auto& lease : all) ASSERT_EQ(server->acquire(lease, WhenFull::block, soon()), RingStatus::ok);
    std::vector<bool> seen(ring->slots());
    for (const auto& lease : all) {
      EXPECT_FALSE(seen[lease.slot()]) << "a slot was leased twice";
      seen[lease.slot()] = true;
    }
  }
  std::unique_ptr<LinkConsumer> honest;
  RawClient liar;
};

TEST(LinkLiar, WhatIsNoHelloIsRefused) {
  Company company;
  link::Bytes bytes = link::encode(0, link::Hello{});
  bytes[0] ^= std::byte{1};
  EXPECT_NE(company.liar.refusal_of(bytes).find("no hello"), std::string::npos);
  RawClient wrong_leak(company.path);
  link::Hello hello;
  hello.leak = 3;
  EXPECT_NE(wrong_leak.refusal_of(link::encode(0, hello)).find("no hello"), std::string::npos);
  RawClient too_long(company.path);
  EXPECT_EQ(too_long.refusal_of(link::Bytes(5000)), "nothing");
  company.expect_unharmed(0);
}

TEST(LinkLiar, AnotherVersionIsToldSo) {
  Company company;
  link::Bytes bytes = link::encode(0, link::Hello{});
  bytes[4] = std::byte{9};
  EXPECT_NE(company.liar.refusal_of(bytes).find("version"), std::string::npos);
}

TEST(LinkLiar, WhoSaysNothingIsNotWaitedFor) {
  Company company;
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int n = 0; n < 40; ++n) silent.push_back(std::make_unique<RawClient>(company.path));
  const auto patient = company.consumer();  // although so many stand before it
  EXPECT_EQ(company.liar.farewell(), "nothing");
  EXPECT_EQ(company.server->clients().size(), 2U);
}

TEST(LinkLiar, MessagesThatNoClientSendsEndIt) {
  const std::vector<std::function<link::Bytes(std::uint64_t)>> lies{
      [](std::uint64_t generation) { return link::encode(generation, link::Hello{}); },
      [](std::uint64_t generation) { return link::encode_data(generation, {}, {}); },
      [](std::uint64_t generation) { return link::encode(generation ^ 1U, link::Look{}); },
      [](std::uint64_t) { return link::Bytes(24); },
      [](std::uint64_t) { return link::Bytes(100'000); },
  };
  for (const auto& lie : lies) {
    Company company;
    company.liar.join();
    company.frame();
    company.liar.send(lie(company.liar.generation()));
    EXPECT_NE(company.liar.farewell().find("an invalid message"), std::string::npos);
    company.expect_unharmed(1);
  }
}

TEST(LinkLiar, IsToldOnStandardErrorAndWhoEndsIsNot) {
  testing::internal::CaptureStderr();
  {
    Company company;
    company.liar.join();
    company.liar.send(link::Bytes(24));
    EXPECT_NE(company.liar.farewell().find("an invalid message"), std::string::npos);
    company.expect_unharmed(1);
    company.honest.reset();
    EXPECT_TRUE(comes_true([&] { return company.server->clients().empty(); }));
  }
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("is disconnected: it sent an invalid message"), std::string::npos) << told;
  EXPECT_EQ(told.find("honest"), std::string::npos) << told;
}

TEST(LinkLiar, DescriptorsFromAClientAreNotKept) {
  Company company;
  company.liar.join();
  const auto open = [] {
    int count = 0;
    for (int fd = 0; fd < 256; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  };
  const int before = open();
  const int fds[] = {0, 1};
  for (int n = 0; n < 20; ++n) company.liar.send(link::encode(company.liar.generation(), link::Look{}), fds);
  company.liar.send(link::Bytes(1), fds);
  EXPECT_NE(company.liar.farewell().find("an invalid message"), std::string::npos);
  company.liar.close();
  EXPECT_TRUE(comes_true([&] { return open() <= before; }));
  company.expect_unharmed(1);
}

/// What a client may write into its block, and whether that is a lie that can be told from the truth.
struct BlockLie {
  const char* what;
  std::function<void(link::ClientBlock&, std::uint32_t slot, std::uint64_t ticket)> tell;
  bool seen;
};

TEST(LinkLiar, WordsOfTheBlockAreComparedWithWhatIsKnown) {
  const std::vector<BlockLie> lies{
      {"a ticket that never was",
       [](auto& block, std::uint32_t slot, std::uint64_t ticket) {
         block.returned[slot] = Entry{ticket + 1, slot, Offer::taken}.word();
       },
       true},
      {"another slot's word",
       [](auto& block, std::uint32_t slot, std::uint64_t ticket) {
         block.returned[slot] = Entry{ticket, slot + 1, Offer::taken}.word();
       },
       true},
      {"all ones",
       [](auto& block, std::uint32_t, std::uint64_t) {
         for (auto& word : block.returned) word = ~std::uint64_t{0};
       },
       true},
      {"slots that it was not shown, which are nobody's business",
       [](auto& block, std::uint32_t slot, std::uint64_t ticket) {
         for (std::uint32_t other = 0; other < max_slots; ++other) {
           if (other != slot) block.returned[other] = Entry{ticket, other, Offer::taken}.word();
         }
       },
       true},
      {"entries of its own",
       [](auto& block, std::uint32_t, std::uint64_t ticket) {
         for (auto& word : block.entry) word = Entry{ticket + 7, 200, Offer::offered}.word();
       },
       false},
      {"lengths and times",
       [](auto& block, std::uint32_t, std::uint64_t) {
         for (auto& shown : block.shown) shown.info.bytes = shown.messages = ~std::uint64_t{0};
       },
       false},
      {"that it sleeps, and a count of returns",
       [](auto& block, std::uint32_t, std::uint64_t) { block.asleep = block.returns = ~std::uint64_t{0}; }, false},
  };
  for (const BlockLie& lie : lies) {
    SCOPED_TRACE(lie.what);
    Company company;
    company.liar.join();
    company.frame();
    link::ClientBlock& block = company.liar.block();
    const Entry entry = Entry::of(block.entry[0].load());
    ASSERT_EQ(entry.state, Offer::offered);
    lie.tell(block, entry.slot, entry.ticket);
    ++block.returns;
    for (int n = 0; n < 20; ++n) company.frame();
    if (lie.seen) {
      EXPECT_NE(company.liar.farewell().find("did not have"), std::string::npos);
    } else {
      EXPECT_EQ(company.server->clients().size(), 2U);
      company.liar.close();
    }
    company.expect_unharmed(lie.seen ? 1 : 0);
  }
}

TEST(LinkLiar, ASlotGivenBackTwiceIsFreeOnce) {
  Company company;
  company.liar.join();
  company.frame();
  link::ClientBlock& block = company.liar.block();
  const Entry entry = Entry::of(block.entry[0].load());
  const std::uint64_t word = Entry{entry.ticket, entry.slot, Offer::taken}.word();
  for (int n = 0; n < 5; ++n) {
    block.returned[entry.slot] = word;
    ++block.returns;
    company.server->hand_on();
  }
  EXPECT_EQ(company.server->clients().at(1).slots, 0U);
  WriteLease one;
  WriteLease two;
  ASSERT_EQ(company.server->acquire(one, WhenFull::block, soon()), RingStatus::ok);
  ASSERT_EQ(company.server->acquire(two, WhenFull::block, soon()), RingStatus::ok);
  EXPECT_NE(one.slot(), two.slot());
}

TEST(LinkLiar, WhoDoesNotSayThatItReturnedIsFoundOutAllTheSame) {
  Served served(2);
  RawClient silent(served.path);
  silent.join();
  served.send(0);
  served.send(1);
  link::ClientBlock& block = silent.block();
  for (std::uint32_t at = 0; at < 2; ++at) {
    const Entry entry = Entry::of(block.entry[at].load());
    block.returned[entry.slot] = Entry{entry.ticket, entry.slot, Offer::taken}.word();
  }
  EXPECT_EQ(served.send(2), RingStatus::ok) << "its count did not move, and it woke nobody";
}

// The other way round: a consumer believes no server.

/// What ends a consumer whose hello is answered with `welcome`, these descriptors and `then`. The server stays, unless
/// it `leaves`: a consumer that hears of its end first does not say what else was wrong.
std::string answered_with(const link::Welcome& welcome, std::span<const int> fds, const link::Bytes& then = {},
                          bool leaves = false) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "link";
  const link::Listener listener(path, 0600);
  const Greeter server(listener, welcome, fds, then, leaves);
  try {
    LinkConsumerOptions options;
    options.path = path;
    options.patience = patience;
    const auto consumer = LinkConsumer::connect(std::make_shared<FakeDevice>(), options);
    ReadLease lease;
    LinkFrame frame;
    for (const Deadline end = soon(); Clock::now() < end;) {
      if (consumer->next(lease, frame, end) == LinkNext::closed) break;
    }
    return consumer->why();
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(LinkLiar, AConsumerBelievesNoServer) {
  HonestParts parts;
  const auto with = [&](auto change) {
    link::Welcome welcome = parts.welcome;
    change(welcome);
    return answered_with(welcome, parts.fds());
  };
  EXPECT_EQ(answered_with(parts.welcome, parts.fds(), {}, true), "the server is gone") << "the truth";
  EXPECT_NE(with([](link::Welcome& one) { one.slots = 257; }).find("an invalid message"), std::string::npos);
  EXPECT_NE(with([](link::Welcome& one) { one.slot_stride = 1ULL << 62U; }).find("an invalid message"),
            std::string::npos);
  EXPECT_NE(with([](link::Welcome& one) { one.slots = 3; }).find("another version or time"), std::string::npos);
  EXPECT_NE(with([](link::Welcome& one) { one.memory.bytes = one.memory.allocation_bytes = 1U << 20U; }).find("sealed"),
            std::string::npos);
  const int alone[] = {parts.memory.get()};
  EXPECT_NE(answered_with(parts.welcome, alone).find("incomplete"), std::string::npos);
  const UniqueFd open_end(memfd_create("not sealed", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(open_end.get(), 1 << 20), 0);
  const int not_sealed[] = {open_end.get(), parts.block.fd()};
  EXPECT_NE(answered_with(parts.welcome, not_sealed).find("sealed"), std::string::npos);
}

TEST(LinkLiar, AConsumerTakesNoImpossibleFrame) {
  for (const int lie : {0, 1, 2, 3, 4}) {
    HonestParts parts;
    link::ClientBlock& block = parts.block.block();
    block.shown[1].info.bytes = lie == 0 ? 1001 : 1000;
    if (lie > 2) block.shown[1].note_bytes = lie == 3 ? max_link_note + 1 : ~std::uint64_t{0};
    block.entry[0] = Entry{0, lie == 1 ? 4U : 1U, Offer::offered}.word();
    block.entry[1] = Entry{1, 1, Offer::offered}.word();
    if (lie == 2) block.entry[0] = block.entry[1] = Entry{0, 1, Offer::offered}.word();
    const std::string text = answered_with(parts.welcome, parts.fds(), {}, lie == 2);
    EXPECT_EQ(text, lie == 2 ? "the server is gone" : "the server offered a slot that cannot be");
  }
}

TEST(LinkLiar, TimesThatCannotBeAreNone) {
  constexpr std::int64_t now = 1000;
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  FrameInfo info;
  info.sequence = 17;
  info.publish_ns = 900;
  const link::FrameTimes times{100, 200, 300, 5000, 50};
  const auto record = link::record_of(info, times, now);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->sequence, 17U);
  EXPECT_EQ(record->at_ns, (std::array<std::int64_t, stamp_count>{100, 200, 300, 900}));
  EXPECT_EQ(record->due_ns, 5000) << "it may be in the future";
  EXPECT_EQ(record->captured_ns, 50);
  EXPECT_FALSE(link::record_of(info, {}, now)) << "it did not stamp";
  for (const std::int64_t lie : {least, std::int64_t{-1}, now + 1, most}) {
    for (std::int64_t link::FrameTimes::*const which :
         {&link::FrameTimes::acquired_ns, &link::FrameTimes::first_store_ns, &link::FrameTimes::last_store_ns}) {
      link::FrameTimes lies = times;
      lies.*which = lie;
      EXPECT_FALSE(link::record_of(info, lies, now)) << lie;
    }
    FrameInfo other = info;
    other.publish_ns = lie;
    EXPECT_FALSE(link::record_of(other, times, now)) << lie;
  }
  const auto odd = link::record_of(info, {100, 200, 300, least, -1}, now);
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->due_ns, 0);
  EXPECT_EQ(odd->captured_ns, 0);
}

TEST(LinkLiar, AConsumerMissesNoMessage) {
  HonestParts parts;
  EXPECT_EQ(answered_with(parts.welcome, parts.fds(), link::encode_data(5, {2, 0}, {})),
            "the server left a message out");
  const std::vector<std::byte> ten(10);
  const std::string no_parts = "the server sent parts that are no message";
  EXPECT_EQ(answered_with(parts.welcome, parts.fds(), link::encode_data(5, {1, 0, 5}, {})), no_parts);
  EXPECT_EQ(answered_with(parts.welcome, parts.fds(), link::encode_data(5, {1, 0, max_link_message - 9}, ten)),
            no_parts);
  EXPECT_EQ(answered_with(parts.welcome, parts.fds(), link::encode_data(5, {1, 0, ~std::uint64_t{0}}, ten)),
            "the server sent an invalid message");
  EXPECT_EQ(answered_with(parts.welcome, parts.fds(), link::encode(6, link::Look{})),
            "the server sent a message of another ring");
}

// Parts of two messages are none.
TEST(LinkLiar, AConsumerTakesNoPartForAnother) {
  const std::vector<std::byte> ten(10);
  for (const link::DataHead& lie : {link::DataHead{2, 0, 11}, link::DataHead{2, 0, 9}, link::DataHead{2, 1, 10},
                                    link::DataHead{2, link::at_once, 10}, link::DataHead{2, 0, 20}}) {
    RawServer server;
    const auto consumer = server.consumer();
    EXPECT_EQ(link::send_message(server.socket.get(), link::encode_data(5, {1, 0, 20}, ten)), link::Sent::ok);
    EXPECT_EQ(link::send_message(server.socket.get(), link::encode_data(5, lie, ten)), link::Sent::ok);
    EXPECT_EQ(next_of(*consumer), "closed");
    EXPECT_EQ(consumer->why(), "the server sent parts that are no message") << lie.before << ' ' << lie.rest;
  }
  RawServer server;
  const auto consumer = server.consumer();
  for (const std::uint64_t rest : {20, 10, 0}) {
    const link::DataHead head{3 - rest / 10, 0, rest};
    EXPECT_EQ(link::send_message(server.socket.get(), link::encode_data(5, head, bytes_of("0123456789"))),
              link::Sent::ok);
  }
  EXPECT_EQ(next_of(*consumer), "'012345678901234567890123456789'") << "the truth";
}

// Its memory is on one GPU, and no other will do.
TEST(LinkLiar, AConsumerOpensNoOtherGpuThanTheServers) {
  RawServer server;
  link::MemoryOffer& memory = server.parts.welcome.memory;
  memory.kind = static_cast<std::uint32_t>(link::MemoryKind::opaque);
  for (std::size_t at = 0; at < memory.device.size(); ++at) memory.device[at] = static_cast<std::uint8_t>(17 * at + 3);
  const Greeter greeter(server.listener, server.parts.welcome, server.parts.fds());
  LinkConsumerOptions options;
  options.path = server.path();
  options.patience = patience;
  const std::string text = error_text([&] { (void)LinkConsumer::connect(options); }, ErrorCode::no_device);
  EXPECT_NE(text.find("GPU " + to_string(memory.device)), std::string::npos) << text;
}

// What it says keeps no thread busy until there is a ring, and is answered.
TEST(LinkLiar, WhoSaysHelloWhileThereIsNoRingWaits) {
  Served served(3);
  const Deadline began = Clock::now();
  RawClient early(served.path);
  const auto behind = served.consumer();  // so the server has accepted the early one
  served.server->change(nullptr);
  const bool is_in_time = Clock::now() - began < 1s;  // it is not closed for its silence
  link::Hello hello;
  hello.leak = static_cast<std::uint32_t>(LinkLeak::oldest);
  static_cast<void>(link::send_message(early.fd(), link::encode(0, hello)));
  const auto before = time_used(CLOCK_PROCESS_CPUTIME_ID);
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(time_used(CLOCK_PROCESS_CPUTIME_ID) - before, 60ms);
  served.server->change(link_ring(5));
  // Where the server heard it in the turn in which the ring went, it is to try again.
  if (is_in_time) {
    EXPECT_TRUE(early.receive());
  }
}

}  // namespace
}  // namespace gpumap
