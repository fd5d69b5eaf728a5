// SPDX-License-Identifier: MIT
// Blocks for results with readers that the test lets go of by hand.
#include "gst/kernel/output_pool.hpp"

#include <thread>

#include "fake_device.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

class OutputPoolTest : public testing::Test {
 protected:
  /// Give a block back that is read until `timeline_` reaches `value`.
  void give_back_read(OutputBlock block, std::uint64_t value) {
    block.readers.emplace_back(timeline_, value);
    pool_->give_back(std::move(block));
  }
  OutputBlock take() {
    auto block = pool_->take(cancelled_);
    EXPECT_TRUE(block.has_value());
    return block ? std::move(*block) : OutputBlock();
  }

  std::shared_ptr<gpumap::test::FakeTimeline> timeline_ = std::make_shared<gpumap::test::FakeTimeline>();
  std::shared_ptr<gpumap::test::FakeDevice> device_ = std::make_shared<gpumap::test::FakeDevice>();
  std::shared_ptr<OutputPool> pool_ =
      std::make_shared<OutputPool>(device_, Backend::vulkan, Placement::device, std::size_t{1000});
  std::atomic<bool> cancelled_{false};
};

TEST_F(OutputPoolTest, ASlowReaderIsWaitedFor) {
  std::vector<const Mapping*> blocks;
  for (std::uint64_t i = 0; i < OutputPool::max_read; ++i) {
    OutputBlock block = take();
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
  const OutputBlock next = take();
  reader.join();
  EXPECT_EQ(next.mapping.get(), blocks.front());
  EXPECT_TRUE(next.readers.empty());
  timeline_->reached = OutputPool::max_read;
}

// A downstream that holds many frames is not a reader to wait for: it may wait for us.
TEST_F(OutputPoolTest, BlocksThatAreOutDoNotCount) {
  std::vector<OutputBlock> held;
  for (std::size_t i = 0; i < 10 * OutputPool::max_read; ++i) held.push_back(take());
  EXPECT_EQ(held.size(), 10 * OutputPool::max_read);
}

TEST_F(OutputPoolTest, MemoryThatIsReadOutlivesThePool) {
  OutputBlock block = take();
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

}  // namespace
}  // namespace gpumap::gst::test
