// SPDX-License-Identifier: MIT
// A channel without its elements: what a flush leaves of frames, events and rings.
#include "gst/channel/channel.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "fake_device.hpp"
#include "gst/channel/channel_ring.hpp"

namespace gpumap::gst::test {
namespace {

using gpumap::test::FakeDevice;
using gpumap::test::FakeMapping;

/// Of an upload that is over when it is asked for, which is when `at_look` happens, once.
class Looked final : public Timeline {
 public:
  explicit Looked(std::function<void()> at_look) : at_look_(std::move(at_look)) {}
  std::uint64_t completed() override {
    if (const auto call = std::exchange(at_look_, nullptr)) call();
    return 1;
  }
  void check() override {}

 private:
  std::function<void()> at_look_;
};

class ChannelAlone : public testing::Test {
 protected:
  /// Room for 4 frames; `first`: the number of its first one.
  [[nodiscard]] std::shared_ptr<ChannelRing> new_ring(std::uint64_t first = 0) const {
    return std::make_shared<ChannelRing>(
        Ring::create(std::make_shared<FakeDevice>(), {.slots = 4, .slot_bytes = 64, .transport = Transport::pinned}),
        first, nullptr);
  }
  static void publish(ChannelRing& ring) {
    WriteLease lease;
    ASSERT_EQ(ring.ring().acquire(lease), RingStatus::ok);
    ring.put(lease.slot(), gst_buffer_new());
    ring.ring().publish(lease, {.bytes = 7});
  }
  void flush_stop() const { channel->flush(gst_event_new_flush_stop(FALSE)); }

  const std::shared_ptr<Channel> channel = std::make_shared<Channel>("alone");
};

// A producer in another process that says without end that it has none takes no memory here.
TEST_F(ChannelAlone, WithoutARingNoneIsRetired) {
  channel->retire_ring();
  EXPECT_FALSE(channel->has_waiting());
}

// Nor does one that sends rings without end within a flush, in which nobody takes them.
TEST_F(ChannelAlone, AFlushKeepsOneRing) {
  channel->flush(gst_event_new_flush_start());
  std::weak_ptr<ChannelRing> first;
  std::shared_ptr<ChannelRing> last;
  for (std::uint64_t n = 0; n < 5; ++n) {
    last = new_ring(n);
    if (n == 0) first = last;
    publish(*last);
    channel->push_ring(last);
  }
  channel->make_room_in_flush();
  EXPECT_EQ(channel->rings_waiting(), 1U);
  EXPECT_TRUE(first.expired());
  flush_stop();
  publish(*last);
  const Channel::Next next = channel->next(Deadline{});
  ASSERT_EQ(next.kind, Channel::Next::Kind::frame);
  EXPECT_EQ(next.sequence, 5U);  // of the last ring, its second
}

// Frames may be missing before the first one that comes behind a flush, also where a frame was just taken at the flush.
TEST_F(ChannelAlone, AFrameBehindAFlushFollowsNone) {
  const auto ring = new_ring();
  channel->push_ring(ring);
  EXPECT_EQ(channel->next(Deadline{}).kind, Channel::Next::Kind::timeout);
  const auto& mapping = dynamic_cast<const FakeMapping&>(*ring->ring().mapping());
  const auto upload = std::make_shared<Looked>([this] { flush_stop(); });
  mapping.next_upload = Fence(upload, 1);
  publish(*ring);
  mapping.next_upload = {};
  EXPECT_TRUE(channel->next_frame(ring->ring()));
  channel->forget_held();
  publish(*ring);
  const auto frame = channel->next_frame(ring->ring());
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->sequence, 1U);
  EXPECT_TRUE(frame->after_hole);
}

}  // namespace
}  // namespace gpumap::gst::test
