// SPDX-License-Identifier: MIT
// A queue whose kernel stays on the GPU, on a CUDA driver that is made up: its "GPU" runs the blocks as threads, by the
// protocol of queue/turn.h.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "device/residents.hpp"
#include "device/vulkan_device.hpp"
#include "fake_cuda.hpp"
#include "gpumap/error.hpp"
#include "open_device.hpp"
#include "queue/executable.hpp"
#include "queue/queues.hpp"
#include "queue/resident_queue.hpp"
#include "queue/turn.h"

namespace gpumap {
namespace {

using namespace std::chrono_literals;

/// What the kernel does with one logical block.
using Body = std::function<void(std::uint32_t function, const gpumap_frame& frame, std::uint64_t block)>;
constexpr int multiprocessors = 5;
std::atomic<int> launches{0}, present{0}, stuck{0}, blocks_there{0}, held{0};
std::atomic<int> writes_ordering{0}, time_limit{0};  ///< attributes
decltype(cuda::Driver::cuMemFreeHost) true_free = nullptr;

std::uint64_t seen(std::uint64_t address) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(address)).load(std::memory_order_acquire);
}
void wait_for(std::uint64_t address, std::uint64_t value) {
  while (seen(address) < value) std::this_thread::yield();
}

/// One block of lib/kernel/resident/resident.h.
void stay(const Body& body, gpumap_residence residence, std::uint64_t self, std::uint64_t blocks) {
  gpumap_turn turn{};
  for (std::uint64_t number = residence.first, parts = 0;; ++number, parts += blocks) {
    auto* const slot = reinterpret_cast<gpumap_turn*>(residence.turns + number % residence.slots * residence.stride);
    wait_for(reinterpret_cast<std::uint64_t>(&slot->number), number + 1);
    wait_for(residence.parts, parts);
    std::memcpy(&turn.kind, &slot->kind, sizeof turn - offsetof(gpumap_turn, kind));
    if (turn.after != 0) wait_for(turn.after, turn.until);
    if (turn.kind == GPUMAP_TURN_RUN) {
      const std::uint64_t all = std::uint64_t{turn.blocks[0]} * turn.blocks[1] * turn.blocks[2];
      for (std::uint64_t block = self; block < all; block += blocks) body(turn.function, turn.frame, block);
    } else if (turn.kind != GPUMAP_TURN_LEAVE && self == 0) {
      auto* const to = reinterpret_cast<void*>(turn.to);
      if (turn.kind == GPUMAP_TURN_COPY && turn.bytes != 0) {
        std::memcpy(to, reinterpret_cast<const void*>(turn.from), turn.bytes);
      }
      if (turn.kind == GPUMAP_TURN_CLEAR) std::memset(to, 0, turn.bytes);
    }
    if (fake_cuda::word(residence.parts).fetch_add(1) + 1 == parts + blocks) {
      fake_cuda::word(residence.done).store(number + 1);
    }
    if (turn.kind == GPUMAP_TURN_LEAVE) return;
  }
}

class MadeUpKernel final : public ResidentKernel {
 public:
  explicit MadeUpKernel(std::shared_ptr<const Body> body, std::uint32_t index = 0,
                        std::size_t frame_bytes = sizeof(gpumap_frame))
      : body_(std::move(body)), index_(index), frame_bytes_(frame_bytes) {}
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] Grid grid_for(const gpumap_frame&) const override { return {}; }
  [[nodiscard]] CUfunction resident_function() const noexcept override {
    return reinterpret_cast<CUfunction>(const_cast<Body*>(body_.get()));
  }
  [[nodiscard]] std::uint32_t index() const noexcept override { return index_; }
  [[nodiscard]] std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  [[nodiscard]] std::shared_ptr<const void> owner() const noexcept override { return body_; }
  [[nodiscard]] std::uint32_t shared_bytes() const noexcept override { return 0; }

 private:
  std::string name_ = "made-up";
  std::shared_ptr<const Body> body_;
  std::uint32_t index_;
  std::size_t frame_bytes_;
};

class ResidentQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda::Driver& table = fake_cuda::table();
    table.cuLaunchKernel = [](CUfunction function, unsigned blocks, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, CUstream stream, void** arguments, void**) {
      const auto residence = *static_cast<const gpumap_residence*>(arguments[0]);
      ++launches;
      blocks_there = static_cast<int>(blocks);
      fake_cuda::of(stream).push([=] {
        ++present;
        held += static_cast<int>(blocks);
        std::vector<std::thread> threads;
        for (unsigned self = 0; self < blocks; ++self) {
          threads.emplace_back([=] { stay(*reinterpret_cast<const Body*>(function), residence, self, blocks); });
        }
        for (std::thread& thread : threads) thread.join();
        held -= static_cast<int>(blocks);
        --present;
      });
      return CUDA_SUCCESS;
    };
    table.cuMemsetD32Async = [](CUdeviceptr to, unsigned value, std::size_t words, CUstream stream) {
      fake_cuda::of(stream).push([=] { std::fill_n(reinterpret_cast<unsigned*>(to), words, value); });
      return CUDA_SUCCESS;
    };
    table.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
      fake_cuda::of(stream).push(
          [=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes); });
      return CUDA_SUCCESS;
    };
    table.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
      *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT              ? multiprocessors
               : attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING ? writes_ordering.load()
               : attribute == CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT             ? time_limit.load()
                                                                                  : 1;
      return CUDA_SUCCESS;
    };
    // As the driver's, it waits until the GPU runs nothing.
    if (true_free == nullptr) true_free = table.cuMemFreeHost;
    table.cuMemFreeHost = [](void* memory) {
      for (const Deadline end = Clock::now() + 10s; present != 0 && Clock::now() < end;) std::this_thread::yield();
      if (present != 0) ++stuck;
      return true_free(memory);
    };
    launches = stuck = writes_ordering = time_limit = 0;
    auto health = std::make_shared<Health>();
    auto cuda = std::make_unique<CudaContext>(table, 0, "made-up GPU", health);
    device_ = std::make_shared<OpenDevice>(DeviceInfo(), health, nullptr, std::move(cuda));
  }
  void TearDown() override {
    device_.reset();
    EXPECT_EQ(present, 0);
    EXPECT_EQ(stuck, 0) << "calls of the driver met a kernel that stayed";
    EXPECT_EQ(fake_cuda::streams.count(), 0U);
    EXPECT_EQ(fake_cuda::host_blocks.count(), 0U);
    fake_cuda::reset();
  }
  static bool done(const Fence& fence) { return fence.wait(Clock::now() + 10s) == WaitResult::ready; }
  [[nodiscard]] std::unique_ptr<Queue> queue(std::uint32_t blocks = 3, std::chrono::milliseconds idle = 10s,
                                             std::chrono::milliseconds stays = 100s,
                                             std::function<bool(const Fence&)> wait = nullptr) {
    return create_resident_queue(device_,
                                 {.blocks = blocks, .idle = idle, .stay = stays, .cuda = {}, .wait = std::move(wait)});
  }
  std::shared_ptr<GpuDevice> device_;
};

gpumap_frame numbered(std::uint64_t number) {
  gpumap_frame frame{};
  frame.sequence = number;
  frame.out_tensors[GPUMAP_MAX_TENSORS - 1].reserved = static_cast<gpumap_u32>(~number);
  frame.params[GPUMAP_MAX_PARAMS - 1] = static_cast<float>(number);
  return frame;
}

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

// From here on the frames' numbers, in the order in which they were run.
struct ResidentOrder : ResidentQueueTest {
  [[nodiscard]] std::shared_ptr<const Body> body() {
    return std::make_shared<const Body>([this](std::uint32_t function, const gpumap_frame& frame, std::uint64_t block) {
      if (block != 0) return;
      while (frame.sequence >= gate) std::this_thread::yield();
      const std::lock_guard lock(mutex);
      ran.push_back(frame.sequence + std::uint64_t{1000} * function);
    });
  }
  [[nodiscard]] std::vector<std::uint64_t> order() {
    const std::lock_guard lock(mutex);
    return ran;
  }
  /// Of what another queue does, which ends when no stream is stalled.
  static Fence work_of(Queue& queue) {
    fake_cuda::of(stream_of(queue)).push([] {});
    return queue.submit();
  }
  void put(Queue& queue, const Kernel& kernel, std::uint64_t number, std::uint32_t blocks = 2) {
    queue.launch(kernel, {.blocks = {blocks, 1, 1}, .threads = {32, 1, 1}}, numbered(number));
  }
  std::atomic<std::uint64_t> gate{~std::uint64_t{0}};  ///< frames from this on are not run yet
  std::mutex mutex;
  std::vector<std::uint64_t> ran;
};

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

TEST_F(ResidentOrder, AnotherKernelComesWhenTheFirstHasLeft) {
  const MadeUpKernel first(body()), second(body());
  const auto resident = queue();
  for (std::uint64_t n = 0; n < 6; ++n) put(*resident, n % 2 == 0 ? first : second, n);
  put(*resident, second, 6, 3);  // more blocks than it came with
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(launches, 7);
}

TEST_F(ResidentOrder, LeavesWhenIdleAndComesBack) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(2, 10ms);
  for (std::uint64_t n = 0; n < 3; ++n) {
    put(*resident, kernel, n);
    ASSERT_TRUE(done(resident->submit()));
    for (const Deadline end = Clock::now() + 10s; present != 0 && Clock::now() < end;) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(present, 0);
  }
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(launches, 3);
}

// A frame that takes longer than the time that is idle: the kernel stays.
TEST_F(ResidentOrder, StaysWhileAFrameIsRun) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(2, 5ms);
  gate = 0;
  put(*resident, kernel, 0);
  const Fence fence = resident->submit();
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(fence.signalled());
  put(*resident, kernel, 1);
  gate = 2;
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0, 1}));
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
  const auto resident = queue(2, 10s, 20ms, [&](const Fence& oldest) {
    waits = true;
    return oldest.wait(Clock::now() + 60s, 50us, &cancel) == WaitResult::ready;
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
    EXPECT_EQ(resident->wait(work_of(*other)), WaitResult::ready);
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
      const WaitResult result = resident->wait(work_of(*other), &cancel);
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
  EXPECT_EQ(resident->wait(first), WaitResult::ready);
  EXPECT_EQ(resident->wait(second), WaitResult::ready);
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
  EXPECT_EQ(one->wait(resident->submit()), WaitResult::ready);
  std::atomic<bool> went_on{false};
  fake_cuda::of(stream_of(*one)).push([&went_on] { went_on = true; });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(went_on);
  gate = 3;
  ASSERT_TRUE(done(one->submit()));
  EXPECT_TRUE(went_on);
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
    EXPECT_EQ(resident->wait(other->submit()), WaitResult::ready);
    const Fence fence = resident->submit();
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(fence.signalled());
    ended = true;
    EXPECT_TRUE(done(fence));
  }
}

// Its calls that wait for an empty GPU find one soon, however long the kernels would stay, and those come back.
TEST_F(ResidentOrder, LeavesForWhatTheDriverWaitsWith) {
  const MadeUpKernel kernel(body()), other_kernel(body());
  const auto resident = queue(2), other = queue(2);
  for (std::uint64_t n = 0; n < 5; ++n) {
    put(*resident, kernel, n);
    put(*other, other_kernel, 100 + n);
    ASSERT_TRUE(done(resident->submit()));
    ASSERT_TRUE(done(other->submit()));
    EXPECT_EQ(present, 2);
    device_->allocate({.placement = Placement::host, .bytes = 64}, Backend::cuda).reset();
    EXPECT_EQ(present, 0);
  }
  EXPECT_EQ(launches, 10);
}

// Frames go on meanwhile: none comes in between.
TEST_F(ResidentOrder, NobodyComesWhileTheDriverWaits) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(2);
  std::atomic<bool> ends{false};
  std::thread frames([&] {
    for (std::uint64_t n = 0; !ends; ++n) {
      put(*resident, kernel, n);
      EXPECT_TRUE(done(resident->submit()));
    }
  });
  for (int i = 0; i < 50; ++i) {
    const Residents::Absence absence(device_->cuda()->residents());
    const int before = launches;
    std::this_thread::sleep_for(1ms);
    const Deadline end = Clock::now() + 10s;
    while (present != 0 && Clock::now() < end) std::this_thread::yield();
    EXPECT_LT(Clock::now(), end);
    EXPECT_LE(launches, before + 1) << "one may have been on its way";
  }
  ends = true;
  frames.join();
}

// What another library calls is not known here: with frames that come without a pause, it still has its turn.
TEST_F(ResidentOrder, DoesNotStayForGood) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(2, 10s, 20ms);
  const Deadline end = Clock::now() + 10s;
  for (std::uint64_t n = 0; launches < 3 && Clock::now() < end; ++n) {
    put(*resident, kernel, n);
    ASSERT_TRUE(done(resident->submit()));
  }
  EXPECT_EQ(launches, 3);
}

// The GPU has five multiprocessors. Of three kernels of two blocks the third one may find none free, and the first two
// may then be asked to wait for it.
TEST_F(ResidentOrder, MakesRoomForAThirdOne) {
  const MadeUpKernel kernels[] = {MadeUpKernel(body()), MadeUpKernel(body()), MadeUpKernel(body())};
  const std::unique_ptr<Queue> queues[] = {queue(2), queue(2), queue(2)};
  Fence last;
  std::vector<std::uint64_t> expected;
  for (std::uint64_t n = 0; n < 30; ++n) {
    Queue& next = *queues[n % 3];
    if (n != 0) {
      EXPECT_EQ(next.wait(last), WaitResult::ready);
    }
    put(next, kernels[n % 3], n);
    last = next.submit();
    expected.push_back(n);
  }
  ASSERT_TRUE(done(last));
  EXPECT_EQ(order(), expected);
  EXPECT_EQ(launches, 30) << "each made the two before it leave";
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
    EXPECT_EQ(resident->wait(other->submit()), WaitResult::ready);
    put(*resident, kernel, n);
    goes_on = true;
    other.reset();
    ASSERT_TRUE(done(resident->submit()));
  }
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
}

/// What is launched, and begins when a multiprocessor is free.
class Launched {
 public:
  explicit Launched(const std::shared_ptr<GpuDevice>& device) : queue_(create_cuda_queue(device)) {}
  Fence launch() {
    fake_cuda::of(stream_of(*queue_)).push([this] {
      for (const Deadline end = Clock::now() + 10s; Clock::now() < end; std::this_thread::yield()) {
        if (held >= multiprocessors) continue;
        ++began_;
        return;
      }
    });
    return queue_->submit();
  }
  [[nodiscard]] int began() const { return began_; }

 private:
  std::atomic<int> began_{0};
  std::unique_ptr<Queue> queue_;
};

// A kernel that has all multiprocessors must not stay to wait for what cannot begin beside it.
TEST_F(ResidentOrder, HoldsNoMultiprocessorThatItWaitsFor) {
  const MadeUpKernel kernel(body());
  Launched launched(device_);
  const auto resident = queue(100);
  std::vector<std::uint64_t> expected;
  for (std::uint64_t n = 0; n < 6; ++n) {
    EXPECT_EQ(resident->wait(launched.launch()), WaitResult::ready);
    if (n % 3 != 2) {  // else a wait alone
      put(*resident, kernel, n, multiprocessors);
      expected.push_back(n);
    }
    ASSERT_TRUE(done(resident->submit()));
    ASSERT_EQ(launched.began(), static_cast<int>(n) + 1);
  }
  EXPECT_EQ(order(), expected);
}

// Nor two that have all of them together, where the second waits for the first.
TEST_F(ResidentOrder, LeavesAMultiprocessorForWhatIsLaunched) {
  const MadeUpKernel kernel(body()), other_kernel(body());
  Launched launched(device_);
  const auto first = queue(3), second = queue(multiprocessors - 3);
  std::vector<std::uint64_t> expected;
  for (std::uint64_t n = 0; n < 6; ++n) {
    EXPECT_EQ(first->wait(launched.launch()), WaitResult::ready);
    put(*first, kernel, 2 * n, 3);
    EXPECT_EQ(second->wait(first->submit()), WaitResult::ready);
    put(*second, other_kernel, 2 * n + 1);
    ASSERT_TRUE(done(second->submit()));
    ASSERT_EQ(launched.began(), static_cast<int>(n) + 1);
    expected.insert(expected.end(), {2 * n, 2 * n + 1});
  }
  EXPECT_EQ(order(), expected);
}

// The driver may answer nobody while one of its calls waits for an empty GPU. Who waits for a slot asks it.
TEST_F(ResidentOrder, LeavesWhileItsRingIsFull) {
  static std::mutex driver;
  static std::atomic<int> asked{0}, kept_waiting{0};
  asked = kept_waiting = 0;
  cuda::Driver& table = fake_cuda::table();
  const auto query = table.cuStreamQuery;
  static decltype(table.cuMemFreeHost) free_host = nullptr;
  free_host = table.cuMemFreeHost;
  table.cuStreamQuery = [](CUstream) {
    ++asked;
    std::unique_lock lock(driver, std::try_to_lock);
    if (!lock) {
      ++kept_waiting;
      lock.lock();
    }
    return CUDA_ERROR_NOT_READY;
  };
  table.cuMemFreeHost = [](void* memory) {
    const std::lock_guard lock(driver);
    return free_host(memory);
  };
  {
    const MadeUpKernel kernel(body());
    const auto resident = queue(2);
    auto memory = device_->allocate({.placement = Placement::host, .bytes = 64}, Backend::cuda);
    gate = 0;
    std::thread frames([&] {
      for (std::uint64_t n = 0; n < 100; ++n) put(*resident, kernel, n);
      EXPECT_TRUE(done(resident->submit()));
    });
    while (asked == 0 || present == 0) std::this_thread::yield();  // it waits for a slot
    std::thread frees_it([&memory] { memory.reset(); });
    while (kept_waiting == 0) std::this_thread::yield();
    gate = ~std::uint64_t{0};
    frees_it.join();
    frames.join();
    EXPECT_EQ(order().size(), 100U);
  }
  table.cuStreamQuery = query;
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

// Of kernels, as a GPU with a display has it: however long it is to stay, it leaves in time.
TEST_F(ResidentOrder, KnowsATimeLimit) {
  const MadeUpKernel kernel(body());
  EXPECT_EQ(doorbell_of(*queue()).find("limits"), std::string::npos);
  time_limit = 1;
  const auto resident = queue();
  const std::string told = doorbell_of(*resident);
  EXPECT_EQ(told.substr(told.find(';') + 2),
            "made-up GPU limits the time of kernels, as one with a display does: it leaves after 200 ms");
  const Deadline end = Clock::now() + 20s;
  for (std::uint64_t n = 0; launches < 2 && Clock::now() < end; ++n) {
    put(*resident, kernel, n);
    ASSERT_TRUE(done(resident->submit()));
  }
  EXPECT_EQ(launches, 2);
  EXPECT_NE(doorbell_of(*queue(2, 10s, 20ms)).find("it leaves after 20 ms"), std::string::npos);
}

// A turn waits for all blocks. Of these a multiprocessor takes one.
TEST_F(ResidentOrder, HasNoMoreBlocksThanTheGpuTakes) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(100);
  for (std::uint64_t n = 0; n < 3; ++n) put(*resident, kernel, n, 100);
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(blocks_there, multiprocessors);
  EXPECT_EQ(launches, 1);
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
