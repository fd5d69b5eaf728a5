// SPDX-License-Identifier: MIT
// The ring between threads at full speed: nothing lost, nothing twice, nothing torn.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "ring/control_block.hpp"
#include "ring_helpers.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

constexpr std::uint64_t scale = sanitized ? 10 : 1;
constexpr std::size_t frame_words = 16;

/// Words that depend on a seed, and what they add up to.
std::uint64_t fill(std::byte* to, std::uint64_t seed) {
  std::uint64_t sum = 0;
  for (std::size_t n = 0; n < frame_words; ++n) {
    const std::uint64_t word = (seed + n) * 0x9e37'79b9'7f4a'7c15U;
    std::memcpy(to + n * 8, &word, 8);
    sum += word ^ n;
  }
  return sum;
}

std::uint64_t checksum(const std::byte* from) {
  std::uint64_t sum = 0;
  for (std::size_t n = 0; n < frame_words; ++n) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + n * 8, 8);
    sum += word ^ n;
  }
  return sum;
}

struct Tally {
  std::uint64_t attempts = 0, full = 0;
};

/// `pts` carries the producer's own count, `offset` the checksum.
Tally produce(Ring& ring, std::uint64_t count, WhenFull when_full, std::uint32_t who = 0) {
  Tally tally;
  for (std::uint64_t n = 0; n < count; ++n) {
    ++tally.attempts;
    WriteLease lease;
    const RingStatus status = ring.acquire(lease, when_full);
    if (status == RingStatus::full) {
      ++tally.full;
      continue;
    }
    if (status != RingStatus::ok) ADD_FAILURE() << "acquire: " << static_cast<int>(status);
    FrameInfo info;
    info.bytes = frame_words * 8;
    info.pts = static_cast<std::int64_t>(n);
    info.user = who;
    info.offset = fill(lease.host(), n << 8U | who);
    ring.publish(lease, info);
  }
  return tally;
}

/// Until closed; checks order and content of every frame. `producers` > 1: order is asked for each of them.
std::uint64_t consume(Ring& ring, std::size_t producers, bool gaps_allowed) {
  std::uint64_t received = 0;
  std::uint64_t next_sequence = 0;
  std::vector<std::int64_t> next(producers, 0);
  std::size_t wrong = 0;
  ReadLease lease;
  for (RingStatus status{}; (status = ring.receive(lease)) != RingStatus::closed;) {
    const FrameInfo& info = lease.info();
    const bool ordered = gaps_allowed ? info.sequence >= next_sequence && info.pts >= next.at(info.user)
                                      : info.sequence == next_sequence && info.pts == next.at(info.user);
    if (status != RingStatus::ok || !ordered || checksum(ring.mapping()->host() + lease.offset()) != info.offset)
      ++wrong;
    next_sequence = info.sequence + 1;
    next.at(info.user) = info.pts + 1;
    ++received;
  }
  EXPECT_EQ(wrong, 0U);
  return received;
}

// Few slots mean a change of threads for every frame where cores are scarce: fewer frames will do there.
struct Case {
  std::uint32_t slots;
  std::chrono::nanoseconds spin;
  std::uint64_t frames;
};

class RingStress : public testing::TestWithParam<Case> {
 protected:
  std::shared_ptr<Ring> ring_ = make_ring(GetParam().slots, frame_words * 8, GetParam().spin);
  std::uint64_t frames_ = GetParam().frames / scale;
};
INSTANTIATE_TEST_SUITE_P(SlotsAndSpin, RingStress,
                         testing::Values(Case{2, 50us, 100'000}, Case{3, 0ns, 100'000}, Case{8, 50us, 200'000},
                                         Case{256, 0ns, 1'000'000}, Case{256, 50us, 1'000'000}));

TEST_P(RingStress, BlockLosesNothing) {
  std::thread producer([this] {
    produce(*ring_, frames_, WhenFull::block);
    ring_->close_producer();
  });
  EXPECT_EQ(consume(*ring_, 1, false), frames_);
  producer.join();
  const RingCounters counters = ring_->counters();
  EXPECT_EQ(counters.published, frames_);
  EXPECT_EQ(counters.received, frames_);
  EXPECT_EQ(counters.dropped, 0U);
}

TEST_P(RingStress, DropOldestAddsUp) {
  Tally tally;
  std::thread producer([&] {
    tally = produce(*ring_, frames_, WhenFull::drop_oldest);
    ring_->close_producer();
  });
  const std::uint64_t received = consume(*ring_, 1, true);
  producer.join();
  const RingCounters counters = ring_->counters();
  EXPECT_EQ(counters.published, tally.attempts - tally.full);
  EXPECT_EQ(counters.received, received);
  EXPECT_EQ(counters.dropped, counters.published - received);
  EXPECT_EQ(counters.refused, tally.full);
  EXPECT_EQ(ring_->queued(), 0U);
}

TEST_P(RingStress, DropNewestAddsUp) {
  Tally tally;
  std::thread producer([&] {
    tally = produce(*ring_, frames_, WhenFull::drop_newest);
    ring_->close_producer();
  });
  const std::uint64_t received = consume(*ring_, 1, true);
  producer.join();
  EXPECT_EQ(received + tally.full, tally.attempts);
  EXPECT_EQ(ring_->counters().refused, tally.full);
  EXPECT_EQ(ring_->counters().dropped, 0U);
}

TEST_P(RingStress, ManyProducersAndConsumersUnderFlushes) {
  constexpr std::uint32_t threads = 4;
  const std::uint64_t each = frames_ / 16;
  std::atomic<std::uint64_t> attempts{0};
  std::atomic<std::uint64_t> full{0};
  std::atomic<std::uint64_t> received{0};
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> producers;
  for (std::uint32_t who = 0; who < threads; ++who) {
    producers.emplace_back([&, who] {
      const Tally tally = produce(*ring_, each, who % 2 == 0 ? WhenFull::block : WhenFull::drop_oldest, who);
      attempts += tally.attempts;
      full += tally.full;
    });
  }
  std::vector<std::thread> consumers;
  for (std::uint32_t who = 0; who < 3; ++who) {
    consumers.emplace_back([&] {
      ReadLease lease;
      for (RingStatus status{}; (status = ring_->receive(lease, in(1ms))) != RingStatus::closed;) {
        if (status != RingStatus::ok) continue;
        if (checksum(ring_->mapping()->host() + lease.offset()) != lease.info().offset) ++wrong;
        ++received;
      }
    });
  }
  for (int n = 0; n < 50; ++n) {
    std::this_thread::sleep_for(200us);
    ring_->drop_queued();
    ring_->nudge_consumer();
    ring_->set_consumer_flushing(true);
    ring_->set_consumer_flushing(false);
  }
  for (std::thread& thread : producers) thread.join();
  // Every slot comes home. Before the close, after which nobody gets one.
  for (std::vector<WriteLease> all(ring_->slots()); WriteLease & lease : all) {
    ASSERT_EQ(ring_->acquire(lease, WhenFull::block, in(long_enough)), RingStatus::ok);
  }
  ring_->close_producer();
  for (std::thread& thread : consumers) thread.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(attempts, threads * each);
  const RingCounters counters = ring_->counters();
  EXPECT_EQ(counters.published + full, attempts);
  EXPECT_EQ(counters.received, received);
  EXPECT_EQ(counters.dropped, counters.published - received);
  EXPECT_EQ(counters.refused, full);
}

TEST_P(RingStress, ManyProducersKeepTheirOrder) {
  constexpr std::uint32_t threads = 4;
  const std::uint64_t each = frames_ / 16;
  std::vector<std::thread> producers;
  for (std::uint32_t who = 0; who < threads; ++who) {
    producers.emplace_back([&, who] { produce(*ring_, each, WhenFull::block, who); });
  }
  std::uint64_t received = 0;
  std::thread consumer([&] { received = consume(*ring_, threads, false); });
  for (std::thread& thread : producers) thread.join();
  ring_->close_producer();
  consumer.join();
  EXPECT_EQ(received, threads * each);
}

TEST_P(RingStress, FencesAndKeptLeases) {
  const auto timeline = std::make_shared<FakeTimeline>();
  const std::uint64_t count = frames_ / 10;
  std::thread producer([&] {
    WriteLease kept;
    for (std::uint64_t n = 0; n < count; ++n) {
      WriteLease lease;
      if (ring_->acquire(lease) != RingStatus::ok) ADD_FAILURE();
      FrameInfo info;
      info.offset = fill(lease.host(), n);
      ring_->publish(lease, info);
      // With two slots one that is kept and one that is fenced would be all of them, and the last fence nobody's.
      if (ring_->slots() > 2) kept = std::move(lease);
    }
    ring_->close_producer();
  });
  // The "GPU": reads each slot after its lease is gone, then signals.
  std::uint64_t received = 0;
  std::uint64_t wrong = 0;
  ReadLease lease;
  while (ring_->receive(lease) == RingStatus::ok) {
    const std::byte* at = ring_->mapping()->host() + lease.offset();
    const std::uint64_t expected = lease.info().offset;
    lease.add_read_fence(Fence(timeline, ++received));
    lease = ReadLease();
    if (checksum(at) != expected) ++wrong;
    timeline->reached = received;
  }
  producer.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(received, count);
}

TEST(RingSteadyState, SpinningSidesMakeNoSystemCall) {
  const auto ring = make_ring(8, frame_words * 8, 10s);
  const std::uint64_t before = ring::futex_calls();
  std::thread producer([&] {
    produce(*ring, 2'000, WhenFull::block);
    ring->close_producer();
  });
  EXPECT_EQ(consume(*ring, 1, false), 2'000U);
  producer.join();
  EXPECT_EQ(ring::futex_calls(), before + 2) << "of the closing, which wakes either side whatever its bell says";
  EXPECT_EQ(ring->counters().producer_waits + ring->counters().consumer_waits, 0U);
}

TEST(RingSteadyState, NobodyAsleepMakesNoSystemCall) {
  const auto ring = make_ring(4);
  const std::uint64_t before = ring::futex_calls();
  for (int n = 0; n < 1000; ++n) {
    send(*ring);
    must_receive(*ring);
  }
  EXPECT_EQ(ring::futex_calls(), before);
  ring->nudge_consumer();
  ring->drop_queued();
  EXPECT_EQ(ring::futex_calls(), before + 2) << "one each, whatever the bell says";
}

TEST(RingSteadyState, OneSleepDoesNotCostEveryLaterFrame) {
  const auto ring = make_ring(4);
  auto sleeper = asleep(*ring, receiving(ring));
  send(*ring);
  expect_soon(sleeper, RingStatus::ok);
  const std::uint64_t before = ring::futex_calls();
  for (int n = 0; n < 1000; ++n) {
    send(*ring);
    must_receive(*ring);
  }
  // One may be left over: who wakes up does not take his mark away, the next waker does.
  EXPECT_LE(ring::futex_calls(), before + 1);
}

}  // namespace
}  // namespace gpumap
