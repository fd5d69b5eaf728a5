// SPDX-License-Identifier: MIT
#include "gpumap/slot_copier.hpp"

#include <string>
#include <utility>

namespace gpumap {

void SlotCopier::start(unsigned threads, ThreadSchedule schedule) {
  stop();
  const std::lock_guard lock(mutex_);
  threads_ = threads;
  schedule_ = std::move(schedule);
  last_ = {"", 0};
}

void SlotCopier::stop() {
  const std::lock_guard lock(mutex_);
  copier_.reset();
  measured_bytes_ = 0;
  measured_transport_.reset();
}

void SlotCopier::prepare(const WriteLease& slot, bool whole) {
  const Ring& ring = *slot.ring();
  const DeviceInfo& device = ring.device()->info();
  if (!copier_) {
    CopierOptions options;
    options.threads = threads_;
    options.pci_address = device.pci_address;
    const StartedWith started(schedule_);
    copier_ = std::make_unique<Copier>(options);
  }
  if (!whole || (measured_transport_ == ring.transport() && slot.bytes() <= measured_bytes_)) return;
  copier_->calibrate({slot.host(), slot.bytes()},
                     to_string(device.uuid) + ' ' + std::string(to_string(ring.transport())),
                     ring.transport() == Transport::bar && !device.software);
  measured_transport_ = ring.transport();
  measured_bytes_ = slot.bytes();
}

void SlotCopier::copy(const WriteLease& slot, std::size_t at, std::span<const std::byte> from) {
  const std::lock_guard lock(mutex_);
  prepare(slot, at == 0);
  copier_->copy({slot.host(), slot.bytes()}, at, from);
  last_ = copier_->plan_for(from.size());
}

Copier::Plan SlotCopier::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

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
