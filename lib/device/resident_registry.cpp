// SPDX-License-Identifier: MIT
#include "device/resident_registry.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace gpumap {

Residents::Residents(std::uint32_t multiprocessors)
    : multiprocessors_(multiprocessors), watched_(std::getenv("NV_SANITIZER_INJECTION_PORT_BASE") != nullptr) {}

std::optional<Residents::Room> Residents::come(Guest& guest, std::uint32_t multiprocessors, bool shares,
                                               const std::function<bool()>& given_up, std::uint32_t priority) {
  std::unique_lock lock(mutex_);
  // The driver answers such a call within milliseconds of the last guest's leaving. One that takes longer waits for a
  // kernel that no guest runs, and may never return.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (absences_ != 0 && std::chrono::steady_clock::now() < end) {
    if (given_up && given_up()) return {};
    changed_.wait_for(lock, std::chrono::milliseconds(20));
  }
  std::erase_if(present_, [](const Present& one) { return one.leaves && one.guest->has_left(); });
  std::uint64_t all = multiprocessors;
  const bool demanded = clusters_ != 0 || (!shares && shares_ != 0);
  bool mixed = false;
  for (const Present& one : present_) {
    if (one.guest == &guest) continue;  // this one comes behind it
    all += one.multiprocessors;
    mixed = mixed || one.shares != shares;
  }
  const bool crowded = all >= multiprocessors_ || mixed || demanded;
  if (crowded) ask_all_to_leave();
  present_.push_back({&guest, multiprocessors, shares, priority});
  return demanded ? Room::demanded : crowded ? Room::crowded : Room::free;
}

void Residents::ask_all_to_leave() const noexcept {
  for (const Present& one : present_) {
    if (!one.leaves) one.guest->ask_to_leave();
  }
}

std::vector<Fence> Residents::waits_of_others(const Guest& guest) const {
  std::vector<Fence> made;
  const std::lock_guard lock(mutex_);
  for (const Present& one : present_) {
    if (one.guest != &guest) made.push_back(one.guest->waits());
  }
  return made;
}

bool Residents::is_behind_other_priorities(const Guest& guest) const {
  const std::lock_guard lock(mutex_);
  const auto own =
      std::ranges::find_if(present_, [&](const Present& one) { return one.guest == &guest && !one.leaves; });
  return own != present_.end() && std::any_of(present_.begin(), own, [&](const Present& one) {
           return one.guest != &guest && one.priority != own->priority && !(one.leaves && one.guest->has_left());
         });
}

void Residents::leave(Guest& guest) noexcept {
  const std::lock_guard lock(mutex_);
  for (Present& one : present_) one.leaves = one.leaves || one.guest == &guest;
}

void Residents::forget(Guest& guest) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(present_, [&guest](const Present& one) { return one.guest == &guest; });
}

Residents::Demand::Demand(Residents& residents, Needs needs) : residents_(residents), needs_(needs) {
  const std::lock_guard lock(residents_.mutex_);
  ++residents_.demands(needs_);
  // Those that come again know of it.
  residents_.ask_all_to_leave();
}

Residents::Demand::~Demand() {
  const std::lock_guard lock(residents_.mutex_);
  --residents_.demands(needs_);
}

Residents::Absence::Absence(Residents& residents) : residents_(residents) {
  const std::lock_guard lock(residents_.mutex_);
  ++residents_.absences_;
  residents_.ask_all_to_leave();
}

Residents::Absence::~Absence() {
  {
    const std::lock_guard lock(residents_.mutex_);
    --residents_.absences_;
  }
  residents_.changed_.notify_all();
}

}  // namespace gpumap
