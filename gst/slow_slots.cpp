// SPDX-License-Identifier: MIT
#include "slow_slots.hpp"

namespace gpumap::gst {

namespace {

// The CPU reads the BAR at 8 MB/s (measured on an H100), so an upstream that reads an eighth of what it writes fills a
// slot at less than 64 MB/s. Few elements work that slowly by themselves; those pay for one try in host memory.
constexpr double suspicious_ns_per_byte = 1000.0 / 64;
constexpr double much_faster = 4;
// Below this a context switch weighs more than the stores.
constexpr std::size_t least_bytes = std::size_t{64} * 1024;

double rate(std::size_t bytes, SlowSlots::Duration took) {
  return static_cast<double>(took.count()) / static_cast<double>(bytes);
}

}  // namespace

bool SlowSlots::wants_host() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::trying_host || state_ == State::upstream_reads;
}

bool SlowSlots::filled_slot(std::size_t bytes, Duration took) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::watching || bytes < least_bytes || rate(bytes, took) < suspicious_ns_per_byte) return false;
  slow_ns_per_byte_ = rate(bytes, took);
  state_ = State::trying_host;
  return false;
}

bool SlowSlots::filled_host(std::size_t bytes, Duration took) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::trying_host || bytes < least_bytes) return false;
  const bool reads = rate(bytes, took) * much_faster < slow_ns_per_byte_;
  state_ = reads ? State::upstream_reads : State::slots_are_fine;
  return reads;
}

void SlowSlots::reset() {
  const std::lock_guard lock(mutex_);
  state_ = State::watching;
}

}  // namespace gpumap::gst
