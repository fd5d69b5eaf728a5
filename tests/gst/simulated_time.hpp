// SPDX-License-Identifier: MIT
//
// Time that passes when a test says so: a second takes as long as the elements need for what is due in it, on a busy
// machine as on a quick one, and no thread is late by itself.
#pragma once

#include <gst/check/gsttestclock.h>

#include <mutex>
#include <thread>
#include <vector>

#include "pipeline.hpp"

namespace gpumap::gst::test {

using ClockPtr = Ptr<GstClock>;

/// Clocks that go together. Outlives the pipelines that play by them. Thread safety: all of it.
class SimulatedTime {
 public:
  SimulatedTime() = default;
  ~SimulatedTime() {
    if (is_default_) gst_system_clock_set_default(nullptr);
  }
  SimulatedTime(const SimulatedTime&) = delete;
  SimulatedTime& operator=(const SimulatedTime&) = delete;

  /// A clock that shows `start` when no time has passed; borrowed.
  [[nodiscard]] GstClock* clock(GstClockTime start) {
    const std::lock_guard lock(mutex_);
    clocks_.emplace_back(gst_test_clock_new_with_start_time(start + passed_));
    return clocks_.back().get();
  }
  /// While this lives, a caller that asks for GStreamer's system clock gets one of these: an alarm, a watchdog, a
  /// pipeline.
  void become_default() {
    is_default_ = true;
    gst_system_clock_set_default(clock(1'000 * GST_SECOND));
  }
  /// A thread that waits for a moment within `span` continues.
  void pass(std::chrono::nanoseconds span) {
    const auto ns = static_cast<GstClockTime>(span.count());
    const std::lock_guard lock(mutex_);
    passed_ += ns;
    for (const ClockPtr& clock : clocks_) {
      gst_test_clock_advance_time(GST_TEST_CLOCK(clock.get()), static_cast<GstClockTimeDiff>(ns));
    }
  }

 private:
  /// GstTestClock lets nobody go on by itself, not even who waits for a moment that has passed.
  void wake() {
    const std::lock_guard lock(mutex_);
    for (const ClockPtr& clock : clocks_) {
      while (const GstClockID due = gst_test_clock_process_next_clock_id(GST_TEST_CLOCK(clock.get()))) {
        gst_clock_id_unref(due);
      }
    }
  }

  std::mutex mutex_;
  std::vector<ClockPtr> clocks_;
  GstClockTime passed_ = 0;
  bool is_default_ = false;
  std::jthread waker_{[this](const std::stop_token& over) {
    for (; !over.stop_requested(); g_usleep(500)) wake();
  }};
};

inline void use(Pipeline& pipeline, GstClock* clock) {
  gst_pipeline_use_clock(GST_PIPELINE(pipeline.get()), clock);
}

}  // namespace gpumap::gst::test
