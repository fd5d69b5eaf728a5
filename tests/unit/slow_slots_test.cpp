// SPDX-License-Identifier: MIT
// When a sink gives an upstream host memory, because it reads what it wrote, and when it must not.
#include "gpumap/slow_slots.hpp"

#include <gtest/gtest.h>

namespace gpumap {
namespace {

using namespace std::chrono_literals;
using Next = SlowSlots::Next;

constexpr std::size_t frame = 3'110'401;
constexpr auto through_the_bar = 380ms;  // 8 MB/s
constexpr auto in_host_memory = 2ms;

TEST(SlowSlots, SendsAnUpstreamThatReadsToHostMemory) {
  SlowSlots slots;
  EXPECT_EQ(slots.next(frame), Next::slot);
  EXPECT_FALSE(slots.filled(Next::slot, frame, through_the_bar));
  EXPECT_EQ(slots.next(frame), Next::timed_slot);
  EXPECT_FALSE(slots.times_host(frame));
  EXPECT_FALSE(slots.filled(Next::timed_slot, frame, through_the_bar));
  EXPECT_EQ(slots.next(frame), Next::host);
  EXPECT_TRUE(slots.times_host(frame));
  EXPECT_TRUE(slots.filled(Next::host, frame, in_host_memory));
  EXPECT_EQ(slots.next(frame), Next::host);
  EXPECT_FALSE(slots.times_host(frame)) << "nothing is left to be timed";
  EXPECT_FALSE(slots.filled(Next::host, frame, through_the_bar)) << "said once";
  EXPECT_EQ(slots.next(frame), Next::host);
  slots.reset();
  EXPECT_EQ(slots.next(frame), Next::slot);
}

// Frames that become so small just then would all go to host memory, and never be timed.
TEST(SlowSlots, SendsNoFrameToHostMemoryThatTellsNothing) {
  SlowSlots slots;
  EXPECT_FALSE(slots.filled(Next::slot, frame, through_the_bar));
  EXPECT_FALSE(slots.filled(Next::timed_slot, frame, through_the_bar));
  constexpr std::size_t small = 65535;
  EXPECT_EQ(slots.next(small), Next::slot);
  EXPECT_FALSE(slots.filled(Next::slot, small, 1s));
  EXPECT_EQ(slots.next(small + 1), Next::host);
  EXPECT_TRUE(slots.filled(Next::host, small + 1, 1us));
  EXPECT_EQ(slots.next(small), Next::host);
}

TEST(SlowSlots, LeavesAnUpstreamThatIsSlowEverywhereItsSlots) {
  SlowSlots slots;
  EXPECT_FALSE(slots.filled(Next::slot, frame, through_the_bar));
  EXPECT_FALSE(slots.filled(Next::timed_slot, frame, through_the_bar));
  EXPECT_FALSE(slots.filled(Next::host, frame, through_the_bar / 2));
  EXPECT_EQ(slots.next(frame), Next::slot);
  EXPECT_FALSE(slots.filled(Next::slot, frame, through_the_bar));
  EXPECT_EQ(slots.next(frame), Next::slot) << "one try is enough";
}

TEST(SlowSlots, IsNotMisledByABusyMachine) {
  SlowSlots slots;
  EXPECT_FALSE(slots.filled(Next::slot, frame, 100ms)) << "preempted";
  EXPECT_EQ(slots.next(frame), Next::timed_slot);
  EXPECT_FALSE(slots.filled(Next::timed_slot, frame, in_host_memory)) << "of CPU time";
  EXPECT_EQ(slots.next(frame), Next::slot);
}

TEST(SlowSlots, IgnoresSmallFramesAndFramesFromBeforeItsQuestion) {
  SlowSlots slots;
  EXPECT_FALSE(slots.filled(Next::slot, 4096, 5ms));
  EXPECT_EQ(slots.next(frame), Next::slot);
  EXPECT_FALSE(slots.filled(Next::slot, frame, through_the_bar));
  EXPECT_FALSE(slots.filled(Next::slot, frame, in_host_memory)) << "was in a queue already";
  EXPECT_EQ(slots.next(frame), Next::timed_slot);
}

}  // namespace
}  // namespace gpumap
