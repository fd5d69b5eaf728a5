// SPDX-License-Identifier: MIT
// gpumap-latency: what happens beside the frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "gst/tools/latency/collector.hpp"

namespace latency {

/// Events of a round, the last `max_events` of them: what the bus tells, and each time that one of the process's
/// threads was taken off its CPU.
/// Thread safety: note() from any thread, the rest from one.
class Watch {
 public:
  Watch() = default;
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void note(Event::Kind kind, std::string text);
  /// Look at the threads; what those that are there had before the first look does not count. Cheap enough for every
  /// 5 ms: one read a thread from files that stay open.
  void look_at_threads();
  /// Since the last call.
  [[nodiscard]] std::vector<Event> take();
  [[nodiscard]] std::uint64_t switches() const noexcept { return switches_; }  ///< against a thread's will

 private:
  struct Thread {
    int status = -1;  ///< descriptor of /proc/self/task/<id>/status
    std::uint64_t switches = 0;
    bool seen = false;
    /// When its switches were last looked at, or a thread that began meanwhile was not there yet; 0: it was there
    /// before the first look, and what it had by then is no news.
    std::int64_t looked_ns = 0;
  };
  void find_threads();
  void add(Event event);

  static constexpr std::size_t max_events = 4096;
  std::mutex mutex_;
  std::vector<Event> events_;  ///< a ring from next_ on, once full
  std::size_t next_ = 0;
  std::map<int, Thread> threads_;
  unsigned looks_ = 0;
  std::int64_t last_search_ns_ = 0;
  std::uint64_t switches_ = 0;
};

/// Processes that keep a CPU busy each while this lives. Made before the program has threads.
class Load {
 public:
  explicit Load(unsigned processes);
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

 private:
  std::vector<int> children_;
};

/// CPU time of the process without the thread that made this, which only measures.
/// Thread safety: every member from any thread while that thread lives.
class CpuTime {
 public:
  CpuTime();
  [[nodiscard]] std::int64_t of_others_ns() const noexcept;

 private:
  clockid_t own_ = 0;
};

}  // namespace latency
