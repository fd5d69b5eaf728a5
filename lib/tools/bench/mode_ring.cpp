// SPDX-License-Identifier: MIT
// ring: what the ring itself costs: empty slots in ordinary memory, no GPU, no bytes moved. The two sides spin, so two
// free cores are needed; on busier machines means show the scheduler, and P50 and the least still show the ring.
#include <fmt/format.h>

#include <array>
#include <gpumap/ring.hpp>
#include <thread>

#include "../../../tests/unit/fake_device.hpp"
#include "bench.hpp"
#include "ring/control_block.hpp"

namespace bench {
namespace {

using gpumap::ReadLease;
using gpumap::Ring;
using gpumap::RingStatus;
using gpumap::WriteLease;
using namespace std::chrono_literals;

constexpr unsigned batch = 4096;

std::shared_ptr<Ring> make_ring(std::uint32_t slots, std::chrono::nanoseconds spin) {
  return Ring::create(std::make_shared<gpumap::test::FakeDevice>(), {.slots = slots, .slot_bytes = 64, .spin = spin});
}

void expect_ok(RingStatus status) {
  if (status != RingStatus::ok) throw std::runtime_error("the ring gave no slot");
}

void publish(Ring& ring) {
  WriteLease lease;
  expect_ok(ring.acquire(lease));
  ring.publish(lease, {});
}

/// Both sides of one frame on one thread: times of batches.
std::vector<std::int64_t> one_thread(std::uint32_t slots, unsigned batches) {
  const auto ring = make_ring(slots, 0ns);
  std::vector<std::int64_t> ns;
  while (ns.size() < batches) {
    const std::int64_t began = now_ns();
    for (unsigned i = 0; i < batch; ++i) {
      publish(*ring);
      ReadLease lease;
      expect_ok(ring->receive(lease));
    }
    ns.push_back(now_ns() - began);
  }
  return ns;
}

/// Calls `produce` in a thread of its own until the ring is closed.
template <typename Produce>
std::thread producer(const std::shared_ptr<Ring>& ring, Produce produce) {
  return std::thread([ring, produce] {
    for (WriteLease lease; ring->acquire(lease) == RingStatus::ok; lease = {}) produce(*ring, lease);
  });
}

/// Empty slots through a pair of spinning threads: times of batches.
std::vector<std::int64_t> two_threads(std::uint32_t slots, unsigned batches) {
  const auto ring = make_ring(slots, 1s);
  std::thread other = producer(ring, [](Ring& to, WriteLease& lease) { to.publish(lease, {}); });
  std::vector<std::int64_t> ns;
  while (ns.size() < batches) {
    const std::int64_t began = now_ns();
    for (unsigned i = 0; i < batch; ++i) {
      ReadLease lease;
      expect_ok(ring->receive(lease));
    }
    ns.push_back(now_ns() - began);
  }
  ring->close_consumer();
  // Ends: a closed ring gives no slot.
  other.join();
  return ns;
}

struct HandOver {
  std::vector<std::int64_t> from_stamp, from_call;
};
/// From the stamp in publish(), and from before its call, to the end of receive() on the other thread, one frame at a
/// time. Both hold one reading of the clock. Without `spin` the consumer sleeps: that is a wake-up by the kernel.
HandOver hand_over(std::chrono::nanoseconds spin, unsigned frames) {
  const auto ring = make_ring(8, spin);
  const std::int64_t pace_ns = spin > 0ns ? 2000 : 100'000;
  std::thread other = producer(ring, [pace_ns](Ring& to, WriteLease& lease) {
    for (const std::int64_t next = now_ns() + pace_ns; now_ns() < next;) gpumap::ring::relax_cpu();
    to.publish(lease, {.pts = now_ns()});
  });
  HandOver times;
  for (unsigned i = 0; i < frames; ++i) {
    ReadLease lease;
    expect_ok(ring->receive(lease));
    const std::int64_t now = now_ns();
    times.from_stamp.push_back(now - lease.info().publish_ns);
    times.from_call.push_back(now - lease.info().pts);
  }
  ring->close_consumer();
  // Ends: a closed ring gives no slot.
  other.join();
  return times;
}

}  // namespace

void run_ring(Context& context, ModeReport& report) {
  report.what = "empty slots in ordinary memory: a frame, of batches of 4,096; hand-over: one";
  report.not_measured = {"stores into a BAR, launches, GStreamer"};
  const unsigned batches = context.options.quick ? 3 : 300;
  const unsigned frames = context.options.quick ? 200 : 100'000;
  const auto add = [&](const char* path, const std::string& detail, std::vector<std::int64_t> ns, double parts) {
    report.add({.path = path, .detail = detail}, ns, parts);
  };
  const std::uint64_t calls = gpumap::ring::futex_calls();
  for (const std::uint32_t slots : {2U, 8U, 256U}) {
    const std::string detail = fmt::format("{} slots", slots);
    add("one thread, both sides", detail, one_thread(slots, batches), batch);
    add("two threads", detail, two_threads(slots, batches), batch);
  }
  report.extra["futex_calls"] = gpumap::ring::futex_calls() - calls;
  for (const auto& [name, spin] : {std::pair{"both spin", std::chrono::nanoseconds(1s)}, {"consumer sleeps", 0ns}}) {
    HandOver times = hand_over(spin, frames);
    add("publish() to receive()", name, std::move(times.from_stamp), 1);
    add("before publish() to receive()", name, std::move(times.from_call), 1);
  }
  std::vector<std::int64_t> clock_ns(1000);
  for (std::int64_t& one : clock_ns) {
    const std::int64_t before = now_ns();
    one = now_ns() - before;
  }
  add("a reading of the clock", "", clock_ns, 1);
}

}  // namespace bench
