// SPDX-License-Identifier: MIT
// A queue whose kernel stays on the GPU: what is asked of it is done once and in order; what is waited for, and when
// its ring is full; where its doorbell is.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gpumap/error.hpp"
#include "made_up_resident.hpp"
#include "queue/queues.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

// Each logical block of each frame once, frames in order, for any grid; one launch for all.
TEST_F(ResidentQueueTest, RunsEachBlockOfEachFrameOnceAndInOrder) {
  std::mutex mutex;
  std::vector<std::vector<int>> runs(1000);
  // No number of another test, whose frames may still lie in the same memory.
  constexpr std::uint64_t first = 100'000;
  std::uint64_t latest = 0;
  bool in_order = true, whole = true;
  const auto body =
      std::make_shared<const Body>([&](std::uint32_t index, const gpumap_frame& frame, std::uint64_t block) {
        const std::lock_guard lock(mutex);
        in_order = in_order && frame.sequence >= latest;
        latest = frame.sequence;
        const gpumap_u32 tail = frame.out_tensors[GPUMAP_MAX_TENSORS - 1].reserved;
        whole = whole && (tail == static_cast<gpumap_u32>(~frame.sequence)) == (index == 0);
        whole = whole && frame.params[GPUMAP_MAX_PARAMS - 1] == static_cast<float>(frame.sequence);
        ++runs[frame.sequence - first].at(block);
      });
  // The second takes no more of a frame than GPUMAP_SHORT_FRAME has: no more is written for it.
  const MadeUpKernel kernel(body), short_one(body, 1, offsetof(gpumap_frame, numbers));
  const auto resident = queue();
  std::mt19937 random(1);
  const auto up_to = [&random](std::uint32_t most) { return static_cast<std::uint32_t>(random() % most) + 1; };
  Fence last;
  for (std::uint64_t n = 0; n < runs.size(); ++n) {
    const Grid grid{.blocks = {n == 0 ? 4 : up_to(4), up_to(3), up_to(2)}, .threads = {32, 1, 1}};
    runs[n].resize(std::size_t{grid.blocks[0]} * grid.blocks[1] * grid.blocks[2]);
    resident->launch(n % 3 == 1 ? short_one : kernel, grid, numbered(first + n));
    last = resident->submit();
  }
  ASSERT_TRUE(done(last));
  EXPECT_TRUE(in_order);
  EXPECT_TRUE(whole);
  for (const auto& blocks : runs) {
    for (const int count : blocks) EXPECT_EQ(count, 1);
  }
  EXPECT_EQ(launches, 1);
}

TEST_F(ResidentOrder, FunctionsOfOneFileTakeTurnsOnTheGpu) {
  const auto both = body();
  const MadeUpKernel first(both, 0), second(both, 1);
  const auto resident = queue();
  for (std::uint64_t n = 0; n < 3; ++n) {
    put(*resident, first, n);
    put(*resident, second, n);
  }
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0, 1000, 1, 1001, 2, 1002}));
  EXPECT_EQ(launches, 1);
}

TEST_F(ResidentOrder, ARingThatIsFullIsWaitedFor) {
  const MadeUpKernel kernel(body());
  const auto resident = queue();
  gate = 0;
  std::thread opens([this] {
    std::this_thread::sleep_for(30ms);
    gate = ~std::uint64_t{0};
  });
  std::vector<std::uint64_t> expected;
  for (std::uint64_t n = 0; n < 200; ++n) {
    put(*resident, kernel, n);
    expected.push_back(n);
  }
  ASSERT_TRUE(done(resident->submit()));
  opens.join();
  EXPECT_EQ(order(), expected);
}

// Behind a frame that does not end the ring fills up. Who waits there and gives up loses what it asked for last, and
// nothing else: that comes once the frame has ended, and the kernel has left and come back meanwhile.
TEST_F(ResidentOrder, ARingThatStaysFullIsGivenUp) {
  const MadeUpKernel kernel(body());
  std::atomic<bool> waits{false}, cancel{false};
  const auto resident = queue(2, 10min, 20ms, [&](const Fence& oldest) {
    waits = true;
    return oldest.wait(cancel, Clock::now() + patience) == WaitResult::ready;
  });
  const auto other = create_cuda_queue(device_);
  const auto memory = device_->allocate({.placement = Placement::host, .bytes = 64}, Backend::cuda);
  std::memset(memory->host(), 1, 64);
  gate = 0;
  std::thread gives_up([&] {
    while (!waits) std::this_thread::yield();
    std::this_thread::sleep_for(30ms);
    cancel = true;
  });
  std::vector<std::uint64_t> expected;
  const auto fill = [&] {
    for (std::uint64_t n = expected.size(); n < 1000; ++n) {
      put(*resident, kernel, n);
      expected.push_back(n);
    }
  };
  EXPECT_THROW(fill(), QueueCancelled);
  gives_up.join();
  EXPECT_GT(expected.size(), 50U);
  EXPECT_LT(expected.size(), 64U);
  const Fence first = resident->submit();
  EXPECT_FALSE(first.signalled());
  fake_cuda::stalled = true;
  for (int i = 0; i < 100; ++i) {  // the fences below count submissions without a turn, too
    EXPECT_EQ(resident->wait(work_of(*other), never), WaitResult::ready);
    EXPECT_THROW(put(*resident, kernel, 2000), QueueCancelled);
    EXPECT_THROW(resident->copy(*memory, 0, *memory, 32, 32), QueueCancelled);
    EXPECT_THROW(resident->clear(*memory, 0, 64), QueueCancelled);
    EXPECT_FALSE(resident->submit().signalled());
  }
  fake_cuda::stalled = cancel = false;
  gate = ~std::uint64_t{0};
  ASSERT_TRUE(done(first));
  EXPECT_EQ(order(), expected);
  for (int i = 0; i < 200; ++i) {
    put(*resident, kernel, expected.size());
    expected.push_back(expected.size());
  }
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(order(), expected);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(memory->host()), 64), std::string(64, '\1'));
}

// More of them than the ring has turns, each once: those that do not fit are waited for by who asks, who may give up.
TEST_F(ResidentOrder, OfManyQueuesSomeAreWaitedForAtOnce) {
  const MadeUpKernel kernel(body());
  const auto resident = queue();
  std::vector<std::unique_ptr<Queue>> others(70);
  for (auto& other : others) other = create_cuda_queue(device_);
  put(*resident, kernel, 0);
  const Fence before = resident->submit();
  ASSERT_TRUE(done(before));
  fake_cuda::stalled = true;
  const std::atomic<bool> cancel{true};
  std::array<std::uint64_t, 3> taken{};
  for (std::uint64_t& of_round : taken) {
    for (const auto& other : others) {
      const WaitResult result = resident->wait(work_of(*other), cancel);
      EXPECT_TRUE(result == WaitResult::ready || result == WaitResult::cancelled);
      of_round += result == WaitResult::ready ? 1 : 0;
    }
    EXPECT_EQ(of_round, taken[0]) << "the same ones";
  }
  EXPECT_GT(taken[0], 16U);
  EXPECT_LT(taken[0], 62U);
  put(*resident, kernel, 1);
  const Fence fence = resident->submit();
  EXPECT_LE(fence.value(), before.value() + taken[0]) << "a turn for each queue";
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0}));
  fake_cuda::stalled = false;
  ASSERT_TRUE(done(fence));
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0, 1}));
}

TEST_F(ResidentOrder, CopiesAndFillsKeepTheirPlace) {
  const MadeUpKernel kernel(body());
  const auto resident = queue();
  const MappingOptions options{.placement = Placement::host, .bytes = 64};
  const auto from = device_->allocate(options, Backend::cuda), to = device_->allocate(options, Backend::cuda);
  std::memset(from->host(), 1, 64);
  std::memset(to->host(), 2, 64);
  const auto text = [&to] { return std::string(reinterpret_cast<const char*>(to->host()), 64); };
  // Before the kernel has come the stream does it, and a submission of that alone has a fence of its own.
  resident->clear(*to, 0, 32);
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(text(), std::string(32, '\0') + std::string(32, '\2'));
  gate = 0;
  put(*resident, kernel, 0);
  resident->copy(*from, 0, *to, 3, 57);
  resident->clear(*to, 60, 4);
  const Fence fence = resident->submit();
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(fence.signalled());
  EXPECT_EQ(text(), std::string(32, '\0') + std::string(32, '\2')) << "they come after the frame";
  gate = 1;
  ASSERT_TRUE(done(fence));
  EXPECT_EQ(text(), std::string(3, '\0') + std::string(57, '\1') + std::string(4, '\0'));
  EXPECT_EQ(launches, 1);
}

TEST_F(ResidentOrder, OtherQueuesAreWaitedForOnTheGpu) {
  const MadeUpKernel kernel(body());
  const auto resident = queue();
  const auto one = create_cuda_queue(device_), two = create_cuda_queue(device_);
  put(*resident, kernel, 0);
  ASSERT_TRUE(done(resident->submit()));
  std::atomic<bool> first_done{false}, second_done{false};
  const auto work = [](Queue& queue, const std::atomic<bool>& ended) {
    fake_cuda::of(stream_of(queue)).push([&ended] {
      while (!ended) std::this_thread::yield();
    });
    return queue.submit();
  };
  const Fence first = work(*one, first_done), second = work(*two, second_done);
  EXPECT_EQ(resident->wait(first, never), WaitResult::ready);
  EXPECT_EQ(resident->wait(second, never), WaitResult::ready);
  put(*resident, kernel, 1);
  const Fence fence = resident->submit();
  first_done = true;
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0})) << "the second has not ended";
  second_done = true;
  ASSERT_TRUE(done(fence));
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0, 1}));
  // And the other way round.
  gate = 2;
  put(*resident, kernel, 2);
  EXPECT_EQ(one->wait(resident->submit(), never), WaitResult::ready);
  std::atomic<bool> went_on{false};
  fake_cuda::of(stream_of(*one)).push([&went_on] { went_on = true; });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(went_on);
  gate = 3;
  ASSERT_TRUE(done(one->submit()));
  EXPECT_TRUE(went_on);
}

// The driver refuses the second of two waits: that one is asked for again with the next frame, and the first is not.
TEST_F(ResidentOrder, AWaitThatIsRefusedIsAskedForAgain) {
  static std::atomic<int> to_come{0}, asked{0};
  static decltype(cuda::Driver::cuStreamWaitValue64) wait_value = nullptr;
  cuda::Driver& driver = fake_cuda::table();
  wait_value = driver.cuStreamWaitValue64;
  driver.cuStreamWaitValue64 = [](CUstream stream, CUdeviceptr address, std::uint64_t value, unsigned flags) {
    if (--to_come < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    ++asked;
    return wait_value(stream, address, value, flags);
  };
  const MadeUpKernel kernel(body());
  const auto resident = queue();
  const auto one = create_cuda_queue(device_), two = create_cuda_queue(device_);
  std::atomic<bool> ended{false};
  for (Queue* const other : {one.get(), two.get()}) {
    fake_cuda::of(stream_of(*other)).push([&ended] {
      while (!ended) std::this_thread::yield();
    });
    EXPECT_EQ(resident->wait(other->submit(), never), WaitResult::ready);
  }
  to_come = 1;
  EXPECT_THROW(static_cast<void>(resident->submit()), Error);
  to_come = 1 << 20;
  put(*resident, kernel, 0);
  const Fence fence = resident->submit();
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(order(), std::vector<std::uint64_t>());
  ended = true;
  ASSERT_TRUE(done(fence));
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0}));
  EXPECT_EQ(asked, 1) << "on the stream";
  driver.cuStreamWaitValue64 = wait_value;
}

TEST_F(ResidentOrder, AWaitAloneIsOfTheSubmission) {
  const MadeUpKernel kernel(body());
  const auto resident = queue();
  const auto other = create_cuda_queue(device_);
  for (const bool is_there : {false, true}) {
    if (is_there) {
      put(*resident, kernel, 0);
      ASSERT_TRUE(done(resident->submit()));
    }
    std::atomic<bool> ended{false};
    fake_cuda::of(stream_of(*other)).push([&ended] {
      while (!ended) std::this_thread::yield();
    });
    EXPECT_EQ(resident->wait(other->submit(), never), WaitResult::ready);
    const Fence fence = resident->submit();
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(fence.signalled());
    ended = true;
    EXPECT_TRUE(done(fence));
  }
}

// A queue that was waited for is let go of by the one that waited, whose kernel the driver then waits for.
TEST_F(ResidentOrder, AQueueThatWasWaitedForEndsBeforeIt) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(2);
  for (std::uint64_t n = 0; n < 5; ++n) {
    auto other = create_cuda_queue(device_);
    std::atomic<bool> goes_on{false};
    fake_cuda::of(stream_of(*other)).push([&goes_on] {
      while (!goes_on) std::this_thread::yield();
    });
    EXPECT_EQ(resident->wait(other->submit(), never), WaitResult::ready);
    std::thread ends([&goes_on] {
      std::this_thread::sleep_for(2ms);
      goes_on = true;
    });
    put(*resident, kernel, n);  // which lets go of the one before, and waits for what runs
    ends.join();
    other.reset();
    ASSERT_TRUE(done(resident->submit()));
  }
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
}

// A frame that does not end: the queue goes all the same, and its turns stay where the kernel looks for them.
TEST_F(ResidentOrder, GoesWhileAFrameDoesNotEnd) {
  const MadeUpKernel kernel(body());
  auto resident = queue(2);
  const std::size_t blocks = fake_cuda::host_blocks.count(), kept = kept_for_good();
  gate = 0;
  put(*resident, kernel, 0);
  Fence end = resident->submit();
  resident.reset();
  EXPECT_FALSE(end.signalled());
  EXPECT_TRUE(device_->cuda()->stuck());
  EXPECT_GE(kept_for_good(), kept + 3) << "the timeline, the turns and the kernel";
  EXPECT_EQ(fake_cuda::host_blocks.count(), blocks);
  gate = ~std::uint64_t{0};
  EXPECT_TRUE(done(end));
  const Deadline latest = Clock::now() + patience;
  while ((device_->cuda()->stuck() || present != 0) && Clock::now() < latest) std::this_thread::yield();
  EXPECT_FALSE(device_->cuda()->stuck()) << "it left, as it was told to";
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0}));
  end = {};
  device_.reset();
  fake_cuda::reset();
}

TEST_F(ResidentOrder, SaysWhereItsDoorbellIs) {
  const std::string unordered =
      "its doorbell is in host memory: made-up GPU does not keep the order of writes over PCIe";
  EXPECT_EQ(doorbell_of(*queue()), unordered);
  setenv("GPUMAP_CUDA_DOORBELL", "", 1);
  EXPECT_EQ(doorbell_of(*queue()), unordered);
  // A GPU that keeps the order; the made-up one has no window that could be looked for.
  writes_ordering = CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
  setenv("GPUMAP_CUDA_DOORBELL", "host", 1);
  EXPECT_EQ(doorbell_of(*queue()), "its doorbell is in host memory: GPUMAP_CUDA_DOORBELL=host says so");
  unsetenv("GPUMAP_CUDA_DOORBELL");
}

TEST_F(ResidentOrder, AKernelThatWasNotLoadedForItIsRefused) {
  const auto resident = queue();
  struct Shader final : Kernel {
    [[nodiscard]] Backend backend() const noexcept override { return Backend::vulkan; }
    [[nodiscard]] const std::string& name() const noexcept override { return name_; }
    [[nodiscard]] Grid grid_for(const gpumap_frame&) const override { return {}; }
    std::string name_ = "a-shader";
  } shader;
  try {
    put(*resident, shader, 0);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid);
    EXPECT_NE(std::string(error.what()).find("a-shader"), std::string::npos);
  }
}

}  // namespace
}  // namespace gpumap
