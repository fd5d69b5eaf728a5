// SPDX-License-Identifier: MIT
#include "gst/tools/latency/gate.hpp"

#include <thread>

namespace latency {

void Gate::arrived() {
  count_.fetch_add(1, std::memory_order_acq_rel);
  if (spin_) return;
  { const std::lock_guard lock(mutex_); }  // or a waiter between its look and its sleep would miss it
  changed_.notify_one();
}

void Gate::wait_for(std::uint64_t count) {
  if (this->count() >= count) return;
  if (!spin_) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return this->count() >= count || stopped(); });
    return;
  }
  constexpr unsigned looks_before_yield = 4096;
  for (unsigned look = 1; this->count() < count && !stopped(); ++look) {
    if (look % looks_before_yield == 0) std::this_thread::yield();
  }
}

void Gate::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

}  // namespace latency
