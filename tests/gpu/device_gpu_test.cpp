// SPDX-License-Identifier: MIT
// What only a GPU with CUDA can show. Skipped where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <gpumap/device.hpp>
#include <gpumap/error.hpp>
#include <random>
#include <vector>

namespace gpumap {
namespace {

class CudaDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto inventory = take_inventory();
    for (const auto& info : inventory.devices) {
      if (info.transport == "bar" && info.cuda_index >= 0) {
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
        ASSERT_EQ(queue->submit().wait(), WaitResult::ready);
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
    second->wait(first->submit());
    second->copy(*middle, 0, *to, 0, size);
    first->wait(second->submit());
  }
  const auto fence = second->submit();
  EXPECT_EQ(fence.wait(), WaitResult::ready);
  EXPECT_EQ(fence.timeline()->completed(), 50U);
  fence.timeline()->check();
  EXPECT_EQ(downloaded(*to, size), data);
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
  cuda->wait(vulkan->submit());
  cuda->copy(*middle, 0, *to, 0, size);
  EXPECT_EQ(cuda->submit().wait(), WaitResult::ready);
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

}  // namespace
}  // namespace gpumap
