// SPDX-License-Identifier: MIT
// What the ring itself costs: empty slots in ordinary memory, no GPU, no bytes moved. Not measured here: stores into a
// BAR, launches, GStreamer. The two sides spin, so two free cores are needed; on busier machines the percentiles show
// the scheduler.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "../unit/fake_device.hpp"
#include "gpumap/ring.hpp"
#include "ring/bell.hpp"

namespace {

using namespace gpumap;  // NOLINT
using namespace std::chrono_literals;

std::shared_ptr<Ring> make_ring(std::uint32_t slots, std::chrono::nanoseconds spin) {
  return Ring::create(std::make_shared<test::FakeDevice>(), {.slots = slots, .slot_bytes = 64, .spin = spin});
}

void report(benchmark::State& state, std::vector<std::int64_t>& ns) {
  if (ns.empty()) return;
  std::sort(ns.begin(), ns.end());
  const auto at = [&](std::size_t percent) { return static_cast<double>(ns[(ns.size() - 1) * percent / 100]); };
  state.counters["p50_ns"] = at(50);
  state.counters["p90_ns"] = at(90);
  state.counters["p99_ns"] = at(99);
}

/// Both sides of one frame on one thread.
void RoundTripOneThread(benchmark::State& state) {
  const auto ring = make_ring(static_cast<std::uint32_t>(state.range(0)), 0ns);
  for (auto _ : state) {
    WriteLease write;
    if (ring->acquire(write) != RingStatus::ok) return state.SkipWithError("acquire");
    ring->publish(write, {});
    ReadLease read;
    if (ring->receive(read) != RingStatus::ok) return state.SkipWithError("receive");
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(RoundTripOneThread)->Arg(2)->Arg(8)->Arg(256);

/// Empty slots a second through a pair of spinning threads.
void EmptySlots(benchmark::State& state) {
  const auto ring = make_ring(static_cast<std::uint32_t>(state.range(0)), 1s);
  const std::uint64_t calls = ring::futex_calls();
  std::thread producer([&] {
    for (;;) {
      WriteLease lease;
      if (ring->acquire(lease) != RingStatus::ok) return;
      ring->publish(lease, {});
    }
  });
  for (auto _ : state) {
    ReadLease lease;
    if (ring->receive(lease) != RingStatus::ok) state.SkipWithError("receive");
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["futex_calls"] = static_cast<double>(ring::futex_calls() - calls);
  ring->close_consumer();
  producer.join();
}
BENCHMARK(EmptySlots)->Arg(2)->Arg(8)->Arg(256)->UseRealTime();

/// From the stamp in publish() to the end of receive() on the other thread, one frame at a time. range(0): spin in us;
/// with 0 the consumer sleeps, and the figure is a wake-up by the kernel.
void Handoff(benchmark::State& state) {
  const std::chrono::nanoseconds spin = std::chrono::microseconds(state.range(0));
  const auto ring = make_ring(8, spin);
  const auto pace = spin > 0ns ? 2us : 100us;
  std::vector<std::int64_t> ns;
  std::thread producer([&] {
    for (;;) {
      for (const Deadline next = Clock::now() + pace; Clock::now() < next;) ring::relax_cpu();
      WriteLease lease;
      if (ring->acquire(lease) != RingStatus::ok) return;
      ring->publish(lease, {});
    }
  });
  for (auto _ : state) {
    ReadLease lease;
    if (ring->receive(lease) != RingStatus::ok) state.SkipWithError("receive");
    ns.push_back(Clock::now().time_since_epoch().count() - lease.info().publish_ns);
  }
  ring->close_consumer();
  producer.join();
  report(state, ns);
}
BENCHMARK(Handoff)->Arg(1'000'000)->Arg(0)->UseRealTime()->Iterations(100'000);

}  // namespace

BENCHMARK_MAIN();
