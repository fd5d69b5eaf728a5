// SPDX-License-Identifier: MIT
// What only a GPU with CUDA can show. Skipped where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <gpumap/device.hpp>
#include <gpumap/error.hpp>
#include <gpumap/kernel.hpp>
#include <random>
#include <string>
#include <vector>

#include "faulty_kernel.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

class CudaDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto inventory = take_inventory();
    for (const auto& info : inventory.devices) {
      if (info.access == DeviceAccess::bar && info.cuda_index >= 0) {
        device_ = Device::open(to_string(info.uuid));
        return;
      }
    }
    GTEST_SKIP() << "no GPU here has CUDA and a BAR window: Vulkan: " << inventory.vulkan
                 << ". CUDA: " << inventory.cuda;
  }

  static std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
    std::mt19937 generator(seed);
    std::vector<std::byte> bytes(count);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(generator()); });
    return bytes;
  }
  static std::vector<std::byte> downloaded(const Mapping& mapping, std::size_t bytes) {
    std::vector<std::byte> result(bytes);
    mapping.download(0, result);
    return result;
  }

  std::shared_ptr<Device> device_;
};

TEST_F(CudaDevice, IsTheSameGpuOnBothSides) {
  const auto& info = device_->info();
  EXPECT_GE(info.vulkan_index, 0);
  EXPECT_FALSE(info.pci_address.empty());
  EXPECT_FALSE(info.compute_capability.empty());
  EXPECT_EQ(device_->default_backend(), Backend::cuda);
  EXPECT_EQ(Device::open(info.pci_address), device_);
  EXPECT_GT(device_->window_free_bytes(), 0U);
}

TEST_F(CudaDevice, CudaReadsWhatTheCpuWroteThroughTheBar) {
  for (const auto backend : {Backend::cuda, Backend::vulkan}) {
    const auto queue = device_->create_queue(backend);
    for (const std::size_t size : {1UL, 4097UL, 3110400UL, 64UL << 20U}) {
      const auto data = random_bytes(size, static_cast<unsigned>(size));
      const auto from = device_->allocate({Placement::bar, size});
      EXPECT_NE(from->address(Backend::cuda), 0U);
      EXPECT_NE(from->address(Backend::vulkan), 0U);
      std::copy(data.begin(), data.end(), from->host());
      from->flush(0, size);
      for (const auto placement : {Placement::bar, Placement::device, Placement::host}) {
        const auto to = device_->allocate({placement, size}, backend);
        queue->copy(*from, 0, *to, 0, size);
        ASSERT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
        EXPECT_EQ(downloaded(*to, size), data);
      }
    }
  }
}

TEST_F(CudaDevice, QueuesWaitForEachOtherOnTheGpu) {
  constexpr std::size_t size = 32 << 20;
  const auto data = random_bytes(size, 1);
  const auto from = device_->allocate({Placement::bar, size});
  std::copy(data.begin(), data.end(), from->host());
  from->flush(0, size);
  const auto middle = device_->allocate({Placement::device, size});
  const auto to = device_->allocate({Placement::device, size});
  const auto first = device_->create_queue(Backend::cuda);
  const auto second = device_->create_queue(Backend::cuda);
  for (int round = 0; round < 50; ++round) {
    first->copy(*from, 0, *middle, 0, size);
    second->wait(first->submit(), test::never);
    second->copy(*middle, 0, *to, 0, size);
    first->wait(second->submit(), test::never);
  }
  const auto fence = second->submit();
  EXPECT_EQ(fence.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(fence.timeline()->completed(), 50U);
  fence.timeline()->check();
  EXPECT_EQ(downloaded(*to, size), data);
}

// DMA of its own: it returns at once, work of other queues goes on beside it, and who waits for it sees all of it.
TEST_F(CudaDevice, PinnedUploadsRunBesideOtherWork) {
  constexpr std::size_t size = 64U << 20U;
  const auto data = random_bytes(size, 3);
  const auto from = device_->allocate({Placement::mirrored, size});
  std::copy(data.begin(), data.end(), from->host());
  const auto a = device_->allocate({Placement::device, size});
  const auto b = device_->allocate({Placement::device, size});
  const auto to = device_->allocate({Placement::device, size});
  static_cast<void>(from->upload(0, size).wait_for(std::chrono::minutes(1)));  // the driver's first time is slow

  const auto other = device_->create_queue(Backend::cuda);
  for (int i = 0; i < 500; ++i) other->copy(*a, 0, *b, 0, size);
  const Fence busy = other->submit();
  const Fence written = from->upload(0, size);
  EXPECT_FALSE(written.signalled()) << "an upload that blocks";
  const auto reader = device_->create_queue(Backend::cuda);
  reader->wait(written, test::never);
  reader->copy(*from, 0, *to, 0, size);
  EXPECT_EQ(written.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_FALSE(busy.signalled()) << "the upload came after the other queue's work";
  EXPECT_EQ(reader->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(downloaded(*to, size), data);
}

// Slots are used again and again while kernels read: a missing wait would show here.
TEST_F(CudaDevice, ReadersWaitForEachUpload) {
  constexpr std::size_t size = 16U << 20U;
  const auto first = random_bytes(size, 4);
  const auto second = random_bytes(size, 5);
  for (const auto backend : {Backend::cuda, Backend::vulkan}) {
    for (const auto placement : {Placement::mirrored, Placement::mirrored_pageable}) {
      const auto from = device_->allocate({placement, size});
      const auto to = device_->allocate({Placement::device, size});
      const auto queue = device_->create_queue(backend);
      for (int round = 0; round < 10; ++round) {
        const auto& data = round % 2 == 0 ? first : second;
        std::copy(data.begin(), data.end(), from->host());
        queue->wait(from->upload(0, size), test::never);
        queue->copy(*from, 0, *to, 0, size);
        ASSERT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
        ASSERT_EQ(downloaded(*to, size), data);
      }
    }
  }
}

TEST_F(CudaDevice, BackendsWaitForEachOther) {
  constexpr std::size_t size = 8 << 20;
  const auto data = random_bytes(size, 2);
  const auto from = device_->allocate({Placement::bar, size});
  std::copy(data.begin(), data.end(), from->host());
  from->flush(0, size);
  const auto middle = device_->allocate({Placement::device, size});
  const auto to = device_->allocate({Placement::device, size});
  const auto cuda = device_->create_queue(Backend::cuda);
  const auto vulkan = device_->create_queue(Backend::vulkan);
  vulkan->copy(*from, 0, *middle, 0, size);
  cuda->wait(vulkan->submit(), test::never);
  cuda->copy(*middle, 0, *to, 0, size);
  EXPECT_EQ(cuda->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(downloaded(*to, size), data);
}

TEST_F(CudaDevice, HostMemoryBelongsToOneBackend) {
  const auto cuda_memory = device_->allocate({Placement::host, 4096}, Backend::cuda);
  const auto vulkan_memory = device_->allocate({Placement::host, 4096}, Backend::vulkan);
  EXPECT_EQ(cuda_memory->address(Backend::vulkan), 0U);
  EXPECT_EQ(vulkan_memory->address(Backend::cuda), 0U);
  const auto bar = device_->allocate({Placement::bar, 4096});
  EXPECT_THROW(device_->create_queue(Backend::cuda)->copy(*bar, 0, *vulkan_memory, 0, 1), Error);
  EXPECT_THROW(device_->create_queue(Backend::vulkan)->copy(*bar, 0, *cuda_memory, 0, 1), Error);
}

TEST_F(CudaDevice, WindowComesBack) {
  const auto before = device_->window_free_bytes();
  for (int i = 0; i < 20; ++i) {
    const auto mapping = device_->allocate({Placement::bar, 256U << 20U});
    EXPECT_LE(device_->window_free_bytes(), before - (256U << 20U));
  }
  EXPECT_GE(device_->window_free_bytes() + (64U << 20U), before);
}

/// In a process of its own: its CUDA context does not come back.
bool every_call_reports_the_fault(const std::string& uuid) {
  const auto device = Device::open(uuid);
  const auto from = device->allocate({Placement::bar, 4096});
  const auto to = device->allocate({Placement::device, 4096});
  const auto host = device->allocate({Placement::host, 4096});
  const auto kernel = Kernel::load(device, {Language::ptx, "faulty", test::faulty_kernel(), "fault"});
  const auto queue = device->create_queue();
  const auto other = device->create_queue();
  queue->launch(*kernel, Grid(), gpumap_frame());
  const auto fence = queue->submit();

  std::vector<std::byte> out(16);
  const std::vector<std::function<void()>> calls = {
      [&] { static_cast<void>(fence.wait_for(std::chrono::minutes(1))); },
      [&] { other->copy(*from, 0, *to, 0, 16); },
      [&] { static_cast<void>(other->submit()); },
      [&] { queue->launch(*kernel, Grid(), gpumap_frame()); },
      [&] { to->download(0, out); },
      [&] {
        static_cast<void>(device->allocate({Placement::host, 4096}));
      },
      [&] { static_cast<void>(device->create_queue(Backend::cuda)); },
      [&] { static_cast<void>(Device::open(uuid)); },
  };
  std::size_t refused = 0;
  for (const auto& call : calls) {
    try {
      call();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::device_lost) ++refused;
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  return refused == calls.size();
}

TEST_F(CudaDevice, AFaultIsReportedByEveryLaterCallAndNothingHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(every_call_reports_the_fault(to_string(device_->info().uuid)) ? 0 : 1),
              ::testing::ExitedWithCode(0),
              "the CUDA context of .* was lost when .*CUDA_ERROR_ILLEGAL_ADDRESS.*: restart the process");
}

}  // namespace
}  // namespace gpumap
