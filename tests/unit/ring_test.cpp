// SPDX-License-Identifier: MIT
// The ring on one thread, and everything that wakes a sleeper. Threads at full speed: ring_stress_test.cpp.
#include "gpumap/ring.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "ring_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

class Slots : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ring, Slots, testing::Values(2U, 3U, 8U, 255U, 256U));

TEST_P(Slots, KeepOrderAndContent) {
  const std::uint32_t slots = GetParam();
  const auto ring = make_ring(slots, 777);
  std::mt19937_64 random(slots);
  std::vector<std::vector<unsigned char>> sent;
  std::size_t got = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    const bool full = sent.size() - got == slots;
    if (!full && (got == sent.size() || random() % 2 == 0)) {
      WriteLease lease = must_acquire(*ring);
      std::vector<unsigned char> bytes(random() % 778);
      for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
      if (!bytes.empty()) std::memcpy(lease.host(), bytes.data(), bytes.size());
      FrameInfo info{.bytes = bytes.size(), .pts = turn, .dts = -7, .duration = 3, .offset = 1, .offset_end = 2};
      info.flags = 5;
      info.user = static_cast<std::uint32_t>(sent.size());
      ring->publish(lease, info);
      sent.push_back(std::move(bytes));
    } else {
      const ReadLease lease = must_receive(*ring);
      ASSERT_TRUE(lease);
      const FrameInfo& info = lease.info();
      ASSERT_EQ(info.sequence, got);
      ASSERT_EQ(info.user, got);
      ASSERT_EQ(info.bytes, sent[got].size());
      ASSERT_EQ(std::tuple(info.dts, info.duration, info.offset, info.offset_end, info.flags),
                std::tuple(-7, 3, 1U, 2U, 5U));
      ASSERT_EQ(
          info.bytes == 0 ? 0 : std::memcmp(ring->mapping()->host() + lease.offset(), sent[got].data(), info.bytes), 0);
      ++got;
    }
    ASSERT_EQ(ring->queued(), sent.size() - got);
    ASSERT_EQ(ring->published(), sent.size());
  }
  EXPECT_EQ(ring->counters().published, sent.size());
  EXPECT_EQ(ring->counters().received, got);
  EXPECT_EQ(ring->counters().dropped, 0U);
}

TEST_P(Slots, AreDistinctAlignedAndAllThere) {
  const auto ring = make_ring(GetParam(), 5000);
  EXPECT_EQ(ring->slot_stride(), 8192U);
  std::vector<WriteLease> leases;
  std::set<std::byte*> places;
  for (std::uint32_t n = 0; n < GetParam(); ++n) {
    leases.push_back(must_acquire(*ring));
    EXPECT_EQ(leases.back().bytes(), 5000U);
    EXPECT_EQ(leases.back().host(), ring->mapping()->host() + leases.back().offset());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(leases.back().host()) % 4096, 0U);
    std::memset(leases.back().host(), 1, 5000);
    places.insert(leases.back().host());
  }
  EXPECT_EQ(places.size(), GetParam());
  WriteLease none;
  EXPECT_EQ(ring->acquire(none, WhenFull::block, at_once()), RingStatus::timeout);
  EXPECT_FALSE(none);
  EXPECT_EQ(none.host(), nullptr);
}

TEST_P(Slots, ComeBackInOrderOfRelease) {
  const auto ring = make_ring(GetParam());
  for (std::uint32_t n = 0; n < GetParam(); ++n) send(*ring);
  std::vector<ReadLease> held;
  for (std::uint32_t n = 0; n < GetParam(); ++n) held.push_back(must_receive(*ring));
  std::vector<std::uint32_t> released;
  std::mt19937 random(GetParam());
  while (!held.empty()) {
    std::swap(held[random() % held.size()], held.back());
    released.push_back(held.back().slot());
    held.pop_back();
  }
  std::vector<WriteLease> again;
  for (const std::uint32_t slot : released) {
    again.push_back(must_acquire(*ring));
    EXPECT_EQ(again.back().slot(), slot);
  }
}

TEST(Ring, RefusesBadOptions) {
  const auto device = std::make_shared<FakeDevice>();
  expect_invalid([&] { (void)Ring::create(device, {.slots = 1, .slot_bytes = 1}); }, "2 to 256");
  expect_invalid([&] { (void)Ring::create(device, {.slots = 257, .slot_bytes = 1}); }, "257");
  expect_invalid([&] { (void)Ring::create(device, {.slots = 2, .slot_bytes = 0}); }, "0 bytes");
  expect_invalid([&] { (void)Ring::create(device, {.slots = 2, .slot_bytes = ~std::size_t{0} / 2}); }, "address space");
  expect_invalid([&] { (void)Ring::create(nullptr, {.slots = 2, .slot_bytes = 1}); }, "device");
}

TEST(Ring, NamesSlotsAndSizeWhenTheWindowIsFull) {
  try {
    (void)Ring::create(std::make_shared<FakeDevice>(1U << 20U),
                       {.slots = 4, .slot_bytes = 3U << 20U, .transport = Transport::bar});
    FAIL() << "12 MiB do not fit in 1";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::no_memory);
    EXPECT_EQ(std::string(error.what()), "4 slots of 3 MiB: fake window exhausted");
  }
}

TEST(Ring, AsksForOneMappingWithItsOptions) {
  const auto device = std::make_shared<FakeDevice>();
  const auto ring =
      Ring::create(device, {.slots = 3, .slot_bytes = 4097, .require_coherent = true, .treat_as_non_coherent = true});
  EXPECT_EQ(device->last_options.bytes, 3U * 8192U);
  EXPECT_EQ(device->last_options.placement, Placement::bar);
  EXPECT_TRUE(device->last_options.require_coherent);
  EXPECT_TRUE(device->last_options.treat_as_non_coherent);
  EXPECT_EQ(ring->device(), device);
  EXPECT_EQ(ring->slots(), 3U);
  EXPECT_EQ(ring->slot_bytes(), 4097U);
}

TEST(Ring, FlushesWhatWasWrittenWhereNotCoherent) {
  const auto ring =
      Ring::create(std::make_shared<FakeDevice>(), {.slots = 2, .slot_bytes = 5000, .treat_as_non_coherent = true});
  for (const std::uint64_t bytes : {0U, 123U, 5000U}) {
    WriteLease lease = must_acquire(*ring);
    ring->publish(lease, {.bytes = bytes});
    must_receive(*ring);
  }
  const auto flushed = dynamic_cast<const FakeMapping&>(*ring->mapping()).flushed();
  EXPECT_EQ(flushed, (std::vector<std::pair<std::size_t, std::size_t>>{{8192, 123}, {0, 5000}}));
  const auto coherent = make_ring(2);
  send(*coherent);
  EXPECT_TRUE(dynamic_cast<const FakeMapping&>(*coherent->mapping()).flushed().empty());
}

TEST(Ring, PublishStampsAndRefuses) {
  const auto ring = make_ring(3, 100);
  const auto other = make_ring(2, 100);
  WriteLease lease;
  expect_invalid([&] { ring->publish(lease, {}); }, "empty lease");
  lease = must_acquire(*ring);
  expect_invalid([&] { other->publish(lease, {}); }, "another ring");
  expect_invalid([&] { ring->publish(lease, {.bytes = 101}); }, "101 bytes");
  EXPECT_FALSE(lease.published());
  EXPECT_EQ(ring->queued(), 0U);
  const auto before = Clock::now().time_since_epoch().count();
  ring->publish(lease, {.sequence = 99, .bytes = 100, .publish_ns = 1});
  EXPECT_TRUE(lease.published());
  expect_invalid([&] { ring->publish(lease, {}); }, "published already");
  EXPECT_EQ(ring->queued(), 1U);
  const ReadLease read = must_receive(*ring);
  EXPECT_EQ(read.info().sequence, 0U);
  EXPECT_GE(read.info().publish_ns, before);
  EXPECT_LE(read.info().publish_ns, Clock::now().time_since_epoch().count());
}

TEST(Ring, UnpublishedLeaseReturnsItsSlot) {
  const auto ring = make_ring(2);
  for (int turn = 0; turn < 10; ++turn) {
    const WriteLease one = must_acquire(*ring);
    const WriteLease two = must_acquire(*ring);
    EXPECT_NE(one.slot(), two.slot());
  }
  EXPECT_EQ(ring->published(), 0U);
}

TEST(Ring, WriteLeaseKeptAfterReleaseKeepsTheSlot) {
  const auto ring = make_ring(2);
  WriteLease kept = must_acquire(*ring);
  const std::uint32_t slot = kept.slot();
  ring->publish(kept, {});
  { const ReadLease read = must_receive(*ring); }
  for (int turn = 0; turn < 5; ++turn) {
    const WriteLease other = must_acquire(*ring);
    EXPECT_NE(other.slot(), slot);
    WriteLease none;
    EXPECT_EQ(ring->acquire(none, WhenFull::drop_newest), RingStatus::full);
  }
  kept = WriteLease();
  const WriteLease a = must_acquire(*ring);
  const WriteLease b = must_acquire(*ring);
  EXPECT_TRUE(a.slot() == slot || b.slot() == slot);
}

TEST(Ring, WriteLeaseDroppedWhileTheReaderHoldsKeepsTheSlotWithTheReader) {
  const auto ring = make_ring(2);
  WriteLease write = must_acquire(*ring);
  ring->publish(write, {});
  ReadLease read = must_receive(*ring);
  write = WriteLease();
  const WriteLease other = must_acquire(*ring);
  WriteLease none;
  EXPECT_EQ(ring->acquire(none, WhenFull::drop_newest), RingStatus::full);
  const std::uint32_t slot = read.slot();
  read = ReadLease();
  EXPECT_EQ(must_acquire(*ring).slot(), slot);
}

TEST(Ring, CountsSlotsThatOnlyWritersHold) {
  const auto ring = make_ring(4);
  EXPECT_EQ(ring->held_by_writers(), 0U);
  WriteLease one = must_acquire(*ring);
  WriteLease two = must_acquire(*ring);
  EXPECT_EQ(ring->held_by_writers(), 2U);
  ring->publish(one, {});
  EXPECT_EQ(ring->held_by_writers(), 1U) << "queued";
  ReadLease read = must_receive(*ring);
  EXPECT_EQ(ring->held_by_writers(), 1U) << "being read";
  read = ReadLease();
  EXPECT_EQ(ring->held_by_writers(), 2U) << "kept";
  one = WriteLease();
  two = WriteLease();
  EXPECT_EQ(ring->held_by_writers(), 0U);
}

TEST(Ring, MovedLeasesReleaseOnce) {
  const auto ring = make_ring(2);
  for (int turn = 0; turn < 8; ++turn) {
    WriteLease a = must_acquire(*ring);
    WriteLease b = std::move(a);
    EXPECT_FALSE(a);  // NOLINT: what a moved-from lease is, is what is tested
    ring->publish(b, {});
    EXPECT_TRUE(b.published());
    a = std::move(b);
    EXPECT_TRUE(a.published());
    EXPECT_FALSE(b.published());  // NOLINT
    ReadLease c = must_receive(*ring);
    ReadLease d = std::move(c);
    c = std::move(d);
    auto& same = c;
    c = std::move(same);
    EXPECT_TRUE(c);
    EXPECT_FALSE(d);  // NOLINT
  }
  const WriteLease a = must_acquire(*ring);
  const WriteLease b = must_acquire(*ring);
  EXPECT_NE(a.slot(), b.slot());
}

TEST(Ring, LeasesOutliveTheHandle) {
  auto ring = make_ring(4);
  const std::weak_ptr<Mapping> watch = ring->mapping();
  WriteLease write = must_acquire(*ring);
  send(*ring);
  ReadLease read = must_receive(*ring);
  ring.reset();
  std::memset(write.host(), 7, write.bytes());
  write.ring()->publish(write, {.bytes = 10});
  EXPECT_FALSE(watch.expired());
  read = ReadLease();
  EXPECT_FALSE(watch.expired());
  write = WriteLease();
  EXPECT_TRUE(watch.expired());
}

// The calls let go of the lease that they are given, and use the ring after that.
TEST(Ring, ALeaseThatIsTheLastHolderMayBeGivenAgain) {
  auto ring = make_ring(2);
  const std::weak_ptr<Mapping> memory = ring->mapping();
  send(*ring, 1);
  send(*ring, 2);
  ReadLease read = must_receive(*ring);
  ring.reset();
  ASSERT_EQ(read.ring()->receive(read, at_once()), RingStatus::ok);
  EXPECT_EQ(read.info().offset, 2U);
  WriteLease write;
  ASSERT_EQ(read.ring()->acquire(write), RingStatus::ok);
  read = ReadLease();
  ASSERT_EQ(write.ring()->acquire(write), RingStatus::ok);
  ASSERT_EQ(write.ring()->acquire(write), RingStatus::ok);
  ASSERT_EQ(write.ring()->receive(read, at_once()), RingStatus::timeout);
  EXPECT_FALSE(memory.expired());
  write.ring()->close_producer();
  EXPECT_EQ(write.ring()->acquire(write), RingStatus::closed);
  EXPECT_FALSE(write);
  EXPECT_TRUE(memory.expired()) << "nobody has the ring any more";
}

TEST(Ring, ACallThatFailsLetsGoOfTheLastLease) {
  auto ring = make_ring(2);
  const std::weak_ptr<Mapping> memory = ring->mapping();
  send(*ring);
  ReadLease read = must_receive(*ring);
  ring.reset();
  EXPECT_EQ(read.ring()->receive(read, at_once()), RingStatus::timeout);
  EXPECT_FALSE(read);
  EXPECT_TRUE(memory.expired());
}

TEST(Ring, ALeaseOfAnotherRingIsLetGoAtOnce) {
  const auto ring = make_ring(2);
  auto other = make_ring(2);
  const std::weak_ptr<Mapping> memory = other->mapping();
  WriteLease write = must_acquire(*other);
  other.reset();
  ASSERT_EQ(ring->acquire(write), RingStatus::ok);
  EXPECT_EQ(write.ring(), ring.get());
  EXPECT_TRUE(memory.expired());
}

TEST(Ring, ALeaseOfOneSideIsEnoughToCallTheOther) {
  auto ring = make_ring(4);
  const std::weak_ptr<Mapping> watch = ring->mapping();
  send(*ring);
  ReadLease read = must_receive(*ring);
  ring.reset();
  for (int turn = 0; turn < 3; ++turn) {
    const WriteLease write = must_acquire(*read.ring());
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_FALSE(watch.expired());
  read = ReadLease();
  EXPECT_TRUE(watch.expired());
}

// Producer and consumer share a block that is a file in memory: a limit on the size of files holds for it, too.
TEST(RingMemory, AFileThatMayNotBeSoLargeIsAnErrorAndNoSignal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto make = [] {
    const rlimit limit{100, 100};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    try {
      static_cast<void>(make_ring(2, 777));
    } catch (const Error& error) {
      _exit(std::string(error.what()).find("-f") != std::string::npos ? 0 : 3);
    }
    _exit(1);
  };
  EXPECT_EXIT(make(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpumap
