// SPDX-License-Identifier: MIT
// Memory of each placement: what the CPU writes the GPU reads and the other way round, in parts and from several
// threads; ranges are checked, descriptors exported, and allocations too large for the driver refused.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gpumap/device.hpp>
#include <gpumap/error.hpp>
#include <gpumap/kernel_launcher.hpp>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda_driver.hpp"
#include "device/vulkan_device.hpp"
#include "fake_device.hpp"
#include "link/link_memory.hpp"
#include "memory/gpu_mapping.hpp"
#include "open_device.hpp"
#include "ring_helpers.hpp"
#include "test_helpers.hpp"

// Memory that is not coherent, more strictly than any CPU that tests run on: what one side wrote, the other sees once
// it was flushed, or invalidated, and not a moment before. The library's own mapping lies above it.
namespace gpumap::test {

class SimulatedMapping final : public GpuMapping {
 public:
  SimulatedMapping(std::shared_ptr<GpuDevice> device, const MappingOptions& options)
      : GpuMapping(std::move(device), options), cpus_(options.bytes + page), gpus_(options.bytes) {
    set_memory_coherent(false);
  }

  [[nodiscard]] std::byte* host() const noexcept override {
    const auto at = reinterpret_cast<std::uintptr_t>(cpus_.data());
    return cpus_.data() + (page - at % page) % page;
  }
  [[nodiscard]] std::uint64_t address(Backend) const noexcept override {
    return reinterpret_cast<std::uint64_t>(gpus_.data());
  }
  void download(std::size_t offset, std::span<std::byte> to) const override {
    check_range(offset, to.size(), "download");
    std::ranges::copy(seen_by_gpu(offset, to.size()), to.begin());
  }
  [[nodiscard]] std::span<std::byte> seen_by_gpu(std::size_t offset, std::size_t bytes) const {
    return std::span(gpus_).subspan(offset, bytes);
  }

 private:
  static constexpr std::size_t page = 4096;
  void flush_range(std::size_t offset, std::size_t bytes) const override {
    std::copy_n(host() + offset, bytes, gpus_.data() + offset);
  }
  void invalidate_range(std::size_t offset, std::size_t bytes) const override {
    std::copy_n(gpus_.data() + offset, bytes, host() + offset);
  }
  mutable std::vector<std::byte> cpus_;
  mutable std::vector<std::byte> gpus_;
};

/// Gives SimulatedMappings.
class SimulatedDevice : public FakeDevice {
 public:
  [[nodiscard]] std::shared_ptr<Mapping> allocate(const MappingOptions& options, std::optional<Backend>) override {
    return std::make_shared<SimulatedMapping>(behind_, options);
  }

 private:
  std::shared_ptr<GpuDevice> behind_ =
      std::make_shared<OpenDevice>(DeviceInfo(), std::make_shared<Health>(), nullptr, nullptr);
};

}  // namespace gpumap::test

namespace gpumap {
namespace {

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

/// Every placement that the CPU writes.
class Written : public Memory, public ::testing::WithParamInterface<Placement> {};
std::string name_of(const ::testing::TestParamInfo<Placement>& test) {
  constexpr std::array names{"bar", "device", "host", "mirrored", "pageable"};
  return names.at(static_cast<std::size_t>(test.param));
}
INSTANTIATE_TEST_SUITE_P(Memory, Written,
                         ::testing::Values(Placement::bar, Placement::host, Placement::mirrored,
                                           Placement::mirrored_pageable),
                         name_of);

TEST_P(Written, DownloadsWhatTheCpuWrote) {
  for (const std::size_t size : {1UL, 63UL, 4096UL, 4097UL, 1000003UL, (4UL << 20U) + 5, 13UL << 20U}) {
    const auto mapping = device_->allocate({GetParam(), size});
    ASSERT_NE(mapping->host(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapping->host()) % 4096, 0U);
    EXPECT_EQ(mapping->bytes(), size);
    EXPECT_EQ(mapping->placement(), GetParam());
    EXPECT_EQ(mapping->cpu_readable(), GetParam() != Placement::bar);
    EXPECT_NE(mapping->address(device_->default_backend()), 0U);
    const auto data = random_bytes(size, static_cast<unsigned>(size));
    std::copy(data.begin(), data.end(), mapping->host());
    EXPECT_EQ(mapping->upload(0, size).wait_for(std::chrono::minutes(1)), WaitResult::ready);
    EXPECT_EQ(downloaded(*mapping, 0, size), data) << size;
    const std::size_t offset = size / 3;
    const std::size_t part = (size - offset + 1) / 2;
    const auto first = data.begin() + static_cast<std::ptrdiff_t>(offset);
    EXPECT_EQ(downloaded(*mapping, offset, part), std::vector(first, first + static_cast<std::ptrdiff_t>(part)));
    if (mapping->cpu_readable()) {
      mapping->invalidate(0, size);
      EXPECT_TRUE(std::equal(data.begin(), data.end(), mapping->host()));
    }
  }
}

// Parts of odd size at odd places, several under way at once; what is not uploaded stays as it was.
TEST_P(Written, UploadsPartsAndNoMore) {
  constexpr std::size_t size = 300007;
  const auto mapping = device_->allocate({GetParam(), size});
  auto expected = random_bytes(size, 1);
  std::copy(expected.begin(), expected.end(), mapping->host());
  EXPECT_EQ(mapping->upload(0, size).wait_for(std::chrono::minutes(1)), WaitResult::ready);
  const auto change = random_bytes(size, 2);
  std::mt19937 random(3);
  std::vector<Fence> fences;
  std::size_t at = 0;
  while (at < size) {
    const std::size_t bytes = std::min<std::size_t>(1 + random() % 20000, size - at);
    const bool uploads = random() % 2 == 0;
    const auto first = static_cast<std::ptrdiff_t>(at);
    // Where the CPU writes the GPU's own memory, every store is one that kernels may see.
    if (uploads || GetParam() == Placement::mirrored || GetParam() == Placement::mirrored_pageable) {
      std::copy_n(change.begin() + first, bytes, mapping->host() + at);
    }
    if (uploads) {
      std::copy_n(change.begin() + first, bytes, expected.begin() + first);
      fences.push_back(mapping->upload(at, bytes));
    }
    at += bytes;
  }
  for (const Fence& fence : fences) EXPECT_EQ(fence.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(downloaded(*mapping, 0, size), expected);
}

// A queue's copy reads what a kernel would, and waits for the upload on the GPU.
TEST_P(Written, QueuesSeeWhatWasUploaded) {
  constexpr std::size_t size = 3110401;
  const auto from = device_->allocate({GetParam(), size});
  const auto to = device_->allocate({Placement::device, size});
  const auto queue = device_->create_queue();
  for (unsigned round = 0; round < 10; ++round) {
    const auto data = random_bytes(size, round);
    std::copy(data.begin(), data.end(), from->host());
    queue->wait(from->upload(0, size), test::never);
    queue->copy(*from, 1, *to, 0, size - 1);
    ASSERT_EQ(queue->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
    ASSERT_EQ(downloaded(*to, 0, size - 1), std::vector(data.begin() + 1, data.end()));
  }
}

TEST_P(Written, GoesWhileAnUploadIsUnderWay) {
  for (int round = 0; round < 20; ++round) {
    auto mapping = device_->allocate({GetParam(), 1U << 20U});
    const Fence fence = mapping->upload(0, 1U << 20U);
    mapping.reset();
    EXPECT_TRUE(fence.signalled());
  }
}

TEST_F(Memory, DeviceMemoryHasNoHostSide) {
  const auto mapping = device_->allocate({Placement::device, 4096});
  EXPECT_EQ(mapping->host(), nullptr);
  EXPECT_NE(mapping->address(Backend::vulkan), 0U);
  EXPECT_EQ(downloaded(*mapping, 0, 4096).size(), 4096U);
  mapping->flush(0, 4096);
}

TEST_P(Written, EveryRangeIsChecked) {
  const auto mapping = device_->allocate({GetParam(), 1000});
  const auto whole = ~std::size_t{0};
  for (const auto& [offset, bytes] :
       std::vector<std::pair<std::size_t, std::size_t>>{{0, 1001}, {1000, 1}, {1001, 0}, {whole, 2}, {2, whole}}) {
    EXPECT_EQ(code_of([&, o = offset, b = bytes] { mapping->flush(o, b); }), ErrorCode::invalid);
    EXPECT_EQ(code_of([&, o = offset, b = bytes] { mapping->invalidate(o, b); }), ErrorCode::invalid);
    EXPECT_EQ(code_of([&, o = offset, b = bytes] { static_cast<void>(mapping->upload(o, b)); }), ErrorCode::invalid);
  }
  std::vector<std::byte> out(10);
  EXPECT_EQ(code_of([&] { mapping->download(991, out); }), ErrorCode::invalid);
  mapping->download(990, out);
  mapping->download(1000, {});
  EXPECT_TRUE(mapping->upload(1000, 0).signalled());
  EXPECT_EQ(code_of([&] { static_cast<void>(device_->allocate({GetParam(), 0})); }), ErrorCode::invalid);
}

TEST_P(Written, TreatAsNonCoherentReachesTheDriver) {
  MappingOptions options{GetParam(), 10000};
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
  const auto data = random_bytes(10000, 4);
  std::copy(data.begin(), data.end(), mapping->host());
  EXPECT_EQ(mapping->upload(0, 10000).wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_EQ(own.driver_flushes(), 6U) << "an upload flushes";
  EXPECT_EQ(downloaded(*mapping, 0, 10000), data);
  if (plain->coherent()) {
    static_cast<void>(plain->upload(0, 10000));
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

// A few bytes of a BAR are read by the CPU, more by DMA.
TEST_P(Written, DownloadsFewBytesFromAnywhere) {
  constexpr std::size_t size = 5000;
  const auto mapping = device_->allocate({GetParam(), size});
  const auto data = random_bytes(size, 77);
  std::copy(data.begin(), data.end(), mapping->host());
  mapping->flush(0, size);
  static_cast<void>(mapping->upload(0, size).wait_for(std::chrono::minutes(1)));
  for (const std::size_t bytes : {1UL, 15UL, 16UL, 17UL, 63UL, 64UL, 255UL, 2047UL, 2048UL, 2049UL}) {
    for (const std::size_t offset : {0UL, 1UL, 15UL, 16UL, 61UL, size - bytes}) {
      const auto first = data.begin() + static_cast<std::ptrdiff_t>(offset);
      ASSERT_EQ(downloaded(*mapping, offset, bytes), std::vector(first, first + static_cast<std::ptrdiff_t>(bytes)))
          << bytes << " at " << offset;
    }
  }
}

TEST_P(Written, ThreadsUploadAndDownloadAtOnce) {
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (unsigned i = 0; i < right.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto data = random_bytes(300007 + i, i);
      const auto mapping = device_->allocate({GetParam(), data.size()});
      std::copy(data.begin(), data.end(), mapping->host());
      for (int round = 0; round < 5; ++round) {
        static_cast<void>(mapping->upload(0, data.size()).wait_for(std::chrono::minutes(1)));
        right[i] += downloaded(*mapping, 0, data.size()) == data ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 5));
}

TEST_P(Written, ExportsADescriptorOfDeviceMemory) {
  const auto mapping = device_->allocate({GetParam(), 4096});
  const auto& own = dynamic_cast<const GpuMapping&>(*mapping);
  if (GetParam() == Placement::host) {
    EXPECT_EQ(code_of([&] { static_cast<void>(own.export_fd()); }), ErrorCode::not_supported);
  } else {
    EXPECT_TRUE(static_cast<bool>(own.export_fd()));
  }
}

TEST_F(Memory, ImportsDoNotShareAFilePosition) {
  const auto bytes = random_bytes(65'536 + 1, 7);
  const auto mapping = device_->allocate({Placement::bar, bytes.size()});
  std::copy(bytes.begin(), bytes.end(), mapping->host());
  mapping->flush(0, bytes.size());
  UniqueFd shared;
  const link::MemoryOffer offer = link::describe(*mapping, shared);
  // Another process's import, without end. On hardware there is no position to move.
  const std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) lseek(shared.get(), 7, SEEK_SET);
  });
  int right = 0;
  constexpr int imports = 300;
  for (int n = 0; n < imports; ++n) {
    try {
      const auto imported = link::import_memory(*device_, offer, UniqueFd(dup(shared.get())));
      right += downloaded(*imported, 0, bytes.size()) == bytes ? 1 : 0;
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_EQ(right, imports);
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

// An address of another GPU's is none here.
TEST_F(Memory, OfAnotherDeviceIsNoFrameOfAKernel) {
  KernelLauncher kernel(KernelSettings(), device_);
  FrameLayout bytes;
  bytes.view.format = GPUMAP_FORMAT_BYTES;
  bytes.bytes_per_sample = 1;
  kernel.set_stream(bytes, bytes);
  test::SimulatedDevice other;
  const auto elsewhere = other.allocate({.placement = Placement::bar, .bytes = 64}, {});
  FrameInput in;
  in.mapping = elsewhere.get();
  in.bytes = in.view.bytes = 64;
  EXPECT_EQ(code_of([&] { static_cast<void>(kernel.launch(in, {})); }), ErrorCode::invalid);
  const auto here = device_->allocate({.placement = Placement::bar, .bytes = 64});
  in.mapping = here.get();
  in.address = in.view.plane[0] = here->address(kernel.backend());
  EXPECT_EQ(kernel.launch(in, {}).outcome, FrameOutput::Outcome::given);
  kernel.drain();
}

/// What `call` says where the process has a limit of `most`. Empty: nothing.
std::string told_under(auto which, rlim_t most, const std::function<void()>& call) {
  rlimit before{};
  EXPECT_EQ(getrlimit(which, &before), 0);
  rlimit few = before;
  few.rlim_cur = most;
  EXPECT_EQ(setrlimit(which, &few), 0);
  std::string told;
  try {
    call();
  } catch (const Error& error) {
    told = error.what();
  }
  EXPECT_EQ(setrlimit(which, &before), 0);
  return told;
}

TEST_F(Memory, SaysWhichLimitOfTheProcessIsInTheWay) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's run time needs descriptors itself";
  if (!device_->info().software) GTEST_SKIP() << "a GPU's driver may need neither descriptors nor files";
  const int next = dup(0);
  ASSERT_GE(next, 0);
  close(next);
  const auto allocate = [this] {
    EXPECT_EQ(code_of([&] { static_cast<void>(device_->allocate({Placement::bar, 4096})); }), ErrorCode::no_resources);
    static_cast<void>(device_->allocate({Placement::bar, 4096}));
  };
  const auto load = [] { static_cast<void>(load_kernel_file("/no/such.comp")); };
  EXPECT_NE(told_under(RLIMIT_NOFILE, static_cast<rlim_t>(next), load).find("raise ulimit -n"), std::string::npos);
  std::string told = told_under(RLIMIT_NOFILE, static_cast<rlim_t>(next), allocate);
  EXPECT_NE(told.find("no file descriptor is left while allocating 4 KiB of"), told.npos) << told;
  EXPECT_NE(told.find("this process may have " + std::to_string(next) + ": raise ulimit -n"), told.npos) << told;
  told = told_under(RLIMIT_FSIZE, 100, allocate);
  EXPECT_NE(told.find("no file of more than 100 bytes: raise ulimit -f"), told.npos) << told;
}

// What a reader sees of memory that is not coherent: all that was published, and nothing else.

using namespace test;  // NOLINT: the tests' own words

std::vector<std::byte> downloaded(const Mapping& mapping, std::size_t offset, std::size_t bytes) {
  std::vector<std::byte> seen(bytes);
  mapping.download(offset, seen);
  return seen;
}

TEST(Flush, ReaderSeesAllOfEveryFrame) {
  constexpr std::size_t slot_bytes = 5000;
  const auto ring =
      Ring::create(std::make_shared<SimulatedDevice>(), {.slots = 3, .slot_bytes = slot_bytes, .spin = 0ns});
  std::mt19937 random(7);
  for (const std::size_t bytes : {1UL, 63UL, 64UL, 65UL, 4095UL, 4096UL, 4097UL, 4999UL, slot_bytes, 17UL}) {
    WriteLease write = must_acquire(*ring);
    std::vector<std::byte> sent(bytes);
    std::ranges::generate(sent, [&] { return static_cast<std::byte>(random()); });
    std::ranges::copy(sent, write.host());
    EXPECT_NE(downloaded(*ring->mapping(), write.offset(), bytes), sent) << "the simulation shows what nobody flushed";
    ring->publish(write, {.bytes = bytes});
    const ReadLease read = must_receive(*ring);
    EXPECT_EQ(downloaded(*ring->mapping(), read.offset(), bytes), sent) << bytes;
  }
}

TEST(Flush, ReaderSeesNothingOfTheNextFrame) {
  const auto ring = Ring::create(std::make_shared<SimulatedDevice>(), {.slots = 2, .slot_bytes = 4096});
  WriteLease first = must_acquire(*ring);
  WriteLease second = must_acquire(*ring);
  std::fill_n(first.host(), first.bytes(), std::byte{1});
  std::fill_n(second.host(), second.bytes(), std::byte{2});
  ring->publish(first, {.bytes = 100});
  EXPECT_EQ(downloaded(*ring->mapping(), first.offset(), 100), std::vector(100, std::byte{1}));
  EXPECT_EQ(downloaded(*ring->mapping(), first.offset() + 100, 1), std::vector(1, std::byte{0}));
  EXPECT_EQ(downloaded(*ring->mapping(), second.offset(), 4096), std::vector(4096, std::byte{0}));
}

TEST(Flush, RangesAreThoseAskedFor) {
  const auto mapping =
      std::dynamic_pointer_cast<SimulatedMapping>(SimulatedDevice().allocate({Placement::bar, 1000}, {}));
  std::fill_n(mapping->host(), 1000, std::byte{1});
  mapping->flush(10, 20);
  mapping->flush(500, 0);
  EXPECT_TRUE(mapping->upload(990, 10).signalled());
  for (std::size_t at = 0; at < 1000; ++at) {
    const bool flushed = (at >= 10 && at < 30) || at >= 990;
    ASSERT_EQ(mapping->seen_by_gpu(at, 1).front(), flushed ? std::byte{1} : std::byte{0}) << at;
  }
  EXPECT_EQ(mapping->driver_flushes(), 2U) << "an empty range is no business of the driver";
}

TEST(Flush, CpuSeesWhatTheGpuWroteOnceInvalidated) {
  const auto mapping =
      std::dynamic_pointer_cast<SimulatedMapping>(SimulatedDevice().allocate({Placement::host, 1000}, {}));
  std::ranges::fill(mapping->seen_by_gpu(0, 1000), std::byte{3});
  mapping->invalidate(7, 100);
  for (std::size_t at = 0; at < 1000; ++at) {
    ASSERT_EQ(mapping->host()[at], at >= 7 && at < 107 ? std::byte{3} : std::byte{0}) << at;
  }
}

}  // namespace
}  // namespace gpumap
