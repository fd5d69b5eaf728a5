// SPDX-License-Identifier: MIT
// Queues and contexts on a CUDA driver that is made up: what waits for what, what is kept how long, which errors end
// all.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "device/vulkan_device.hpp"
#include "fake_cuda.hpp"
#include "fake_device.hpp"
#include "gpumap/error.hpp"
#include "open_device.hpp"
#include "queue/queues.hpp"
#include "span_helpers.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

std::unique_ptr<CudaContext> open_context(const std::shared_ptr<Health>& health) {
  return std::make_unique<CudaContext>(fake_cuda::driver(), 0, "made-up GPU", health);
}

class CudaQueueTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    fake_cuda::stream_memory = GetParam();
    auto health = std::make_shared<Health>();
    auto cuda = open_context(health);
    device_ = std::make_shared<OpenDevice>(DeviceInfo(), health, nullptr, std::move(cuda));
  }
  void TearDown() override {
    device_.reset();
    EXPECT_EQ(fake_cuda::events.count(), 0U);
    EXPECT_EQ(fake_cuda::streams.count(), 0U);
    EXPECT_EQ(fake_cuda::host_blocks.count(), 0U);
    fake_cuda::reset();
  }
  /// Work that ends once `done` is set, and its fence.
  static Fence work(Queue& queue, const std::atomic<bool>& done) {
    fake_cuda::of(stream_of(queue)).push([&done] {
      while (!done) std::this_thread::yield();
    });
    return queue.submit();
  }

  std::shared_ptr<GpuDevice> device_;
};

// A stream of another library, before and behind: the GPU waits, the CPU does not.
TEST_P(CudaQueueTest, IsOrderedWithAStreamOfOthers) {
  const auto queue = create_cuda_queue(device_);
  const auto others = create_cuda_queue(device_);
  auto& their_stream = fake_cuda::of(stream_of(*others));
  std::atomic<bool> theirs_may_end{false}, ours_may_end{false}, ours_began{false}, theirs_went_on{false};
  their_stream.push([&] {
    while (!theirs_may_end) std::this_thread::yield();
  });
  order_after(*queue, stream_of(*others));
  fake_cuda::of(stream_of(*queue)).push([&] {
    ours_began = true;
    while (!ours_may_end) std::this_thread::yield();
  });
  order_before(*queue, stream_of(*others));
  their_stream.push([&] { theirs_went_on = true; });
  const Fence ours = queue->submit();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(ours_began) << "it comes after theirs";
  theirs_may_end = true;
  while (!ours_began) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(theirs_went_on) << "they come after ours";
  ours_may_end = true;
  EXPECT_EQ(ours.wait_for(std::chrono::seconds(60)), WaitResult::ready);
  their_stream.synchronize();
  EXPECT_TRUE(theirs_went_on);
}

TEST_P(CudaQueueTest, KeepsWhatItsStreamIsStillToWaitFor) {
  const auto queue = create_cuda_queue(device_);
  std::atomic<bool> own_work_done{false};
  static_cast<void>(work(*queue, own_work_done));
  std::weak_ptr<Timeline> timeline;
  {
    auto other = create_cuda_queue(device_);
    std::atomic<bool> other_work_done{false};
    for (int turn = 0; turn < 2; ++turn) {
      other_work_done = false;
      const Fence fence = work(*other, other_work_done);
      timeline = fence.timeline();
      EXPECT_EQ(queue->wait(fence, test::never), WaitResult::ready);
      other_work_done = true;
    }
    other.reset();  // waits for its own work
  }
  EXPECT_FALSE(timeline.expired()) << "the stream has not come to the wait yet: the driver would read freed memory";
  own_work_done = true;
  static_cast<void>(stream_of(*queue));
  ASSERT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);

  std::atomic<bool> third_done{false};
  const auto third = create_cuda_queue(device_);
  const Fence third_work = work(*third, third_done);
  std::thread ends([&third_done] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    third_done = true;
  });
  // It lets go of the timeline, and for that waits for what runs.
  EXPECT_EQ(queue->wait(third_work, test::never), WaitResult::ready);
  ends.join();
  EXPECT_TRUE(timeline.expired()) << "kept for ever";
}

TEST_P(CudaQueueTest, WaitForAnotherBackendEndsWhenCancelled) {
  const auto queue = create_cuda_queue(device_);
  const auto timeline = std::make_shared<test::FakeTimeline>();
  std::atomic<bool> cancel{false};
  std::thread canceller([&] {
    while (timeline->asked < 3) std::this_thread::yield();
    cancel = true;
  });
  EXPECT_EQ(queue->wait(Fence(timeline, 1), cancel), WaitResult::cancelled);
  canceller.join();
  timeline->reached = 1;
  EXPECT_EQ(queue->wait(Fence(timeline, 1), cancel), WaitResult::ready);
}

TEST_P(CudaQueueTest, ErrorsThatEndAProcessAreKnown) {
  device_.reset();
  // By number: older headers do not name them all.
  for (const int error : {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999}) {
    const auto health = std::make_shared<Health>();
    const auto context = open_context(health);
    EXPECT_THROW(context->check(static_cast<CUresult>(error), "trying"), Error);
    EXPECT_TRUE(health->lost()) << error;
  }
  fake_cuda::reset();  // nothing of a lost context is destroyed
  for (const CUresult error : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND}) {
    const auto health = std::make_shared<Health>();
    const auto context = open_context(health);
    try {
      context->check(error, "trying");
      ADD_FAILURE() << error;
    } catch (const Error& told) {
      EXPECT_EQ(told.code() == ErrorCode::no_memory, remedy_of(told).find("nvidia-smi") != std::string::npos) << error;
    }
    EXPECT_FALSE(health->lost()) << error;
  }
}

TEST_P(CudaQueueTest, AContextThatFailsHalfwayLeavesNothing) {
  const std::size_t streams = fake_cuda::streams.count();
  const int retained = fake_cuda::retained;
  for (int made = 0;; ++made) {
    fake_cuda::streams_to_come = made;
    try {
      static_cast<void>(open_context(std::make_shared<Health>()));
      EXPECT_GE(made, 2);
      break;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::no_memory);
    }
    EXPECT_EQ(fake_cuda::streams.count(), streams) << "after " << made;
    EXPECT_EQ(fake_cuda::retained, retained);
    EXPECT_TRUE(fake_cuda::contexts.empty());
    ASSERT_LT(made, 20);
  }
}

// Work that does not end: its queue goes all the same, and until it has ended nothing is freed that it may use.
TEST_P(CudaQueueTest, GoesWhileItsWorkDoesNotEnd) {
  const std::size_t kept = kept_for_good();
  std::atomic<bool> ends{false};
  auto memory = device_->allocate({.placement = Placement::host, .bytes = 64}, Backend::cuda);
  auto other = create_cuda_queue(device_);
  auto queue = create_cuda_queue(device_);
  const std::size_t streams = fake_cuda::streams.count(), blocks = fake_cuda::host_blocks.count();
  Fence end = work(*queue, ends);
  queue.reset();
  EXPECT_FALSE(end.signalled());
  EXPECT_TRUE(device_->cuda()->stuck());
  EXPECT_GT(kept_for_good(), kept);
  memory.reset();
  other.reset();
  EXPECT_EQ(fake_cuda::streams.count(), streams);
  EXPECT_EQ(fake_cuda::host_blocks.count(), blocks);
  ends = true;
  EXPECT_EQ(end.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  const Deadline latest = Clock::now() + std::chrono::minutes(1);
  while (device_->cuda()->stuck() && Clock::now() < latest) std::this_thread::yield();
  EXPECT_FALSE(device_->cuda()->stuck());
  memory = device_->allocate({.placement = Placement::host, .bytes = 64}, Backend::cuda);
  memory.reset();
  EXPECT_EQ(fake_cuda::host_blocks.count(), blocks) << "as before";
  // What stayed goes, too.
  end = {};
  device_.reset();
  fake_cuda::reset();
}

INSTANTIATE_TEST_SUITE_P(StreamMemory, CudaQueueTest, ::testing::Values(true));
INSTANTIATE_TEST_SUITE_P(Events, CudaQueueTest, ::testing::Values(false));

// Spans on a CUDA driver that is made up: it knows when its events truly happened, answers late, or answers wrong.

using namespace std::chrono_literals;

constexpr std::int64_t ms = 1'000'000;
const auto comparisons_apart = std::chrono::nanoseconds(GpuSpan::comparison_ns) + 5ms;

/// The stream's own clock before the span, in it and after it, as it comes to each.
struct Truth {
  std::atomic<std::int64_t> before_ns{0}, began_ns{0}, ended_ns{0}, after_ns{0};
};

class CudaSpanTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    fake_cuda::stream_memory = GetParam();
    open();
  }
  void TearDown() override {
    fake_cuda::stalled = false;
    queue_.reset();
    fence_ = Fence();
    device_.reset();
    // Nothing of a lost context is destroyed: the driver would answer with the fault.
    if (fake_cuda::event_query == CUDA_SUCCESS) {
      EXPECT_EQ(fake_cuda::events.count(), 0U);
      EXPECT_EQ(fake_cuda::streams.count(), 0U);
      EXPECT_EQ(fake_cuda::host_blocks.count(), 0U);
    }
    EXPECT_TRUE(fake_cuda::contexts.empty());
    fake_cuda::reset();
  }
  void open() {
    auto health = std::make_shared<Health>();
    auto cuda = std::make_unique<CudaContext>(fake_cuda::driver(), 0, "made-up GPU", health);
    device_ = std::make_shared<OpenDevice>(DeviceInfo(), health, nullptr, std::move(cuda));
    queue_ = create_cuda_queue(device_);
  }

  /// Asked for: a span of 3 ms.
  std::shared_ptr<GpuSpan> spanned(Truth& truth) {
    auto& stream = fake_cuda::of(stream_of(*queue_));
    stream.push([&truth] { truth.before_ns = monotonic_ns(); });
    auto span = queue_->begin_span();
    stream.push([&truth] {
      truth.began_ns = monotonic_ns();
      std::this_thread::sleep_for(3ms);
      truth.ended_ns = monotonic_ns();
    });
    queue_->end_span(*span);
    stream.push([&truth] { truth.after_ns = monotonic_ns(); });
    fence_ = queue_->submit();
    return span;
  }
  /// However long the stream's thread was kept from going on. The stream is past the span.
  static void expect_true(GpuSpan& span, const Truth& truth) {
    const auto times = told(span);
    ASSERT_TRUE(times);
    EXPECT_GE(times->began_ns, truth.before_ns - times->error_ns);
    EXPECT_LE(times->began_ns, truth.began_ns + times->error_ns);
    EXPECT_GE(times->ended_ns, truth.ended_ns - times->error_ns);
    EXPECT_LE(times->ended_ns, truth.after_ns + times->error_ns);
    EXPECT_GT(times->error_ns, 500);
    // Where this thread was stopped while the clocks were compared, that is told, too.
    EXPECT_LT(times->error_ns, 20'000 * ms);
  }

  std::shared_ptr<GpuDevice> device_;
  std::unique_ptr<Queue> queue_;
  Fence fence_;
};

TEST_P(CudaSpanTest, TellsTheTruthHoweverTheClockRuns) {
  for (const double rate : {1.0, 1 + 150e-6, 1 - 150e-6}) {
    fake_cuda::clock_rate = rate;
    queue_.reset();
    open();
    Truth early_truth;
    const auto early = spanned(early_truth);
    for (int i = 0; i < 3; ++i) {
      Truth truth;
      const auto span = spanned(truth);
      ASSERT_EQ(fence_.wait_for(std::chrono::minutes(1)), WaitResult::ready);
      expect_true(*span, truth);
      std::this_thread::sleep_for(comparisons_apart);
    }
    expect_true(*early, early_truth);  // from an event that was recorded after it
  }
}

TEST_P(CudaSpanTest, ComparesTheClocksClosely) {
  Truth truth;
  const auto done = [&] {
    auto span = spanned(truth);
    EXPECT_EQ(fence_.wait_for(std::chrono::minutes(1)), WaitResult::ready);
    return span;
  };
  EXPECT_LT(smallest_error_ns(1 * ms, done), 1 * ms);
}

TEST_P(CudaSpanTest, ABusyGpuHoldsNobodyUp) {
  fake_cuda::stalled = true;
  const std::int64_t began = monotonic_ns();
  Truth truth, later_truth;
  const auto span = spanned(truth);
  EXPECT_FALSE(span->times());
  EXPECT_LT(monotonic_ns() - began, 30'000 * ms);
  fake_cuda::stalled = false;
  ASSERT_EQ(fence_.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  expect_true(*span, truth);

  const auto later = spanned(later_truth);
  ASSERT_EQ(fence_.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  std::this_thread::sleep_for(comparisons_apart);
  fake_cuda::stalled = true;
  const std::int64_t before = monotonic_ns();
  expect_true(*later, later_truth);  // by the comparison of before
  EXPECT_LT(monotonic_ns() - before, 30'000 * ms);
  std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(later->times());
}

TEST_P(CudaSpanTest, UnreadSpansAreBounded) {
  std::vector<std::shared_ptr<GpuSpan>> spans;
  while (auto span = queue_->begin_span()) {
    queue_->end_span(*span);
    spans.push_back(std::move(span));
    ASSERT_LE(spans.size(), GpuSpan::max_per_queue);
  }
  EXPECT_EQ(spans.size(), GpuSpan::max_per_queue);
  EXPECT_NE(queue_->no_span_reason(), "");
  const std::size_t made = fake_cuda::events.count();
  ASSERT_EQ(queue_->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  ASSERT_TRUE(told(*spans.front()));
  spans.pop_back();
  for (int i = 0; i < 2; ++i) {
    const auto span = queue_->begin_span();
    ASSERT_TRUE(span);
    EXPECT_EQ(queue_->no_span_reason(), "");
  }
  EXPECT_LE(fake_cuda::events.count(), made + 1) << "events are used again; the clock takes one more at most";
}

TEST_P(CudaSpanTest, SpansOutliveTheirQueue) {
  Truth truth;
  const auto span = spanned(truth);
  queue_.reset();
  expect_true(*span, truth);
}

TEST_P(CudaSpanTest, TheClocksEventsAreBounded) {
  for (int i = 0; i < 50; ++i) {
    static_cast<void>(queue_->begin_span());
    if (i == 5) std::this_thread::sleep_for(comparisons_apart);
  }
  EXPECT_LE(fake_cuda::events.count(), 2U + 3U + 4U) << "two of the span, the clock's, the timeline's";
}

TEST_P(CudaSpanTest, AFailedComparisonLeavesNothingWaiting) {
  if (!GetParam()) GTEST_SKIP() << "no words to wait for";
  fake_cuda::write_value = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_THROW(static_cast<void>(queue_->begin_span()), Error);
  queue_.reset();
  device_.reset();  // waits for its streams
  open();
  EXPECT_THROW(static_cast<void>(queue_->begin_span()), Error);
  fake_cuda::write_value = CUDA_SUCCESS;
  std::this_thread::sleep_for(comparisons_apart);
  Truth truth;
  const auto span = spanned(truth);
  ASSERT_EQ(fence_.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  expect_true(*span, truth);
}

TEST_P(CudaSpanTest, ALostContextIsTold) {
  Truth truth;
  const auto span = spanned(truth);
  const auto open = queue_->begin_span();
  ASSERT_EQ(fence_.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  fake_cuda::event_query = CUDA_ERROR_ILLEGAL_ADDRESS;
  try {
    static_cast<void>(span->times());
    FAIL() << "no word of it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device_lost);
  }
  EXPECT_THROW(static_cast<void>(queue_->begin_span()), Error);
  EXPECT_THROW(queue_->end_span(*open), Error);
}

TEST_P(CudaSpanTest, CallsInARowMakeTheContextCurrentOnce) {
  const auto pushes_of = [this](int frames) {
    const int before = fake_cuda::pushes;
    for (int i = 0; i < frames; ++i) {
      const auto span = queue_->begin_span();
      queue_->end_span(*span);
      fence_ = queue_->submit();
    }
    return fake_cuda::pushes - before;
  };
  EXPECT_EQ(pushes_of(2), 6);
  {
    const Queue::Current current(*queue_);
    EXPECT_EQ(fake_cuda::contexts, std::vector{fake_cuda::primary()});
    EXPECT_EQ(pushes_of(2), 0);
  }
  EXPECT_TRUE(fake_cuda::contexts.empty());
  EXPECT_EQ(pushes_of(1), 3);
}

TEST_P(CudaSpanTest, CallsLeaveCurrentWhatWasCurrent) {
  int anything = 0;
  const auto strangers = reinterpret_cast<CUcontext>(&anything);
  for (const CUcontext before : {strangers, fake_cuda::primary()}) {
    fake_cuda::contexts = {before};
    {
      const Queue::Current current(*queue_);
      EXPECT_EQ(fake_cuda::contexts.back(), fake_cuda::primary());
      fake_cuda::contexts.push_back(strangers);  // a callback that has not put it back yet
      const auto span = queue_->begin_span();
      EXPECT_EQ(fake_cuda::contexts.back(), strangers);
      fake_cuda::contexts.pop_back();
    }
    EXPECT_EQ(fake_cuda::contexts, std::vector{before});
    static_cast<void>(queue_->begin_span());
    EXPECT_EQ(fake_cuda::contexts, std::vector{before});
  }
  fake_cuda::contexts.clear();
}

INSTANTIATE_TEST_SUITE_P(StreamMemory, CudaSpanTest, ::testing::Values(true));
INSTANTIATE_TEST_SUITE_P(Events, CudaSpanTest, ::testing::Values(false));

}  // namespace
}  // namespace gpumap
