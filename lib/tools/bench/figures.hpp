// SPDX-License-Identifier: MIT
// What the programs that measure share: a clock, percentiles, a patient spin, files, processes beside them and the
// kernel that does nothing.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <gpumap/kernel.hpp>
#include <gpumap/latency.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace bench {

/// Something that the user can put right; the text says how.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Percentiles are by nearest rank, as those of gpumap::Histogram: the smallest time that at least that share does not
/// exceed. So P99.9 of fewer than 1,000 times is their maximum.
struct Summary {
  double median_us = 0, p90_us = 0, p99_us = 0, min_us = 0, p999_us = 0, max_us = 0;
  std::size_t count = 0;  ///< times that were summarised
  /// Each figure by that: of times that are of `parts` each, what one took.
  Summary& operator/=(double parts) noexcept;
};
/// Sorts what it is given. Throws std::runtime_error where a time is below 0: it is no time, nor are the others then.
[[nodiscard]] Summary summarise(std::vector<std::int64_t>& ns);
[[nodiscard]] nlohmann::json to_json(const Summary& summary);

/// "model name" of /proc/cpuinfo.
[[nodiscard]] std::string cpu_name();

/// A kernel that reads and writes nothing, so that what is timed is the way to it.
[[nodiscard]] gpumap::KernelSource nothing_kernel(gpumap::Backend backend);

/// Before anything is measured: throws UsageError where one of those files cannot be written, or two of them are one.
/// Leaves what is there as it is. Empty names are none.
void check_writable(const std::vector<std::string>& files);
/// Whole or not at all. Throws std::runtime_error.
void write_file(const std::string& file, std::string_view text);

/// New memory for `bytes`, all 0, in which processes meet that inherit the descriptor; that of a process before it
/// where the descriptor is not below 0. Throws std::system_error.
[[nodiscard]] void* map_shared(int& descriptor, std::size_t bytes);

/// This program once more, in a process of its own that goes with its owner. Thread safety: one thread.
class Child {
 public:
  /// `words`: its arguments, the program's name excluded. Throws std::system_error.
  explicit Child(std::vector<std::string> words);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Nothing where it has ended. SIGKILL waits for its end.
  void send(int signal);
  /// Begin it anew, once it has ended.
  void start();
  /// Whether it has ended, without send(), since it was started.
  [[nodiscard]] bool has_ended();
  /// Its status by waitpid(), once it has ended without send().
  int wait();

 private:
  std::vector<std::string> words_;
  pid_t pid_ = -1;  // -1: it has ended
};

inline std::int64_t now_ns() noexcept {
  return gpumap::monotonic_ns();
}

/// Spin until `done()`; after a millisecond let other threads run between looks, for machines with few cores.
/// False after ten seconds.
template <typename Done>
bool spin_until(Done done) {
  const std::int64_t began = now_ns();
  for (unsigned look = 1;; ++look) {
    if (done()) return true;
    __builtin_ia32_pause();
    if (look % 64 != 0) continue;
    const std::int64_t spent = now_ns() - began;
    if (spent > 10'000'000'000) return false;
    if (spent > 1'000'000) std::this_thread::yield();
  }
}

}  // namespace bench
