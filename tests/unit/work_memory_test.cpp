// SPDX-License-Identifier: MIT
// Memory of programs on a device and a queue that are made up: how much is asked for where there is little, and how
// long what tables are copied from stays.
#include "kernel/kernel_memory.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fake_device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "gpumap/tables.hpp"
#include "kernel/radio/radio_kernel.hpp"
#include "temporary_folder.hpp"

namespace gpumap::test {
namespace {

/// Copies at once, and tells so when the test does.
class CopyingQueue final : public Queue {
 public:
  [[nodiscard]] Backend backend() const noexcept override { return Backend::vulkan; }
  WaitResult wait(const Fence& /*fence*/, const std::atomic<bool>& /*cancel*/) override { return WaitResult::ready; }
  void launch(const Kernel& /*kernel*/, const Grid& /*grid*/, const gpumap_frame& /*frame*/) override {}
  void copy(const Mapping& from, std::size_t from_offset, const Mapping& to, std::size_t to_offset,
            std::size_t bytes) override {
    std::memcpy(to.host() + to_offset, from.host() + from_offset, bytes);
  }
  void clear(const Mapping& /*mapping*/, std::size_t /*offset*/, std::size_t /*bytes*/) override {}
  [[nodiscard]] Fence submit() override { return {timeline, ++submitted}; }

  std::shared_ptr<FakeTimeline> timeline = std::make_shared<FakeTimeline>();
  std::uint64_t submitted = 0;
};

/// Has `free` bytes, and remembers what was asked for.
class SmallDevice final : public FakeDevice {
 public:
  [[nodiscard]] std::shared_ptr<Mapping> allocate(const MappingOptions& options,
                                                  std::optional<Backend> backend) override {
    asked.push_back(options.bytes);
    if (options.bytes > free) throw Error(ErrorCode::no_memory, "the small device is full", "lower slots");
    auto made = FakeDevice::allocate(options, backend);
    if (options.placement == Placement::host) staging.push_back(made);
    return made;
  }
  [[nodiscard]] std::unique_ptr<Queue> create_queue(std::optional<Backend> /*backend*/) override {
    auto made = std::make_unique<CopyingQueue>();
    made->timeline = timeline;
    return made;
  }
  std::shared_ptr<FakeTimeline> timeline = std::make_shared<FakeTimeline>();  ///< of queues
  std::size_t free = 1'000'000;
  std::vector<std::size_t> asked;
  std::vector<std::weak_ptr<Mapping>> staging;
};

TEST(WorkMemory, TakesJustWhatIsNeededWhereThereIsNoMore) {
  const auto device = std::make_shared<SmallDevice>();
  CopyingQueue queue;
  queue.timeline->reached = 1000;
  WorkMemory memory(device, Backend::vulkan);
  static_cast<void>(memory.ready(queue, 1001));
  device->free = 1400;
  EXPECT_NE(memory.ready(queue, 1399), 0U);
  EXPECT_EQ(memory.bytes(), 1399U);
  EXPECT_EQ(device->asked, (std::vector<std::size_t>{1008, 1520, 1399}));
  try {
    static_cast<void>(memory.ready(queue, 1401));
    ADD_FAILURE() << "there is no room";
  } catch (const Error& error) {
    // Of the slots of a ring it is none.
    EXPECT_EQ(error.cause(), "the small device is full");
    EXPECT_NE(std::string(error.what()).find("give the kernel smaller frames"), std::string::npos) << error.what();
  }
  EXPECT_EQ(device->asked.back(), 1401U);
  EXPECT_EQ(memory.address(), 0U);
  EXPECT_NE(memory.ready(queue, 1400), 0U) << "it goes on with smaller frames";
  // Small ones have 16 bytes, where these are there.
  device->free = 3;
  WorkMemory small(device, Backend::vulkan);
  EXPECT_NE(small.ready(queue, 2), 0U);
  EXPECT_EQ(small.bytes(), 2U);
}

TEST(WorkMemory, HistoryTakesJustWhatIsNeededWhereThereIsNoMore) {
  const auto device = std::make_shared<SmallDevice>();
  FrameHistory history(device, Backend::vulkan, 1);
  static_cast<void>(history.room(1000));
  device->free = 1200;
  EXPECT_EQ(history.room(1199)->bytes(), 1199U);
  EXPECT_EQ(device->asked, (std::vector<std::size_t>{1008, 1520, 1199}));
}

TEST(DeviceTable, LetsGoOfWhatItWasCopiedFromWithTheNextFrame) {
  const auto device = std::make_shared<SmallDevice>();
  CopyingQueue queue;
  DeviceTable table(device, Backend::vulkan);
  table.set({1.5F, -2, 3});
  const std::uint64_t address = table.ready(queue);
  float values[3] = {};
  std::memcpy(values, reinterpret_cast<const void*>(address), sizeof values);
  EXPECT_EQ(values[1], -2);
  ASSERT_EQ(device->staging.size(), 1U);
  EXPECT_EQ(table.ready(queue), address);
  EXPECT_FALSE(device->staging[0].expired()) << "the copy has not ended";
  queue.timeline->reached = queue.submitted;
  EXPECT_EQ(table.ready(queue), address);
  EXPECT_TRUE(device->staging[0].expired());
  EXPECT_EQ(queue.submitted, 1U) << "it was copied once";
}

// A table that is loaded while its kernel ends: the copy ends soon, as a rule, and then its memory goes.
TEST(TablesTest, LetGoOfWhatIsBeingCopiedAsTheyEnd) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "table";
  std::ofstream(path) << "one";
  const auto device = std::make_shared<SmallDevice>();
  device->timeline->reached = 1;
  auto tables = std::make_unique<Tables>(
      device, Backend::vulkan, "a kernel",
      std::vector{DeclaredTable{.name = "t", .type = NumberType::u8, .count = {}, .path = path.string()}});
  ASSERT_EQ(device->staging.size(), 1U);
  EXPECT_TRUE(device->staging[0].expired());
  const std::size_t kept = kept_for_good();
  device->timeline->reached = 0;  // the next copy does not end
  std::ofstream(path) << "another";
  const Deadline end = Clock::now() + std::chrono::minutes(1);
  while (device->timeline->asked < 100 && Clock::now() < end) EXPECT_EQ(tables->refresh({}), "");
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    device->timeline->reached = 1;
  });
  tables.reset();
  ends.join();
  EXPECT_EQ(kept_for_good(), kept);
  ASSERT_EQ(device->staging.size(), 2U);
  EXPECT_TRUE(device->staging[1].expired());
}

}  // namespace
}  // namespace gpumap::test
