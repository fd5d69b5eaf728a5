// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "gpumap/fence.hpp"

namespace gpumap {

/// A thread that looks at something again and again: when it is woken, and at the time that its last look named.
/// Thread safety: every member, but stop() in one thread.
class Watcher {
 public:
  /// `look` is called by the thread, which ends when it throws. The first time is after wake().
  explicit Watcher(std::function<Clock::time_point()> look);
  ~Watcher() { stop(); }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Look soon. Once for several of these that come before it.
  void wake() noexcept;
  /// Returns when the last look has ended.
  void stop() noexcept;

 private:
  void watch() noexcept;

  const std::function<Clock::time_point()> look_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace gpumap
