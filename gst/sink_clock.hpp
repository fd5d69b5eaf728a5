// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <condition_variable>
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
  void set_playing(bool playing);
  void set_flushing(bool flushing);  ///< wakes a waiting thread

  /// OK when the time has come, FLUSHING when it will not. While this side is paused, a frame passes at once where
  /// `prerolling()`: what follows the gpumapsrc wants frames before it can play or pause, and may want several.
  [[nodiscard]] GstFlowReturn wait_for(GstElement* element, GstBuffer* buffer, const std::function<bool()>& prerolling);

 private:
  void wake();

  std::mutex mutex_;
  std::condition_variable changed_;
  GstSegment segment_;
  bool playing_ = false;
  bool flushing_ = false;
  bool first_ = true;
  GstClockID waiting_ = nullptr;
};

}  // namespace gpumap::gst
