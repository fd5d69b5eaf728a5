// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <gpumap/device.hpp>
#include <gpumap/error.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "memory/gpu_mapping.hpp"
#include "memory/window.hpp"

namespace gpumap {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<std::byte> bytes(count);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(generator()); });
  return bytes;
}

class Memory : public ::testing::Test {
 protected:
  // A vector, not the whole: a test's own reading of the BAR would be slow on hardware.
  static std::vector<std::byte> downloaded(const Mapping& mapping, std::size_t offset, std::size_t bytes) {
    std::vector<std::byte> result(bytes);
    mapping.download(offset, result);
    return result;
  }

  void TearDown() override { EXPECT_EQ(validation_message_count(), 0U); }

  std::shared_ptr<Device> device_ = Device::open();
};

ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::io;
}

TEST_F(Memory, DownloadsWhatTheCpuWrote) {
  for (const std::size_t size : {1UL, 63UL, 4096UL, 4097UL, 1000003UL, (4UL << 20U) + 5, 13UL << 20U}) {
    const auto mapping = device_->allocate({Placement::bar, size});
    ASSERT_NE(mapping->host(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapping->host()) % 4096, 0U);
    EXPECT_EQ(mapping->bytes(), size);
    EXPECT_NE(mapping->address(device_->default_backend()), 0U);
    const auto data = random_bytes(size, static_cast<unsigned>(size));
    std::copy(data.begin(), data.end(), mapping->host());
    mapping->flush(0, size);
    EXPECT_EQ(downloaded(*mapping, 0, size), data) << size;
    const std::size_t offset = size / 3;
    const std::size_t part = (size - offset + 1) / 2;
    const auto first = data.begin() + static_cast<std::ptrdiff_t>(offset);
    EXPECT_EQ(downloaded(*mapping, offset, part), std::vector(first, first + static_cast<std::ptrdiff_t>(part)));
  }
}

TEST_F(Memory, HostMemoryRoundTrip) {
  constexpr std::size_t size = 100001;
  const auto mapping = device_->allocate({Placement::host, size});
  const auto data = random_bytes(size, 7);
  std::copy(data.begin(), data.end(), mapping->host());
  mapping->flush(0, size);
  mapping->invalidate(0, size);
  EXPECT_EQ(downloaded(*mapping, 1, size - 1), std::vector(data.begin() + 1, data.end()));
}

TEST_F(Memory, DeviceMemoryHasNoHostSide) {
  const auto mapping = device_->allocate({Placement::device, 4096});
  EXPECT_EQ(mapping->host(), nullptr);
  EXPECT_NE(mapping->address(Backend::vulkan), 0U);
  EXPECT_EQ(downloaded(*mapping, 0, 4096).size(), 4096U);
  mapping->flush(0, 4096);
}

TEST_F(Memory, EveryRangeIsChecked) {
  const auto mapping = device_->allocate({Placement::bar, 1000});
  const auto whole = ~std::size_t{0};
  for (const auto& [offset, bytes] :
       std::vector<std::pair<std::size_t, std::size_t>>{{0, 1001}, {1000, 1}, {1001, 0}, {whole, 2}, {2, whole}}) {
    EXPECT_EQ(code_of([&, o = offset, b = bytes] { mapping->flush(o, b); }), ErrorCode::invalid);
    EXPECT_EQ(code_of([&, o = offset, b = bytes] { mapping->invalidate(o, b); }), ErrorCode::invalid);
  }
  std::vector<std::byte> out(10);
  EXPECT_EQ(code_of([&] { mapping->download(991, out); }), ErrorCode::invalid);
  mapping->download(990, out);
  mapping->download(1000, {});
  EXPECT_EQ(code_of([&] { static_cast<void>(device_->allocate({Placement::bar, 0})); }), ErrorCode::invalid);
}

TEST_F(Memory, TreatAsNonCoherentReachesTheDriver) {
  MappingOptions options{Placement::bar, 10000};
  const auto plain = device_->allocate(options);
  options.treat_as_non_coherent = true;
  const auto mapping = device_->allocate(options);
  EXPECT_FALSE(mapping->coherent());
  const auto& own = dynamic_cast<const GpuMapping&>(*mapping);
  // Odd ranges: the validation layer sees whether each is widened to whole atoms.
  mapping->flush(1, 1);
  mapping->flush(63, 2);
  mapping->flush(9999, 1);
  mapping->flush(0, 10000);
  EXPECT_EQ(own.driver_flushes(), 4U);
  mapping->invalidate(4097, 4099);
  EXPECT_EQ(own.driver_flushes(), 5U);
  mapping->flush(5, 0);
  EXPECT_EQ(own.driver_flushes(), 5U);
  if (plain->coherent()) {
    plain->flush(0, 10000);
    EXPECT_EQ(dynamic_cast<const GpuMapping&>(*plain).driver_flushes(), 0U);
  }
  options.treat_as_non_coherent = false;
  options.require_coherent = true;
  EXPECT_TRUE(device_->allocate(options)->coherent());
}

TEST_F(Memory, MemoryOutlivesTheCallersDevice) {
  auto mapping = Device::open()->allocate({Placement::bar, 4096});
  mapping->host()[17] = std::byte{42};
  mapping->flush(0, 4096);
  EXPECT_EQ(downloaded(*mapping, 17, 1)[0], std::byte{42});
}

TEST_F(Memory, ThreadsDownloadAtOnce) {
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (unsigned i = 0; i < right.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto data = random_bytes(300007 + i, i);
      const auto mapping = device_->allocate({Placement::bar, data.size()});
      std::copy(data.begin(), data.end(), mapping->host());
      mapping->flush(0, data.size());
      for (int round = 0; round < 5; ++round) right[i] += downloaded(*mapping, 0, data.size()) == data ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 5));
}

TEST_F(Memory, ExportsADescriptor) {
  const auto mapping = device_->allocate({Placement::bar, 4096});
  EXPECT_TRUE(static_cast<bool>(dynamic_cast<const GpuMapping&>(*mapping).export_fd()));
}

class WindowLimit : public Memory {
 protected:
  void SetUp() override { setenv("GPUMAP_WINDOW_LIMIT", std::to_string(64U << 20U).c_str(), 1); }
  void TearDown() override {
    unsetenv("GPUMAP_WINDOW_LIMIT");
    Memory::TearDown();
  }
};

TEST_F(WindowLimit, FullWindowIsExplainedAndComesBack) {
  const std::uint64_t before = device_->window_free_bytes();
  EXPECT_LE(before, 64U << 20U);
  auto first = device_->allocate({Placement::bar, 40U << 20U});
  EXPECT_LE(device_->window_free_bytes(), before - (40U << 20U));
  try {
    static_cast<void>(device_->allocate({Placement::bar, 32U << 20U}));
    FAIL() << "the window took more than it has";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::no_memory);
    EXPECT_THAT(error.what(), HasSubstr("BAR window 64 MiB, 40 MiB in use, 32 MiB asked"));
    EXPECT_THAT(error.what(), HasSubstr("lower slots or slot-size, or use another transport"));
  }
  EXPECT_NE(device_->allocate({Placement::host, 32U << 20U}), nullptr) << "host memory is not part of the window";
  first.reset();
  EXPECT_EQ(device_->window_free_bytes(), before);
  EXPECT_NE(device_->allocate({Placement::bar, 32U << 20U}), nullptr);
}

TEST_F(WindowLimit, NonsenseIsRefused) {
  setenv("GPUMAP_WINDOW_LIMIT", "64M", 1);
  EXPECT_EQ(code_of([&] { static_cast<void>(device_->allocate({Placement::bar, 4096})); }), ErrorCode::invalid);
}

TEST_F(Memory, OneAllocationTooBigForTheDriver) {
  EXPECT_EQ(code_of([&] {
              static_cast<void>(device_->allocate({Placement::bar, ~std::size_t{0} / 2}));
            }),
            ErrorCode::no_memory);
  EXPECT_EQ(code_of([&] {
              static_cast<void>(device_->allocate({Placement::device, ~std::size_t{0}}));
            }),
            ErrorCode::no_memory);
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(format_bytes(0), "0 bytes");
  EXPECT_EQ(format_bytes(1023), "1023 bytes");
  EXPECT_EQ(format_bytes(4096), "4 KiB");
  EXPECT_EQ(format_bytes(256U << 20U), "256 MiB");
  EXPECT_EQ(format_bytes((1U << 20U) + (1U << 19U)), "1.5 MiB");
  EXPECT_EQ(format_bytes((40U << 20U) + 4096), "40 MiB");
}

}  // namespace
}  // namespace gpumap
