// SPDX-License-Identifier: MIT
#include "copy/calibration.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "copy/store_kernel.hpp"
#include "gpumap/copy.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gpumap::copy {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr std::size_t first_shared_class = 2;  // 16 KiB: one chunk each for two threads is half of that
constexpr std::size_t first_default_shared_class = 4;
constexpr std::size_t last_small_class = 1;
// A kernel must be this much faster than one that is better where nothing is known, and threads must pay this much:
// less is noise, and every thread costs its CPU's time. At 2 % a run on a BAR took MOVDIR64B for frames and lost 9 %.
constexpr double kernel_gain = 1.05;
constexpr int kernel_rounds = 3;
constexpr double first_helper_gain = 1.1;
constexpr double more_helpers_gain = 1.08;
// A thread beyond these pays at least half of what it would if copies took threads without end. Into a BAR over PCIe
// Gen5 four threads take 107 us for a 1080p frame and eight 103, and 405 and 758 us of the CPUs' time.
constexpr unsigned cheap_threads = 4;
constexpr double least_share = 0.5;
// On a machine that is busy with something else, the sizes that are left go by the last one measured.
constexpr std::chrono::milliseconds longest_measurement{30};
constexpr std::array<unsigned, 5> thread_counts{2, 3, 4, 6, 8};

#if defined(__x86_64__)
// Without the order among themselves that _mm_clflush keeps, which makes 4 MiB of them slow.
__attribute__((target("clflushopt"))) void flush_lines(const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += store_line_bytes) _mm_clflushopt(const_cast<std::byte*>(from + at));
}
#endif

/// Frames come from elsewhere: a source that this thread's cache holds would make one thread look better than it is.
void evict(const std::byte* from, std::size_t bytes) {
#if defined(__x86_64__)
  if (cpu_words().has_clflushopt()) flush_lines(from, bytes);
  _mm_mfence();
#elif defined(__aarch64__)
  for (std::size_t at = 0; at < bytes; at += store_line_bytes) asm volatile("dc civac, %0" ::"r"(from + at) : "memory");
  asm volatile("dsb sy" ::: "memory");
#endif
}

class Bench {
 public:
  Bench(const Trial& trial, Helpers& helpers)
      : to_(trial.scratch.data()),
        helpers_(helpers),
        source_(std::min(trial.scratch.size(), class_bytes(size_classes - 1)), std::byte{0x5c}) {
    // The first touch of a page is dear, and not what is measured.
    usable_kernels().back().copy(to_, source_.data(), source_.size());
    store_fence();
  }

  /// The shortest time of one copy by this thread from warm memory.
  [[nodiscard]] nanoseconds time_kernel(const StoreKernel& kernel, std::size_t bytes) const {
    const int batch = static_cast<int>(std::max<std::size_t>(std::size_t{16} * 1024 / bytes, 1));
    return shortest(2,
                    [&] {
                      for (int i = 0; i < batch; ++i) {
                        kernel.copy(to_, source_.data(), bytes);
                        store_fence();
                      }
                    }) /
           batch;
  }

  /// The shortest time of one copy by so many threads from cold memory.
  [[nodiscard]] nanoseconds time_threads(const StoreKernel& kernel, std::size_t bytes, unsigned threads, bool asleep) {
    Job job;
    job.copy = kernel.copy;
    job.to = to_;
    job.from = source_.data();
    job.bytes = bytes;
    job.cut(threads);
    helpers_.set_spin(asleep ? nanoseconds(0) : nanoseconds(std::chrono::milliseconds(2)));
    if (threads > 1) helpers_.run(job, threads - 1);  // gets them up, and tells them how long to stay
    nanoseconds best = nanoseconds::max();
    for (int turn = 0; turn < (bytes < class_bytes(5) ? 4 : 2); ++turn) {
      evict(source_.data(), bytes);
      if (asleep) std::this_thread::sleep_for(std::chrono::microseconds(50));
      best = std::min(best, shortest(1, [&] {
                        if (threads > 1) {
                          helpers_.run(job, threads - 1);
                        } else {
                          kernel.copy(to_, source_.data(), bytes);
                        }
                        store_fence();
                      }));
    }
    return best;
  }

 private:
  template <typename Work>
  static nanoseconds shortest(int turns, const Work& work) {
    nanoseconds best = nanoseconds::max();
    for (int turn = 0; turn < turns; ++turn) {
      const auto begin = Clock::now();
      work();
      best = std::min<nanoseconds>(best, Clock::now() - begin);
    }
    return std::max(best, nanoseconds(1));
  }

  std::byte* to_;
  Helpers& helpers_;
  std::vector<std::byte> source_;
};

bool pays(nanoseconds candidate, nanoseconds best, double gain) {
  return static_cast<double>(candidate.count()) * gain < static_cast<double>(best.count());
}

/// `usual` unless another is clearly faster.
std::uint8_t measure_kernel(const Bench& bench, const Trial& trial, std::size_t bytes, std::uint8_t usual) {
  const auto kernels = usable_kernels();
  // Ordinary memory that was written a moment ago is in the cache, where what goes through it cannot be beaten, but the
  // next frame goes to another slot.
  const auto counts = [&](std::size_t i) { return trial.write_combined || !kernels[i].through_cache; };
  // In turns: a clock that is still rising, or a neighbour on the machine, meets them all.
  std::vector<nanoseconds> shortest(kernels.size(), nanoseconds::max());
  for (int round = 0; round < kernel_rounds; ++round) {
    for (std::size_t i = kernels.size(); i-- > 0;) {
      if (counts(i)) shortest[i] = std::min(shortest[i], bench.time_kernel(kernels[i], bytes));
    }
  }
  std::size_t best = usual;
  for (std::size_t i = kernels.size(); i-- > 0;) {
    if (counts(i) && pays(shortest[i], shortest[best], kernel_gain)) best = i;
  }
  return static_cast<std::uint8_t>(best);
}

double gain_needed(unsigned from, unsigned to) {
  if (to > cheap_threads) return 1 + least_share * (static_cast<double>(to) / from - 1);
  return from == 1 ? first_helper_gain : more_helpers_gain;
}

void measure_threads(Bench& bench, const Trial& trial, unsigned most, std::size_t bytes, SizePlan& plan) {
  const StoreKernel& kernel = usable_kernels()[plan.kernel];
  nanoseconds alone{};
  const auto time = [&](unsigned threads) {
    const nanoseconds taken = bench.time_threads(kernel, bytes, threads, false);
    if (threads == 1) alone = taken;
    return taken;
  };
  plan.threads = plan.threads_asleep = 1;
  if (trial.threads == 0) {
    plan.threads = static_cast<std::uint8_t>(threads_that_pay(most, time));
  } else if (const nanoseconds one = time(1); pays(time(most), one, first_helper_gain)) {
    plan.threads = static_cast<std::uint8_t>(most);
  }
  if (plan.threads == 1) return;
  if (pays(bench.time_threads(kernel, bytes, plan.threads, true), alone, 1.0)) plan.threads_asleep = plan.threads;
}

}  // namespace

Plans default_plans(unsigned threads) {
  const auto kernels = usable_kernels();
  const auto small = std::find_if(kernels.begin(), kernels.end(), [](const auto& k) { return k.name == "movdir64b"; });
  Plans plans;
  for (std::size_t i = 0; i < size_classes; ++i) {
    const bool is_small = i <= last_small_class && small != kernels.end();
    plans[i].kernel = static_cast<std::uint8_t>(is_small ? small - kernels.begin() : std::ssize(kernels) - 1);
    if (i >= first_default_shared_class) {
      plans[i].threads = plans[i].threads_asleep = static_cast<std::uint8_t>(std::max(threads, 1U));
    }
  }
  return plans;
}

unsigned threads_that_pay(unsigned most, const std::function<nanoseconds(unsigned)>& time) {
  unsigned best = 1;
  nanoseconds shortest = time(1);
  for (const unsigned threads : thread_counts) {
    if (threads > most) break;
    const nanoseconds taken = time(threads);
    const double gain = gain_needed(best, threads);
    if (!pays(taken, shortest, gain)) continue;
    if (threads > cheap_threads) {
      // Once more: beside a copy that was disturbed any other pays.
      shortest = std::min(shortest, time(best));
      if (!pays(taken, shortest, gain)) continue;
    }
    best = threads;
    shortest = taken;
  }
  return best;
}

Plans measure_plans(const Trial& trial, Helpers& helpers) {
  const unsigned most = helpers.count() + 1;
  Plans plans = default_plans(trial.threads != 0 ? most : 1);
  std::size_t classes = 0;
  while (classes < size_classes && class_bytes(classes) <= trial.scratch.size()) ++classes;
  if (trial.kernel >= 0) {
    for (SizePlan& plan : plans) plan.kernel = static_cast<std::uint8_t>(trial.kernel);
  }
  if (classes == 0) return plans;

  Bench bench(trial, helpers);
  const auto deadline = Clock::now() + longest_measurement;
  for (std::size_t i = 0; i < classes; ++i) {
    if (i > 0 && Clock::now() > deadline) {
      plans[i] = plans[i - 1];
      continue;
    }
    if (trial.kernel < 0) {
      // Above 1 MiB nothing changes but the time that measuring takes.
      plans[i].kernel =
          i < size_classes - 1 ? measure_kernel(bench, trial, class_bytes(i), plans[i].kernel) : plans[i - 1].kernel;
    }
    if (i >= first_shared_class && most > 1) measure_threads(bench, trial, most, class_bytes(i), plans[i]);
  }
  helpers.set_spin(nanoseconds(-1));
  // Who asked for a number of threads gets it for the largest copies, whatever the noise of a busy machine said.
  if (trial.threads != 0) {
    plans[classes - 1].threads = plans[classes - 1].threads_asleep = static_cast<std::uint8_t>(most);
  }
  for (std::size_t i = classes; i < size_classes; ++i) plans[i] = plans[classes - 1];
  return plans;
}

}  // namespace gpumap::copy
