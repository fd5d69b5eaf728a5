// SPDX-License-Identifier: MIT
#pragma once

#include <pthread.h>

#include <cstddef>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gpumap/export.hpp"

namespace gpumap {

/// How the scheduler treats a thread.
struct ThreadSchedule {
  unsigned priority = 0;         ///< real-time: SCHED_FIFO, 1 to 99; 0: as the thread that starts it
  std::vector<unsigned> cpus{};  ///< where it may run; empty: as the thread that starts it
  [[nodiscard]] bool changes() const noexcept { return priority != 0 || !cpus.empty(); }
};
inline constexpr unsigned max_thread_priority = 99;

/// CPUs in ascending order, of a list such as "2-3,5". Empty: none. Throws Error(invalid).
[[nodiscard]] GPUMAP_API std::vector<unsigned> cpus_of(std::string_view list);

/// RAII: threads that gpumap starts from the calling thread have this schedule, which outlives it. A driver's do not.
class GPUMAP_API StartedWith {
 public:
  explicit StartedWith(const ThreadSchedule& schedule) noexcept;
  ~StartedWith();
  StartedWith(const StartedWith&) = delete;
  StartedWith& operator=(const StartedWith&) = delete;

 private:
  const ThreadSchedule* before_;
};
/// What the calling thread's StartedWith says.
[[nodiscard]] GPUMAP_API ThreadSchedule schedule_of_started();

/// RAII: the calling thread has this schedule, and so have threads that gpumap starts from it; afterwards it has its
/// own again. Others that it starts have its CPUs and an ordinary priority. What the system refuses is left as it is:
/// see refused_to_threads(). One thread makes and destroys it.
class GPUMAP_API Scheduled {
 public:
  explicit Scheduled(ThreadSchedule schedule) noexcept;
  ~Scheduled();
  Scheduled(const Scheduled&) = delete;
  Scheduled& operator=(const Scheduled&) = delete;

 private:
  const ThreadSchedule wanted_;
  const StartedWith started_;
  bool raised_ = false;
  int policy_ = 0, priority_ = 0;  ///< before
  std::vector<unsigned> cpus_;     ///< before; empty: unchanged
};

/// What the system would refuse to a thread of this process, each with its remedy; it is tried in one that ends. Throws
/// no_thread().
[[nodiscard]] GPUMAP_API std::vector<FiguredError> refused_to_threads(const ThreadSchedule& wanted);

/// Error(no_resources): the system refused a thread for `purpose`, as in "the link's server".
[[nodiscard]] GPUMAP_API Error no_thread(const char* purpose, const std::error_code& cause);

/// As std::thread, whose error says "Resource temporarily unavailable" and nothing else. `name`, a literal, is what
/// top, perf and debuggers show. The thread has `schedule` as far as the system allows it, see refused_to_threads().
/// Throws no_thread().
template <std::size_t size, typename Run>
[[nodiscard]] std::thread start_thread(const char (&name)[size], const char* purpose, Run&& run,
                                       ThreadSchedule schedule = schedule_of_started()) {
  static_assert(size <= 16, "the kernel keeps 15 characters of a thread's name");
  try {
    return std::thread([shown = &name[0], run = std::forward<Run>(run), schedule = std::move(schedule)]() mutable {
      pthread_setname_np(pthread_self(), shown);
      const Scheduled scheduled(std::move(schedule));
      run();
    });
  } catch (const std::system_error& error) {
    throw no_thread(purpose, error.code());
  }
}

}  // namespace gpumap
