// SPDX-License-Identifier: MIT
// What a reader sees of memory that is not coherent: all that was published, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include "ring_helpers.hpp"
#include "simulated_memory.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

std::vector<std::byte> downloaded(const Mapping& mapping, std::size_t offset, std::size_t bytes) {
  std::vector<std::byte> seen(bytes);
  mapping.download(offset, seen);
  return seen;
}

TEST(Flush, ReaderSeesAllOfEveryFrame) {
  constexpr std::size_t slot_bytes = 5000;
  const auto ring =
      Ring::create(std::make_shared<SimulatedDevice>(), {.slots = 3, .slot_bytes = slot_bytes, .spin = 0ns});
  std::mt19937 random(7);
  for (const std::size_t bytes : {1UL, 63UL, 64UL, 65UL, 4095UL, 4096UL, 4097UL, 4999UL, slot_bytes, 17UL}) {
    WriteLease write = must_acquire(*ring);
    std::vector<std::byte> sent(bytes);
    std::ranges::generate(sent, [&] { return static_cast<std::byte>(random()); });
    std::ranges::copy(sent, write.host());
    EXPECT_NE(downloaded(*ring->mapping(), write.offset(), bytes), sent) << "the simulation shows what nobody flushed";
    ring->publish(write, {.bytes = bytes});
    const ReadLease read = must_receive(*ring);
    EXPECT_EQ(downloaded(*ring->mapping(), read.offset(), bytes), sent) << bytes;
  }
}

TEST(Flush, ReaderSeesNothingOfTheNextFrame) {
  const auto ring = Ring::create(std::make_shared<SimulatedDevice>(), {.slots = 2, .slot_bytes = 4096});
  WriteLease first = must_acquire(*ring);
  WriteLease second = must_acquire(*ring);
  std::fill_n(first.host(), first.bytes(), std::byte{1});
  std::fill_n(second.host(), second.bytes(), std::byte{2});
  ring->publish(first, {.bytes = 100});
  EXPECT_EQ(downloaded(*ring->mapping(), first.offset(), 100), std::vector(100, std::byte{1}));
  EXPECT_EQ(downloaded(*ring->mapping(), first.offset() + 100, 1), std::vector(1, std::byte{0}));
  EXPECT_EQ(downloaded(*ring->mapping(), second.offset(), 4096), std::vector(4096, std::byte{0}));
}

TEST(Flush, RangesAreThoseAskedFor) {
  const auto mapping =
      std::dynamic_pointer_cast<SimulatedMapping>(SimulatedDevice().allocate({Placement::bar, 1000}, {}));
  std::fill_n(mapping->host(), 1000, std::byte{1});
  mapping->flush(10, 20);
  mapping->flush(500, 0);
  EXPECT_TRUE(mapping->upload(990, 10).signalled());
  for (std::size_t at = 0; at < 1000; ++at) {
    const bool flushed = (at >= 10 && at < 30) || at >= 990;
    ASSERT_EQ(mapping->seen_by_gpu(at, 1).front(), flushed ? std::byte{1} : std::byte{0}) << at;
  }
  EXPECT_EQ(mapping->driver_flushes(), 2U) << "an empty range is no business of the driver";
}

TEST(Flush, CpuSeesWhatTheGpuWroteOnceInvalidated) {
  const auto mapping =
      std::dynamic_pointer_cast<SimulatedMapping>(SimulatedDevice().allocate({Placement::host, 1000}, {}));
  std::ranges::fill(mapping->seen_by_gpu(0, 1000), std::byte{3});
  mapping->invalidate(7, 100);
  for (std::size_t at = 0; at < 1000; ++at) {
    ASSERT_EQ(mapping->host()[at], at >= 7 && at < 107 ? std::byte{3} : std::byte{0}) << at;
  }
}

}  // namespace
}  // namespace gpumap
