// SPDX-License-Identifier: MIT
// What the ring itself costs: empty slots in ordinary memory, no GPU, no bytes moved. Not measured here: stores into a
// BAR, launches, GStreamer. The two sides spin, so two free cores are needed; on busier machines means show the
// scheduler, and p50 and best still show the ring. Figures as JSON: --benchmark_out=FILE --benchmark_out_format=json.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
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

double percentile(std::vector<std::int64_t>& ns, std::size_t percent) {
  if (ns.empty()) return 0;
  const std::size_t rank = std::max<std::size_t>((ns.size() * percent + 99) / 100, 1);  // nearest rank
  const auto at = ns.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(ns.begin(), at, ns.end());
  return static_cast<double>(*at);
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

/// Empty slots a second through a pair of spinning threads; of batches, the median and the best.
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
  constexpr std::uint64_t batch = 4096;
  std::vector<std::int64_t> ns;
  std::uint64_t received = 0;
  Deadline start = Clock::now();
  for (auto _ : state) {
    ReadLease lease;
    if (ring->receive(lease) != RingStatus::ok) state.SkipWithError("receive");
    if (++received % batch != 0) continue;
    const Deadline now = Clock::now();
    ns.push_back((now - start).count());
    start = now;
  }
  state.SetItemsProcessed(state.iterations());
  if (!ns.empty()) {
    state.counters["p50_per_s"] = batch * 1e9 / percentile(ns, 50);
    state.counters["best_per_s"] = batch * 1e9 / percentile(ns, 0);
  }
  state.counters["futex_calls"] = static_cast<double>(ring::futex_calls() - calls);
  ring->close_consumer();
  producer.join();
}
BENCHMARK(EmptySlots)->Arg(2)->Arg(8)->Arg(256)->UseRealTime();

/// From the stamp in publish() to the end of receive() on the other thread, one frame at a time; call_…: from before
/// publish() is called. Both hold one reading of the clock, see clock_ns. range(0): spin in us; with 0 the consumer
/// sleeps, and the figure is a wake-up by the kernel.
void Handoff(benchmark::State& state) {
  const std::chrono::nanoseconds spin = std::chrono::microseconds(state.range(0));
  const auto ring = make_ring(8, spin);
  const auto pace = spin > 0ns ? 2us : 100us;
  std::vector<std::int64_t> ns;
  std::vector<std::int64_t> call_ns;
  std::thread producer([&] {
    for (;;) {
      for (const Deadline next = Clock::now() + pace; Clock::now() < next;) ring::relax_cpu();
      WriteLease lease;
      if (ring->acquire(lease) != RingStatus::ok) return;
      ring->publish(lease, {.pts = Clock::now().time_since_epoch().count()});
    }
  });
  for (auto _ : state) {
    ReadLease lease;
    if (ring->receive(lease) != RingStatus::ok) state.SkipWithError("receive");
    const std::int64_t now = Clock::now().time_since_epoch().count();
    ns.push_back(now - lease.info().publish_ns);
    call_ns.push_back(now - lease.info().pts);
  }
  ring->close_consumer();
  producer.join();
  for (const std::size_t percent : {50, 90, 99}) {
    state.counters["p" + std::to_string(percent) + "_ns"] = percentile(ns, percent);
  }
  state.counters["call_p50_ns"] = percentile(call_ns, 50);
  std::vector<std::int64_t> clock_ns(1000);
  for (std::int64_t& one : clock_ns) {
    const Deadline before = Clock::now();
    one = (Clock::now() - before).count();
  }
  state.counters["clock_ns"] = percentile(clock_ns, 50);
}
BENCHMARK(Handoff)->Arg(1'000'000)->Arg(0)->UseRealTime()->Iterations(100'000);

}  // namespace

BENCHMARK_MAIN();
