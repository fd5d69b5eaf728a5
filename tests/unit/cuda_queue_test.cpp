// SPDX-License-Identifier: MIT
// Queues and contexts on a CUDA driver that is made up: what waits for what, what is kept how long, which errors end
// all.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "device/vulkan_device.hpp"
#include "fake_cuda.hpp"
#include "fake_device.hpp"
#include "gpumap/error.hpp"
#include "never.hpp"
#include "open_device.hpp"
#include "queue/queues.hpp"

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
    EXPECT_THROW(context->check(error, "trying"), Error);
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

}  // namespace
}  // namespace gpumap
