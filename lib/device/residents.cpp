// SPDX-License-Identifier: MIT
#include "device/residents.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace gpumap {

Residents::Residents(std::uint32_t multiprocessors)
    : multiprocessors_(multiprocessors), watched_(std::getenv("NV_SANITIZER_INJECTION_PORT_BASE") != nullptr) {}

bool Residents::come(Guest& guest, std::uint32_t blocks) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return absences_ == 0; });
  const std::uint64_t all = std::accumulate(present_.begin(), present_.end(), std::uint64_t{blocks},
                                            [](std::uint64_t sum, const Present& one) { return sum + one.blocks; });
  const bool crowded = blocks != 0 && all >= multiprocessors_;
  if (crowded) {
    for (const Present& one : present_) {
      if (one.blocks != 0) one.guest->ask_to_leave();
    }
  }
  present_.push_back({&guest, blocks});
  return crowded;
}

void Residents::leave(Guest& guest) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(present_, [&guest](const Present& one) { return one.guest == &guest; });
}

Residents::Absence::Absence(Residents& residents) : residents_(residents) {
  const std::lock_guard lock(residents_.mutex_);
  ++residents_.absences_;
  for (const Present& one : residents_.present_) one.guest->ask_to_leave();
}

Residents::Absence::~Absence() {
  {
    const std::lock_guard lock(residents_.mutex_);
    --residents_.absences_;
  }
  residents_.changed_.notify_all();
}

}  // namespace gpumap
