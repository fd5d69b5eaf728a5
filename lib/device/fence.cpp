// SPDX-License-Identifier: MIT
#include "gpumap/fence.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace gpumap {
namespace {

using std::chrono::microseconds;

constexpr microseconds first_sleep{20};
constexpr microseconds longest_sleep{200};
constexpr microseconds check_interval{1000};

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

WaitResult Fence::wait_for(std::chrono::nanoseconds longest, std::chrono::nanoseconds spin) const {
  const std::atomic<bool> never{false};
  const auto now = Clock::now();
  // Without running over: the longest of all times is 292 years.
  return wait(never, longest < Deadline::max() - now ? now + longest : no_deadline, spin);
}

WaitResult Fence::wait(const std::atomic<bool>& cancel, Deadline deadline, std::chrono::nanoseconds spin) const {
  if (signalled()) return WaitResult::ready;
  const auto start = Clock::now();
  auto now = start;
  for (; now - start < spin && now < deadline; now = Clock::now()) {
    if (signalled()) return WaitResult::ready;
    if (cancel.load(std::memory_order_acquire)) return WaitResult::cancelled;
    relax();
  }

  // A fault never signals, so ask the driver now and then; the answer costs too much to ask each time.
  auto next_check = now;
  auto sleep = std::chrono::nanoseconds(first_sleep);
  // Ends: by `cancel` and the deadline.
  while (!signalled()) {
    if (cancel.load(std::memory_order_acquire)) return WaitResult::cancelled;
    if (now >= deadline) return WaitResult::timeout;
    if (now >= next_check) {
      timeline_->check();
      next_check = now + check_interval;
    }
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(sleep, deadline - now));
    sleep = std::min<std::chrono::nanoseconds>(sleep * 2, longest_sleep);
    now = Clock::now();
  }
  return WaitResult::ready;
}

void Fence::give_up(const std::string& work) const noexcept {
  try {
    if (timeline_) timeline_->give_up(*this, work);
  } catch (const std::exception&) {
    // The device is lost, or there is no memory to write it down.
  }
}

namespace {

struct Kept {
  std::mutex mutex;
  std::vector<std::shared_ptr<const void>> things;
};

Kept& kept() {
  // Never destroyed, but reachable: leak checkers see that it is meant.
  static auto* const made = new Kept;
  return *made;
}

}  // namespace

void keep_for_good(std::shared_ptr<const void> what) {
  if (!what) return;
  const std::lock_guard lock(kept().mutex);
  kept().things.push_back(std::move(what));
}

std::size_t kept_for_good() noexcept {
  const std::lock_guard lock(kept().mutex);
  return kept().things.size();
}

}  // namespace gpumap
