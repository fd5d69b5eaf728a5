// SPDX-License-Identifier: MIT
// A ring in front of a kernel, for every transport: what was written is what the kernel reads, while slots are used
// again as soon as fences allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>

#include "builtin_reference.hpp"
#include "gpumap/device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/ring.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

/// Sums frames on the GPU, several under way at once; checks each once it is done.
class Summer {
 public:
  explicit Summer(std::shared_ptr<Device> device)
      : device_(std::move(device)),
        backend_(device_->default_backend()),
        kernel_(Kernel::load(device_, source_of(*find_builtin("checksum"), backend_))),
        queue_(device_->create_queue()) {}

  /// The frame's sum is in info.offset.
  void add(const ReadLease& lease) {
    if (under_way_.size() == at_once) check_oldest();
    auto result = free_.empty() ? device_->allocate({Placement::host, 4096}, backend_) : free_.back();
    if (!free_.empty()) free_.pop_back();
    std::memset(result->host(), 0, sizeof(std::uint64_t));
    result->flush(0, 4096);
    gpumap_frame frame{};
    frame.in.plane[0] = lease.ring()->mapping()->address(backend_) + lease.offset();
    frame.in.bytes = lease.info().bytes;
    frame.result = result->address(backend_);
    queue_->wait(lease.written(), test::never);
    queue_->launch(*kernel_, kernel_->grid_for(frame), frame);
    const Fence done = queue_->submit();
    lease.add_read_fence(done);
    under_way_.push_back({lease.info(), std::move(result), done});
  }
  void finish() {
    while (!under_way_.empty()) check_oldest();
  }
  [[nodiscard]] std::uint64_t right() const { return right_; }

 private:
  struct Sum {
    FrameInfo info;
    std::shared_ptr<Mapping> result;
    Fence done;
  };
  static constexpr std::size_t at_once = 6;

  void check_oldest() {
    const Sum sum = std::move(under_way_.front());
    under_way_.pop_front();
    ASSERT_EQ(sum.done.wait_for(std::chrono::minutes(1)), WaitResult::ready);
    sum.result->invalidate(0, 4096);
    std::uint64_t word = 0;
    std::memcpy(&word, sum.result->host(), sizeof word);
    EXPECT_EQ(word, sum.info.offset) << "frame " << sum.info.sequence << " of " << sum.info.bytes << " bytes";
    right_ += word == sum.info.offset ? 1 : 0;
    free_.push_back(sum.result);
  }

  std::shared_ptr<Device> device_;
  Backend backend_;
  std::shared_ptr<Kernel> kernel_;
  std::unique_ptr<Queue> queue_;
  std::deque<Sum> under_way_;
  std::vector<std::shared_ptr<Mapping>> free_;
  std::uint64_t right_ = 0;
};

class Transports : public testing::TestWithParam<std::tuple<Transport, bool>> {
 protected:
  void TearDown() override { EXPECT_EQ(validation_message_count(), 0U); }

  [[nodiscard]] std::shared_ptr<Ring> make_ring(std::uint32_t slots, std::size_t slot_bytes) const {
    const auto& [transport, non_coherent] = GetParam();
    return Ring::create(
        Device::open(),
        {.slots = slots, .slot_bytes = slot_bytes, .transport = transport, .treat_as_non_coherent = non_coherent});
  }

  /// Fill and publish; false when there is no slot.
  static bool send(Ring& ring, std::mt19937_64& random, WhenFull when_full) {
    WriteLease lease;
    if (ring.acquire(lease, when_full) != RingStatus::ok) return false;
    FrameInfo info;
    info.bytes = random() % (ring.slot_bytes() + 1);
    const auto data = reference::random_bytes(info.bytes, random());
    std::copy(data.begin(), data.end(), lease.host());
    info.offset = checksum(data);
    ring.publish(lease, info);
    return true;
  }
};

std::string name_of(const testing::TestParamInfo<std::tuple<Transport, bool>>& test) {
  std::string name(to_string(std::get<0>(test.param)));
  std::erase(name, '-');
  return name + (std::get<1>(test.param) ? "NonCoherent" : "");
}
INSTANTIATE_TEST_SUITE_P(Ring, Transports, testing::Combine(testing::ValuesIn(all_transports), testing::Bool()),
                         name_of);

TEST_P(Transports, RandomFramesReachTheKernelWhole) {
  constexpr std::uint64_t frames = sanitized ? 60 : 500;
  const auto ring = make_ring(3, 300007);
  EXPECT_EQ(ring->transport(), std::get<0>(GetParam()));
  EXPECT_EQ(ring->fallback_reason(), "");
  std::thread producer([&] {
    std::mt19937_64 random(1);
    for (std::uint64_t i = 0; i < frames; ++i) EXPECT_TRUE(send(*ring, random, WhenFull::block));
    ring->close_producer();
  });
  Summer summer(ring->device());
  ReadLease lease;
  while (ring->receive(lease) == RingStatus::ok) summer.add(lease);
  producer.join();
  summer.finish();
  EXPECT_EQ(summer.right(), frames);
}

// Frames are taken back from the queue while their upload is still under way, and their slots written anew.
TEST_P(Transports, DropOldestWhileUploading) {
  const auto ring = make_ring(2, std::size_t{1} << 20U);
  std::atomic<bool> done{false};
  std::thread producer([&] {
    std::mt19937_64 random(2);
    for (int i = 0; i < (sanitized ? 40 : 300); ++i) send(*ring, random, WhenFull::drop_oldest);
    ring->close_producer();
    done = true;
  });
  Summer summer(ring->device());
  std::uint64_t received = 0;
  ReadLease lease;
  while (ring->receive(lease) == RingStatus::ok) {
    summer.add(lease);
    ++received;
    lease = ReadLease();
    if (!done) std::this_thread::sleep_for(std::chrono::microseconds(received % 7 * 200));
  }
  producer.join();
  summer.finish();
  EXPECT_EQ(summer.right(), received);
  EXPECT_GT(received, 0U);
  EXPECT_EQ(ring->counters().dropped + received, ring->counters().published);
}

TEST_P(Transports, RingGoesWithFramesUnderWay) {
  for (int round = 0; round < (sanitized ? 4 : 20); ++round) {
    auto ring = make_ring(2, 700001);
    std::mt19937_64 random(3);
    Summer summer(ring->device());
    send(*ring, random, WhenFull::block);
    send(*ring, random, WhenFull::block);
    {
      ReadLease lease;
      ASSERT_EQ(ring->receive(lease), RingStatus::ok);
      summer.add(lease);
    }
    ring.reset();
    summer.finish();
    EXPECT_EQ(summer.right(), 1U);
  }
}

}  // namespace
}  // namespace gpumap
