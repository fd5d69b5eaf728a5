// SPDX-License-Identifier: MIT
#pragma once

#include <gst/base/gstbasesink.h>
#include <gst/gst.h>

#include <atomic>
#include <functional>

namespace gpumap::gst {

/// What GstBaseSink cannot know: while it is paused, what follows the gpumapsrc may need frames before it can preroll
/// (an encoder wants fifty), and in one pipeline nobody else can bring them. GstBaseSink blocks upstream with the first
/// frame; so its waiting is done here instead, and ends for a frame that is wanted over there, too.
///
/// GstBaseSink keeps everything else: the state and its messages, the clock, QoS, the position. Its fields
/// `need_preroll`, `have_preroll` and `playing_async` are the subclass's to write under GST_BASE_SINK_PREROLL_LOCK,
/// which every member asks for but those that say otherwise.
class SinkPreroll {
 public:
  enum class Verdict {
    plays,     ///< go on with the frame
    wanted,    ///< paused, but what follows the gpumapsrc wants the frame
    flushing,  ///< drop it
  };

  explicit SinkPreroll(GstBaseSink* sink) : sink_(sink) {}

  [[nodiscard]] bool plays();
  /// The same without the lock, of what was known last.
  [[nodiscard]] bool is_paused() const noexcept { return !playing_.load(std::memory_order_relaxed); }
  /// A frame of this stream has been here since the start or the last flush: the sink is prerolled.
  [[nodiscard]] bool is_done() const noexcept { return done_; }
  /// In the preroll() of the class: let GstBaseSink commit its state, but not wait.
  void finish();
  /// Wait, with the lock released meanwhile, for one of the three. `wanted()` is asked every 20 ms while paused.
  [[nodiscard]] Verdict wait(const std::function<bool()>& wanted);
  /// Let go of the lock for a moment: something else is waited for. Never `wanted`.
  [[nodiscard]] Verdict wait_a_while();
  /// GstBaseSink waits by itself for the event that comes next (EOS), if it is not playing.
  void leave_to_base();

  /// State changes and flushes; they take the lock. Before GstBaseSink's own change of state.
  void set_playing(bool playing);
  void restart();
  /// After GstBaseSink's change to PAUSED: a frame that waits for the clock comes to preroll() again.
  void hold();

 private:
  GstBaseSink* sink_;
  std::atomic<bool> playing_{false};
  bool done_ = false;
  bool was_wanted_ = false;  ///< the last frame that waited
};

}  // namespace gpumap::gst
