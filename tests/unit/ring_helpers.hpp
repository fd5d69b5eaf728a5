// SPDX-License-Identifier: MIT
// What the ring's tests share.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "fake_device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/ring.hpp"

namespace gpumap::test {

using namespace std::chrono_literals;

inline std::shared_ptr<Ring> make_ring(std::uint32_t slots, std::size_t slot_bytes = 1000,
                                       std::chrono::nanoseconds spin = 0ns) {
  return Ring::create(std::make_shared<FakeDevice>(), {.slots = slots, .slot_bytes = slot_bytes, .spin = spin});
}

/// For what hangs, not for what is slow: others use this machine, too.
inline constexpr auto long_enough = 30s;

inline Deadline in(std::chrono::nanoseconds span) {
  return Clock::now() + span;
}
inline Deadline at_once() {
  return Clock::now();
}

inline WriteLease must_acquire(Ring& ring) {
  WriteLease lease;
  EXPECT_EQ(ring.acquire(lease, WhenFull::block, at_once()), RingStatus::ok);
  return lease;
}

inline ReadLease must_receive(Ring& ring) {
  ReadLease lease;
  EXPECT_EQ(ring.receive(lease, at_once()), RingStatus::ok);
  return lease;
}

inline void send(Ring& ring, std::uint64_t offset = 0) {
  WriteLease lease = must_acquire(ring);
  FrameInfo info;
  info.offset = offset;
  ring.publish(lease, info);
}

/// A call on another thread that is asleep, or at least surely past its first look, when this returns.
template <typename Call>
std::future<RingStatus> asleep(Ring& ring, Call call) {
  const RingCounters before = ring.counters();
  auto result = std::async(std::launch::async, std::move(call));
  const Deadline end = in(long_enough);
  for (;;) {
    const RingCounters now = ring.counters();
    if (now.producer_waits + now.consumer_waits > before.producer_waits + before.consumer_waits) break;
    if (Clock::now() > end) {
      ADD_FAILURE() << "the call does not sleep";
      break;
    }
    std::this_thread::sleep_for(100us);
  }
  std::this_thread::sleep_for(2ms);
  return result;
}

/// Long before the deadlines of acquiring() and receiving(). How soon is RingWait.WakesComeAtOnce's business.
inline void expect_soon(std::future<RingStatus>& result, RingStatus status) {
  ASSERT_EQ(result.wait_for(long_enough), std::future_status::ready);
  EXPECT_EQ(result.get(), status);
}

template <typename Call>
inline void expect_invalid(Call call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "no error, expected one about " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

/// acquire() and receive() as calls for asleep().
inline auto acquiring(const std::shared_ptr<Ring>& ring) {
  return [ring] {
    WriteLease lease;
    return ring->acquire(lease, WhenFull::block, in(10min));
  };
}

inline auto receiving(const std::shared_ptr<Ring>& ring) {
  return [ring] {
    ReadLease lease;
    return ring->receive(lease, in(10min));
  };
}

/// Two slots, both published.
inline std::shared_ptr<Ring> full_ring() {
  auto ring = make_ring(2);
  send(*ring);
  send(*ring);
  return ring;
}

}  // namespace gpumap::test
