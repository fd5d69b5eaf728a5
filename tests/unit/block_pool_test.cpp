// SPDX-License-Identifier: MIT
// Blocks for results with readers that the test lets go of by hand.
#include "gpumap/block_pool.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "error_of.hpp"
#include "fake_device.hpp"

namespace gpumap::test {
namespace {

using namespace std::chrono_literals;

class BlockPoolTest : public testing::Test {
 protected:
  /// Give a block back that is read until `timeline_` reaches `value`.
  void give_back_read(MemoryBlock block, std::uint64_t value) {
    block.readers.emplace_back(timeline_, value);
    pool_->give_back(std::move(block));
  }
  MemoryBlock take() {
    auto block = pool_->take(cancelled_);
    EXPECT_TRUE(block.has_value());
    return block ? std::move(*block) : MemoryBlock();
  }

  std::shared_ptr<FakeTimeline> timeline_ = std::make_shared<FakeTimeline>();
  std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
  std::shared_ptr<BlockPool> pool_ =
      std::make_shared<BlockPool>(device_, Backend::vulkan, Placement::device, std::size_t{1000});
  std::atomic<bool> cancelled_{false};
};

TEST_F(BlockPoolTest, ASlowReaderIsWaitedFor) {
  std::vector<const Mapping*> blocks;
  for (std::uint64_t i = 0; i < BlockPool::max_read; ++i) {
    MemoryBlock block = take();
    blocks.push_back(block.mapping.get());
    give_back_read(std::move(block), i + 1);
  }
  cancelled_ = true;
  EXPECT_FALSE(pool_->take(cancelled_).has_value());
  cancelled_ = false;
  std::thread reader([&] {
    std::this_thread::sleep_for(20ms);
    timeline_->reached = 1;
  });
  const MemoryBlock next = take();
  reader.join();
  EXPECT_EQ(next.mapping.get(), blocks.front());
  EXPECT_TRUE(next.readers.empty());
  timeline_->reached = BlockPool::max_read;
}

// A downstream that holds many frames is not a reader to wait for: it may wait for us.
TEST_F(BlockPoolTest, BlocksThatAreOutDoNotCount) {
  std::vector<MemoryBlock> held;
  for (std::size_t i = 0; i < 10 * BlockPool::max_read; ++i) held.push_back(take());
  EXPECT_EQ(held.size(), 10 * BlockPool::max_read);
}

TEST_F(BlockPoolTest, MemoryThatIsReadOutlivesThePool) {
  MemoryBlock block = take();
  const std::weak_ptr<Mapping> mapping = block.mapping;
  give_back_read(std::move(block), 1);
  std::thread reader([&] {
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(mapping.expired());
    timeline_->reached = 1;
  });
  pool_.reset();
  EXPECT_EQ(timeline_->reached, 1U);
  EXPECT_TRUE(mapping.expired());
  reader.join();
}

/// Has no memory. Neither what it says nor its remedy has just one colon.
class FullDevice : public FakeDevice {
 public:
  [[nodiscard]] std::shared_ptr<Mapping> allocate(const MappingOptions&, std::optional<Backend>) override {
    throw Error(ErrorCode::no_memory, "fake: 1000 bytes asked: 7 are free", "two ways: free some, or lower slots");
  }
};

TEST_F(BlockPoolTest, ItsOwnRemedyTakesTheDevicesPlace) {
  const auto full = std::make_shared<BlockPool>(std::make_shared<FullDevice>(), Backend::vulkan, Placement::device, 1);
  EXPECT_EQ(error_of(ErrorCode::no_memory, [&] { return full->take(cancelled_); }),
            "fake: 1000 bytes asked: 7 are free: let the kernel give smaller frames, or let what follows it keep fewer "
            "of them (queues)");
}

}  // namespace
}  // namespace gpumap::test
