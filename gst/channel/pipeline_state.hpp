// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <chrono>
#include <functional>
#include <string>

namespace gpumap::gst {

// What an element learns from the bins that it is in. From any thread.

/// It, or a bin around it, is on its way below PAUSED.
[[nodiscard]] bool is_stopping(GstElement* element);
/// It, or a bin around it, is on its way to another state: before all, a bin whose sinks wait for a frame to preroll.
[[nodiscard]] bool is_changing_state(GstElement* element);
/// The same, but for the way to PLAYING, which needs no frames: its sinks have theirs.
[[nodiscard]] bool is_prerolling(GstElement* element);
/// The pipeline around it is in PLAYING, though it may be on its way to another state, and the element there before it:
/// the base time holds still, and the time at which the pipeline stopped is not written down yet.
[[nodiscard]] bool is_in_playing(GstElement* element);
/// The bin around all bins, which is its pipeline; transfer full.
[[nodiscard]] GstElement* top_level(GstElement* element);
/// For people; empty for null. Takes `element`. It takes the locks of objects, whose holders may wait for a channel's.
[[nodiscard]] std::string path_of(GstElement* element);
[[nodiscard]] bool same_pipeline(GstElement* one, GstElement* other);

/// Whether the event that this thread is handling for `one` came from a bin around both, which gave it to all its
/// sources or sinks: that bin keeps the event meanwhile, and its state lock. (A language binding keeps it, too.)
/// Another thread may have that lock, to change the state: with `patience` it is given time to let go.
[[nodiscard]] bool is_sent_to_both(GstEvent* event, GstElement* one, GstElement* other,
                                   std::chrono::milliseconds patience = {});

/// Holds back changes of state of the pipeline around an element, while it lives. A flush takes sinks out of PLAYING; a
/// bin that is on its own way from PAUSED to PLAYING in that moment does not notice, and leaves them in PAUSED for
/// ever. gst_element_send_event() holds the same lock, of the element that it is given. Where a change of state is
/// under way its end is waited for, for two seconds at most and until `given_up()`; then nothing is held. The way below
/// PAUSED is not waited for at all: it waits for streaming threads, of which the caller may be one. See stops().
class StateHold {
 public:
  explicit StateHold(GstElement* element, const std::function<bool()>& given_up = {});
  ~StateHold();
  StateHold(const StateHold&) = delete;
  StateHold& operator=(const StateHold&) = delete;

  /// Nothing is held, for the pipeline was on its way below PAUSED. It may be back by now.
  [[nodiscard]] bool stops() const noexcept { return stops_; }

 private:
  GstElement* top_;
  bool held_ = false, stops_ = false;
};

}  // namespace gpumap::gst
