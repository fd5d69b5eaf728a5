// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>
#include <vector>

#include "gpumap/export.hpp"
#include "gpumap/figured_error.hpp"

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

}  // namespace gpumap
