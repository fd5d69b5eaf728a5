// SPDX-License-Identifier: MIT
// A fence waits, times out, is cancelled and signalled from other threads, and says when its device is lost.
#include <gtest/gtest.h>
#include <gpumap/error.hpp>
#include <gpumap/fence.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace gpumap {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class FakeTimeline final : public Timeline {
 public:
  [[nodiscard]] std::uint64_t completed() override { return value.load(std::memory_order_acquire); }
  void check() override {
    ++checks;
    if (lost) throw Error(ErrorCode::device_lost, "lost");
  }
  std::atomic<std::uint64_t> value{0};
  std::atomic<bool> lost{false};
  std::atomic<int> checks{0};
};

TEST(Fence, WithoutATimelineHasAlwaysSignalled) {
  EXPECT_TRUE(Fence().signalled());
  EXPECT_EQ(Fence().wait_for({}), WaitResult::ready);
}

TEST(Fence, SignalledBeatsDeadlineAndCancel) {
  const auto timeline = std::make_shared<FakeTimeline>();
  timeline->value = 5;
  const std::atomic<bool> cancel{true};
  EXPECT_EQ(Fence(timeline, 5).wait(cancel, Deadline::min(), microseconds(0)), WaitResult::ready);
  EXPECT_FALSE(Fence(timeline, 6).signalled());
}

TEST(Fence, TimesOut) {
  const Fence fence(std::make_shared<FakeTimeline>(), 1);
  for (const auto spin : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(milliseconds(50))}) {
    // The best of some: others use this machine, too. Never early is meant for all of them.
    auto shortest = Clock::duration::max();
    for (int turn = 0; turn < 20 && shortest >= milliseconds(1000); ++turn) {
      const auto start = Clock::now();
      EXPECT_EQ(fence.wait_for(milliseconds(20), spin), WaitResult::timeout);
      EXPECT_GE(Clock::now() - start, milliseconds(20));
      shortest = std::min(shortest, Clock::now() - start);
    }
    EXPECT_LT(shortest, milliseconds(1000));
  }
  EXPECT_EQ(fence.wait_for(std::chrono::nanoseconds::min()), WaitResult::timeout);
}

TEST(Fence, IsCancelledFromAnotherThread) {
  const Fence fence(std::make_shared<FakeTimeline>(), 1);
  for (const auto spin : {std::chrono::nanoseconds(0), std::chrono::nanoseconds::max()}) {
    std::atomic<bool> cancel{false};
    std::thread canceller([&] {
      std::this_thread::sleep_for(milliseconds(5));
      cancel = true;
    });
    EXPECT_EQ(fence.wait(cancel, no_deadline, spin), WaitResult::cancelled);
    canceller.join();
  }
}

TEST(Fence, IsSignalledFromAnotherThread) {
  const auto timeline = std::make_shared<FakeTimeline>();
  std::thread signaller([&] {
    for (int i = 0; i < 3; ++i) {
      std::this_thread::sleep_for(milliseconds(2));
      ++timeline->value;
    }
  });
  EXPECT_EQ(Fence(timeline, 3).wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(timeline->value, 3U);
  signaller.join();
}

TEST(Fence, ThrowsOnceTheDeviceIsLost) {
  const auto timeline = std::make_shared<FakeTimeline>();
  std::thread fault([&] {
    std::this_thread::sleep_for(milliseconds(10));
    timeline->lost = true;
  });
  const auto start = Clock::now();
  EXPECT_THROW(static_cast<void>(Fence(timeline, 1).wait_for(std::chrono::minutes(1))), Error);
  // However late the fault comes.
  const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  fault.join();
  EXPECT_LE(timeline->checks, 2 * waited.count() + 2)
      << "the driver is asked about once a millisecond, not at every look";
}

}  // namespace
}  // namespace gpumap
