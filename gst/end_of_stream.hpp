// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <mutex>

namespace gpumap::gst {

/// When a sink tells its bin that the stream has ended: while it plays, and again each time that it comes to play, for
/// a bin forgets on its way to PAUSED. Thread safety: every member from any thread.
class EndOfStream {
 public:
  /// The event has come to `element`.
  void reached(GstElement* element, GstEvent* event);
  /// `element` begins or ceases to play.
  void set_playing(GstElement* element, bool playing);
  /// There is more to come.
  void clear();
  [[nodiscard]] bool is_reached() const noexcept { return reached_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;  ///< so that of an event and a change of state at the same time one sees the other
  std::atomic<bool> reached_{false};
  bool playing_ = false;
  guint32 seqnum_ = 0;
};

}  // namespace gpumap::gst
