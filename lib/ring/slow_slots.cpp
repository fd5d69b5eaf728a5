// SPDX-License-Identifier: MIT
#include "gpumap/slow_slots.hpp"

namespace gpumap {

namespace {

// The CPU reads the BAR at 8 MB/s (measured on an H100), so an upstream that reads an eighth of what it writes fills a
// slot at less than 64 MB/s. Few elements work that slowly by themselves; those pay for one try in host memory.
constexpr double suspicious_ns_per_byte = 1000.0 / 64;
constexpr double much_faster = 4;

}  // namespace

SlowSlots::Next SlowSlots::next(std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  switch (state_) {
    case State::timing_slot:
      return Next::timed_slot;
    case State::timing_host:
      return tells(bytes) ? Next::host : Next::slot;
    case State::upstream_reads:
      return Next::host;
    default:
      return Next::slot;
  }
}

bool SlowSlots::times_host(std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return state_ == State::timing_host && tells(bytes);
}

bool SlowSlots::filled(Next where, std::size_t bytes, Duration took) {
  if (!tells(bytes)) return false;
  const std::lock_guard lock(mutex_);
  const double ns_per_byte = static_cast<double>(took.count()) / static_cast<double>(bytes);
  const bool suspicious = ns_per_byte > suspicious_ns_per_byte;
  if (state_ == State::watching && where == Next::slot && suspicious) {
    state_ = State::timing_slot;
  } else if (state_ == State::timing_slot && where == Next::timed_slot) {
    slot_ns_per_byte_ = ns_per_byte;
    state_ = suspicious ? State::timing_host : State::watching;
  } else if (state_ == State::timing_host && where == Next::host) {
    const bool reads = ns_per_byte * much_faster < slot_ns_per_byte_;
    state_ = reads ? State::upstream_reads : State::slots_are_fine;
    return reads;
  }
  return false;
}

void SlowSlots::reset() {
  const std::lock_guard lock(mutex_);
  state_ = State::watching;
}

}  // namespace gpumap
