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

}  // namespace gpumap
