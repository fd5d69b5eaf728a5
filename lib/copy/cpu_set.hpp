// SPDX-License-Identifier: MIT
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string_view>
#include <vector>

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

}  // namespace gpumap::copy
