// SPDX-License-Identifier: MIT
// A CUDA driver that is made up: its "GPU" runs the blocks of kernels that stay as threads, by the protocol of
// queue/turn.h. And what the tests of queues of such kernels begin with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/vulkan_device.hpp"
#include "fake_cuda.hpp"
#include "open_device.hpp"
#include "queue/queues.hpp"
#include "queue/turn.h"

namespace gpumap::test {

using namespace std::chrono_literals;

/// What the kernel does with one logical block.
using Body = std::function<void(std::uint32_t function, const gpumap_frame& frame, std::uint64_t block)>;
inline constexpr int multiprocessors = 5;
inline std::atomic<int> launches{0}, present{0}, stuck{0}, blocks_there{0}, held{0};
inline std::atomic<int> writes_ordering{0}, time_limit{0};  ///< attributes
inline decltype(cuda::Driver::cuMemFreeHost) true_free = nullptr;

/// For what hangs, not for what is slow: with few cores each turn of a kernel waits until all of its blocks, which are
/// threads here, had one.
inline constexpr auto patience = 60s;

inline std::uint64_t seen(std::uint64_t address) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(address)).load(std::memory_order_acquire);
}
inline void wait_for(std::uint64_t address, std::uint64_t value) {
  while (seen(address) < value) std::this_thread::yield();
}

/// Each takes one block, the more urgent ones first. `priority` as CUDA counts.
inline void take_multiprocessor(int priority) {
  static std::array<std::atomic<int>, 6> waiting{};
  auto* const own = &waiting.at(static_cast<std::size_t>(-priority));
  ++*own;
  for (int now = held;; std::this_thread::yield(), now = held) {
    if (std::any_of(own + 1, waiting.data() + waiting.size(), [](const auto& others) { return others != 0; })) continue;
    if (now < multiprocessors && held.compare_exchange_strong(now, now + 1)) break;
  }
  --*own;
}

/// One block of lib/kernel/resident/resident.h.
inline void stay(const Body& body, gpumap_residence residence, std::uint64_t self, std::uint64_t blocks) {
  gpumap_turn turn{};
  for (std::uint64_t number = residence.first, parts = 0;; ++number, parts += blocks) {
    auto* const slot = reinterpret_cast<gpumap_turn*>(residence.turns + number % residence.slots * residence.stride);
    wait_for(reinterpret_cast<std::uint64_t>(&slot->number), number + 1);
    wait_for(residence.parts, parts);
    std::memcpy(&turn.kind, &slot->kind, sizeof turn - offsetof(gpumap_turn, kind));
    if (turn.after != 0 && self == 0) {
      wait_for(turn.after, turn.until);
      fake_cuda::word(residence.go).store(number + 1);
    } else if (turn.after != 0) {
      wait_for(residence.go, number + 1);
    }
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
    table.cuLaunchCooperativeKernel = [](CUfunction function, unsigned blocks, unsigned, unsigned, unsigned, unsigned,
                                         unsigned, unsigned, CUstream stream, void** arguments) {
      const auto residence = *static_cast<const gpumap_residence*>(arguments[0]);
      ++launches;
      blocks_there = static_cast<int>(blocks);
      fake_cuda::of(stream).push([=, priority = fake_cuda::of(stream).priority] {
        ++present;
        std::vector<std::thread> threads;
        for (unsigned self = 0; self < blocks; ++self) {
          threads.emplace_back([=] {
            take_multiprocessor(priority);
            stay(*reinterpret_cast<const Body*>(function), residence, self, blocks);
            --held;
          });
        }
        for (std::thread& thread : threads) thread.join();
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
      for (const Deadline end = Clock::now() + patience; present != 0 && Clock::now() < end;) std::this_thread::yield();
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
  static bool done(const Fence& fence) { return fence.wait_for(patience) == WaitResult::ready; }
  [[nodiscard]] std::unique_ptr<Queue> queue(std::uint32_t blocks = 3, std::chrono::milliseconds idle = 10min,
                                             std::chrono::milliseconds stays = 10min,
                                             std::function<bool(const Fence&)> wait = nullptr) {
    auto made = create_resident_queue(device_, {.blocks = blocks, .idle = idle, .stay = stays, .cuda = {}});
    made->set_wait(std::move(wait));
    return made;
  }
  std::shared_ptr<GpuDevice> device_;
};

inline gpumap_frame numbered(std::uint64_t number) {
  gpumap_frame frame{};
  frame.sequence = number;
  frame.out_tensors[GPUMAP_MAX_TENSORS - 1].reserved = static_cast<gpumap_u32>(~number);
  frame.params[GPUMAP_MAX_PARAMS - 1] = static_cast<float>(number);
  return frame;
}

/// The frames' numbers, in the order in which they were run.
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

}  // namespace gpumap::test
