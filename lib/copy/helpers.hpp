// SPDX-License-Identifier: MIT
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "copy/store_kernel.hpp"
#include "gpumap/thread_schedule.hpp"

namespace gpumap::copy {

/// CPUs by their number, any number of them: a cpu_set_t ends at 1,024.
class CpuSet {
 public:
  /// Linux is built for 8,192 at most. What lies beyond is passed over.
  static constexpr unsigned max_cpus = 65536;

  /// None, with room for so many; grows as needed.
  explicit CpuSet(unsigned room = CPU_SETSIZE) : words_((room + word_bits - 1) / word_bits) {}

  void add(unsigned cpu) {
    if (cpu >= max_cpus) return;
    if (cpu / word_bits >= words_.size()) words_.resize(cpu / word_bits + 1);
    words_[cpu / word_bits] |= 1UL << cpu % word_bits;
  }
  [[nodiscard]] bool has(unsigned cpu) const noexcept {
    return cpu / word_bits < words_.size() && (words_[cpu / word_bits] >> cpu % word_bits & 1) != 0;
  }
  [[nodiscard]] unsigned count() const noexcept {
    unsigned sum = 0;
    for (const unsigned long word : words_) sum += static_cast<unsigned>(std::popcount(word));
    return sum;
  }
  /// In ascending order.
  [[nodiscard]] std::vector<unsigned> numbers() const {
    std::vector<unsigned> found;
    for (unsigned cpu = 0; cpu < words_.size() * word_bits; ++cpu) {
      if (has(cpu)) found.push_back(cpu);
    }
    return found;
  }
  /// Those that are in both.
  [[nodiscard]] CpuSet operator&(const CpuSet& other) const {
    CpuSet both(*this);
    both.words_.resize(std::min(words_.size(), other.words_.size()));
    for (std::size_t i = 0; i < both.words_.size(); ++i) both.words_[i] &= other.words_[i];
    return both;
  }

  // For system calls, which take sets of any size.
  [[nodiscard]] std::size_t bytes() const noexcept { return words_.size() * sizeof(unsigned long); }
  [[nodiscard]] cpu_set_t* native() noexcept { return reinterpret_cast<cpu_set_t*>(words_.data()); }
  [[nodiscard]] const cpu_set_t* native() const noexcept { return reinterpret_cast<const cpu_set_t*>(words_.data()); }

 private:
  static constexpr unsigned word_bits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> words_;
};

/// "0-3,8,10-11", as sysfs writes it; what is not a CPU number is passed over.
[[nodiscard]] CpuSet parse_cpu_list(std::string_view text);
/// sched_getaffinity(), or what tests put in its place.
using GetAffinity = int (*)(pid_t thread, std::size_t bytes, cpu_set_t* cpus);
/// The CPUs that this thread may use; none where the system does not tell.
[[nodiscard]] CpuSet allowed_cpus(GetAffinity get = &sched_getaffinity);
/// The CPUs on which helpers should run: those of the NUMA node of the PCI device that this thread may use, or all that
/// it may use where the device has no node, or none of its CPUs is allowed.
[[nodiscard]] CpuSet helper_cpus(std::string_view pci_address);

/// One copy, cut into chunks that begin at a page of the destination.
struct Job {
  decltype(StoreKernel::copy) copy = nullptr;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
  std::size_t first = 0;  ///< bytes of the first chunk
  std::size_t step = 0;   ///< bytes of the others
  std::uint32_t chunks = 1;

  /// Cut for that many threads.
  void cut(unsigned threads);
  void copy_chunk(std::uint32_t index) const;
};

/// Copies that follow each other within this, after one that took `copy`, are a flow: helpers spin for the next one.
/// Four times as long, for behind a short copy there is little to be gained; 100 us at most.
[[nodiscard]] std::chrono::nanoseconds longest_gap(std::chrono::nanoseconds copy) noexcept;

/// Threads that take chunks of a job off the caller's hands.
///
///     caller                                      helper
///     1. writes job_, done_ = 0                   a. sees its call rise, or slept on it
///     2. left_ = chunks, raises each call         b. takes a chunk: left_ -= 1, until it is 0
///     3. takes chunks itself until left_ is 0     c. reads job_, copies
///     4. waits until helpers' done_ makes up      d. fences, done_ += the chunks it took
///        the sum
/// A helper that comes late finds left_ at 0 and touches nothing: the caller waits for chunks, never for threads. One
/// that comes later still, in b of the next job, helps with that: job_ is read only once a chunk is taken, and it does
/// not change before that chunk is done.
class Helpers {
 public:
  /// As many as the system lets start.
  Helpers(unsigned count, const ThreadSchedule& schedule);
  ~Helpers();
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  [[nodiscard]] unsigned count() const noexcept { return static_cast<unsigned>(crew_.size()); }
  /// Whether the first `helpers` are up, so that calling them costs no system call.
  [[nodiscard]] bool awake(unsigned helpers) const noexcept;
  /// Whether the last copy ended so shortly ago that helpers pay even if they must be woken.
  [[nodiscard]] bool in_flow() const noexcept;
  /// A copy that began then has ended.
  void note_end(std::chrono::steady_clock::time_point began) noexcept {
    last_end_ = std::chrono::steady_clock::now();
    last_took_ = last_end_ - began;
  }
  /// Copy with the first `helpers`. One caller at a time. Their stores are fenced once it returns.
  void run(const Job& job, unsigned helpers);
  /// Spin after each copy for as long as this, whatever lies between the copies; negative: as usual.
  void set_spin(std::chrono::nanoseconds spin) noexcept { fixed_spin_ns_ = spin.count(); }

 private:
  struct alignas(64) Helper {
    std::atomic<std::uint32_t> call{0};
    std::atomic<bool> asleep{false};
    std::thread thread;
  };

  void help(Helper& self);
  void await_call(Helper& self, std::uint32_t seen) const;
  /// Copy chunks until none is left; how many that were.
  std::uint32_t copy_chunks();
  void plan_spin(std::chrono::steady_clock::time_point now) noexcept;

  std::vector<std::unique_ptr<Helper>> crew_;
  Job job_;
  alignas(64) std::atomic<std::uint32_t> left_{0};
  alignas(64) std::atomic<std::uint32_t> done_{0};
  alignas(64) std::atomic<std::int64_t> spin_ns_{0};
  std::atomic<bool> stop_{false};
  std::int64_t fixed_spin_ns_ = -1;
  std::chrono::steady_clock::time_point last_end_;
  std::chrono::nanoseconds last_took_{0};
};

}  // namespace gpumap::copy
