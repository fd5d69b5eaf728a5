// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace gpumap::gst {

/// sync=true for gpumapsink: holds each frame until its running time has come. The first frame passes at once, so that
/// what follows the gpumapsrc can preroll. Thread safety: every member from any thread.
class SinkClock {
 public:
  SinkClock() { reset(); }
  ~SinkClock();
  SinkClock(const SinkClock&) = delete;
  SinkClock& operator=(const SinkClock&) = delete;

  void reset();
  void set_segment(GstEvent* event);
  /// `element`: whose clock and base time hold while it plays.
  void set_playing(GstElement* element, bool playing);
  void set_flushing(bool flushing);  ///< wakes a waiting thread

  /// OK when the time has come, FLUSHING when it will not. While this side is paused, a frame passes at once where
  /// `prerolling()`: what follows the gpumapsrc wants frames before it can play or pause, and may want several.
  [[nodiscard]] GstFlowReturn wait_for(GstElement* element, GstBuffer* buffer, const std::function<bool()>& prerolling);

  /// When the frame's running time comes, in ns on CLOCK_MONOTONIC; 0 where it has none, while paused, and where the
  /// pipeline has another clock.
  [[nodiscard]] std::int64_t due_ns(const GstBuffer* buffer);

 private:
  void wake();

  std::mutex mutex_;
  std::condition_variable changed_;
  GstSegment segment_;
  bool playing_ = false;
  std::atomic<GstClockTime> base_{GST_CLOCK_TIME_NONE};  ///< running time 0 on CLOCK_MONOTONIC, while playing
  bool flushing_ = false;
  bool first_ = true;
  GstClockID waiting_ = nullptr;
};

}  // namespace gpumap::gst
