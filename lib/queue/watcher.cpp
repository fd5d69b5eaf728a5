// SPDX-License-Identifier: MIT
#include "queue/watcher.hpp"

#include <chrono>
#include <exception>
#include <utility>

#include "gpumap/start_thread.hpp"

namespace gpumap {
namespace {

constexpr std::chrono::hours not_soon{1};

}  // namespace

Watcher::Watcher(std::function<Clock::time_point()> look)
    : look_(std::move(look)),
      thread_(start_thread("gpumap-watcher", "what watches resident kernels", [this] { watch(); })) {}

void Watcher::wake() noexcept {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

void Watcher::stop() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  // Ends: the thread looks at ends_ after each look.
  thread_.join();
}

void Watcher::watch() noexcept try {
  for (Clock::time_point next = Clock::now() + not_soon;; next = look_()) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, next, [this] { return ends_ || woken_; });
    if (ends_) return;
    woken_ = false;
  }
} catch (const std::exception&) {
  // The device is lost: there is nothing more to look at.
}

}  // namespace gpumap
