// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "gpumap/fence.hpp"
#include "gpumap/ring.hpp"
#include "ring/control_block.hpp"

namespace gpumap::ring {

/// Sleeping and waking without a lost wake-up, and without a system call while nobody sleeps.
///
///     sleeper                                waker
///     1. seen = rung                         a. make the condition true (a frame, a slot, a flag)
///     2. sleepers = some                     b. sleepers is none: done, no system call
///     3. condition true: return              c. sleepers: exchange some -> none, only the one who gets `some` goes on
///     4. futex wait while rung == seen       d. rung += 1
///     5. back to 1                           e. futex wake, all of them
///
/// All of these are seq_cst, so they lie in one order. If b comes before 2, then a comes before 3 and the sleeper sees
/// the condition. If b comes after 2, somebody exchanges after 2, hence after 1, and adds to `rung` later still: the
/// wait at 4 either sees another value and returns or is already queued when e wakes it. A waker that loses the
/// exchange at c leaves the waking to the winner, and the sleeper's next 2 comes after that c, so its 3 sees this a.
///
/// A waker that dies between c and e, or one that lies, leaves a sleeper whom no later waker sees: no sleep lasts
/// longer than longest_sleep, and then the sleeper begins at 1 again.
///
/// A word instead of a count of sleepers: a process killed in its sleep would leave a count above zero for ever, and
/// every later publish would make a system call for the dead. The word heals with the first of them. Waking all is what
/// makes one word enough; with several threads on a side, those that find nothing sleep again.
///
/// The futex is not PRIVATE: another process may wait on it.

/// System calls made by bells of this process, ever. For tests and benchmarks.
[[nodiscard]] std::uint64_t futex_calls() noexcept;

/// What a waker that died costs, beside one look each time.
inline constexpr std::chrono::nanoseconds longest_sleep = std::chrono::milliseconds(100);

void wake_sleepers(Bell& bell) noexcept;
/// Wake them whatever the bell's words say, at the price of a system call: for commands, not for frames.
void wake_all(Bell& bell) noexcept;
/// Until `rung` differs from `seen`, a wake, the deadline, or for no reason.
void sleep_on(Bell& bell, std::uint32_t seen, Deadline deadline) noexcept;

/// Call after the condition became true by a seq_cst operation.
inline void sound(Bell& bell) noexcept {
  if (bell.sleepers.load() != static_cast<std::uint32_t>(Sleepers::none)) [[unlikely]]
    wake_sleepers(bell);
}

inline void relax_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

/// Ask `attempt` (giving optional<RingStatus>) until it answers: spinning for `spin`, then asleep on `bell`.
/// `slice` tells for how long one sleep may last at most, if not for longest_sleep; zero: for that long. `waits` counts
/// calls that slept.
template <typename Attempt, typename Slice>
RingStatus wait_on(Bell& bell, Deadline deadline, std::chrono::nanoseconds spin, std::atomic<std::uint64_t>& waits,
                   Attempt&& attempt, Slice&& slice) {
  if (const std::optional<RingStatus> status = attempt()) return *status;
  // Deadline{} is one look, and costs no look at the clock.
  if (deadline == Deadline{} || (deadline != no_deadline && deadline <= Clock::now())) return RingStatus::timeout;

  if (spin.count() > 0) {
    Deadline end{};
    do {
      for (int turn = 0; turn < 64; ++turn) {
        relax_cpu();
        if (const std::optional<RingStatus> status = attempt()) return *status;
      }
      const Deadline now = Clock::now();
      if (end == Deadline{}) end = std::min(deadline, now + spin);
      if (now >= end) break;
    } while (true);
  }

  for (bool counted = false;;) {
    const std::uint32_t seen = bell.rung.load();
    bell.sleepers.store(static_cast<std::uint32_t>(Sleepers::some));
    if (const std::optional<RingStatus> status = attempt()) return *status;
    const std::chrono::nanoseconds at_most = slice();
    const Deadline now = Clock::now();
    if (deadline <= now) return RingStatus::timeout;
    const Deadline until = std::min(deadline, now + (at_most.count() > 0 ? at_most : longest_sleep));
    if (!counted) waits.fetch_add(1, std::memory_order_relaxed);
    counted = true;
    sleep_on(bell, seen, until);
  }
}

}  // namespace gpumap::ring
