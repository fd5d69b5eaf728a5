// SPDX-License-Identifier: MIT
#include "ring/bell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace gpumap::ring {
namespace {

std::atomic<std::uint64_t> calls{0};

}  // namespace

std::uint64_t futex_calls() noexcept {
  return calls.load(std::memory_order_relaxed);
}

void wake_sleepers(Bell& bell) noexcept {
  if (bell.sleepers.exchange(static_cast<std::uint32_t>(Sleepers::none)) ==
      static_cast<std::uint32_t>(Sleepers::none)) {
    return;
  }
  wake_all(bell);
}

void wake_all(Bell& bell) noexcept {
  bell.rung.fetch_add(1);
  calls.fetch_add(1, std::memory_order_relaxed);
  syscall(SYS_futex, &bell.rung, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void sleep_on(Bell& bell, std::uint32_t seen, Deadline deadline) noexcept {
  const auto ns = std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count());
  const timespec until{.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
                       .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
  calls.fetch_add(1, std::memory_order_relaxed);
  // WAIT_BITSET takes an absolute CLOCK_MONOTONIC time: nothing to recompute after an early return, so no drift.
  // Every failure (EAGAIN, EINTR, ETIMEDOUT) is a reason to look again, which the caller does.
  syscall(SYS_futex, &bell.rung, FUTEX_WAIT_BITSET, seen, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

}  // namespace gpumap::ring
