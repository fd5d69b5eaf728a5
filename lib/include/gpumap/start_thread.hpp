// SPDX-License-Identifier: MIT
#pragma once

#include <pthread.h>

#include <cstddef>
#include <system_error>
#include <thread>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/export.hpp"
#include "gpumap/thread_schedule.hpp"

namespace gpumap {

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
