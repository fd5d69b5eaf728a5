// SPDX-License-Identifier: MIT
// The floor of every tail: how often the machine stops threads that do nothing but read the clock, and how long what
// takes some us takes then. No gpumap, no GPU in it. As the elements' threads these are not bound to cores, and spin.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <thread>

#include "bench.hpp"

namespace bench {
namespace {

constexpr std::array<std::int64_t, 6> limits_us{5, 10, 20, 50, 100, 1000};
/// Between two looks at the clock: what is above was not the thread's own time.
constexpr std::int64_t own_ns = 1000;
/// Of a piece of work, of the thread's own time: a small frame's way.
constexpr std::int64_t work_ns = 7000;

struct Stalls {
  std::array<std::uint64_t, limits_us.size()> at_least{};
  std::int64_t longest_ns = 0, preemptions = 0;
  std::vector<std::int64_t> work_ns{};
};

void spin(std::int64_t for_ns, Stalls& out) {
  // Every page written before the clock runs: a first touch is a stop of the thread's own making.
  out.work_ns.resize(static_cast<std::size_t>(for_ns / work_ns) + 1);
  out.work_ns.clear();
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  std::int64_t last = now_ns();
  const std::int64_t end = last + for_ns;
  std::int64_t began = last, own = 0;
  while (last < end) {
    const std::int64_t now = now_ns();
    const std::int64_t gap = now - last;
    last = now;
    if (gap >= limits_us[0] * 1000) {
      for (std::size_t i = 0; i < limits_us.size(); ++i) out.at_least[i] += gap >= limits_us[i] * 1000 ? 1 : 0;
      out.longest_ns = std::max(out.longest_ns, gap);
    }
    own += std::min(gap, own_ns);
    if (own < work_ns) continue;
    out.work_ns.push_back(now - began);
    began = now;
    own = 0;
  }
  getrusage(RUSAGE_THREAD, &after);
  out.preemptions = after.ru_nivcsw - before.ru_nivcsw;
}

}  // namespace

void run_stalls(Context& context, ModeReport& report) {
  report.what = "7 us of work of threads that only read the clock; stops: how often they were stopped";
  report.not_measured = {"what the GPU or PCIe delays"};
  const std::int64_t for_ns = context.options.quick ? 200'000'000 : 20'000'000'000;
  // By default as many threads as are on a frame's way.
  for (const unsigned count : context.threads({2})) {
    std::vector<Stalls> all(count);
    {
      // Ends: each spins for a time.
      std::vector<std::jthread> threads;
      for (Stalls& one : all) threads.emplace_back([for_ns, &one] { spin(for_ns, one); });
    }
    const double thread_seconds = static_cast<double>(for_ns) / 1e9 * count;
    Stalls sum;
    for (Stalls& one : all) {
      for (std::size_t i = 0; i < limits_us.size(); ++i) sum.at_least[i] += one.at_least[i];
      sum.longest_ns = std::max(sum.longest_ns, one.longest_ns);
      sum.preemptions += one.preemptions;
      sum.work_ns.insert(sum.work_ns.end(), one.work_ns.begin(), one.work_ns.end());
    }
    nlohmann::json stops = nlohmann::json::array();
    for (std::size_t i = 0; i < limits_us.size(); ++i) {
      stops.push_back(
          {{"at_least_us", limits_us[i]}, {"times_a_second", static_cast<double>(sum.at_least[i]) / thread_seconds}});
    }
    report.extra["stops"].push_back({{"threads", count},
                                     {"stops", stops},
                                     {"longest_us", static_cast<double>(sum.longest_ns) / 1e3},
                                     {"preempted_a_second", static_cast<double>(sum.preemptions) / thread_seconds}});
    report.add({.path = "threads that spin", .detail = "7 us of work", .threads = count}, sum.work_ns);
  }
}

}  // namespace bench
