// SPDX-License-Identifier: MIT
#include "own_process.hpp"

#include <pthread.h>

namespace gpumap {

constinit std::atomic<std::uint32_t> OwnProcess::forks{0};

std::uint32_t OwnProcess::watch_forks() noexcept {
  // In the child, before fork() returns there. Where there is no memory for that, children are not told apart.
  static const int watching = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(watching);
  return forks.load(std::memory_order_relaxed);
}

}  // namespace gpumap
