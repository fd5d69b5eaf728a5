// SPDX-License-Identifier: MIT
#pragma once

#include <gst/base/gstbasesink.h>
#include <gst/gst.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "gst/sink/core.hpp"

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
  /// If it is not playing, GstBaseSink waits in the event that comes next (EOS).
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

/// A frame's way through a gpumapsink: from the pad's chain function through GstBaseSink, which waits for its time, to
/// the channel, paused or playing. Thread safety: the streaming thread's, but where it says otherwise.
class SinkFrames {
 public:
  SinkFrames(GstBaseSink* sink, SinkCore& core) : sink_(sink), core_(core), preroll_(sink) {}

  [[nodiscard]] SinkPreroll& preroll() noexcept { return preroll_; }
  /// In the pad's chain function; `base_chain` is GstBaseSink's. Takes `buffer`.
  [[nodiscard]] GstFlowReturn chain(GstPad* pad, GstBuffer* buffer, GstPadChainFunction base_chain);
  /// In the class's functions of these names, under the lock of the preroll.
  [[nodiscard]] GstFlowReturn preroll(GstBuffer* buffer);
  [[nodiscard]] GstFlowReturn render(GstBuffer* buffer);
  /// A stream that begins with a GAP: GstBaseSink would hold that one until the sink plays, and the frames behind it,
  /// which what follows the src may need to preroll. Under the lock of the preroll.
  void preroll_with_nothing();
  /// Whether what follows the src waits for a frame, to change its state, and none is on its way; or will take no more,
  /// which upstream is to hear. From any thread.
  [[nodiscard]] bool src_prerolls() const;
  /// A start: nothing was dropped yet.
  void begin() noexcept { told_drops_ = 0; }
  /// Running time 0 on CLOCK_MONOTONIC, while playing; none where the pipeline has another clock. From any thread.
  void set_base_time(GstClockTime base) noexcept { base_ = base; }

 private:
  [[nodiscard]] std::optional<GstFlowReturn> send(GstBuffer* buffer, SinkCore::Patience patience,
                                                  const std::function<bool()>& stopped);
  [[nodiscard]] std::optional<GstFlowReturn> send_waiting(GstBuffer* buffer, const std::function<bool()>& stopped);
  [[nodiscard]] bool send_at_once(GstBuffer* buffer);
  void tell_of_drops(GstBuffer* buffer, std::uint64_t drops);

  GstBaseSink* sink_;
  SinkCore& core_;
  SinkPreroll preroll_;
  GstBuffer* sent_ = nullptr;  ///< in preroll(), and not rendered yet; for comparing only, as the next two
  GstFlowReturn sent_flow_ = GST_FLOW_OK;
  GstBuffer* again_ = nullptr;    ///< that was given back to GstBaseSink once
  GstBuffer* nothing_ = nullptr;  ///< in preroll(), in place of a frame
  bool rendered_ = false;
  std::uint64_t told_drops_ = 0;  ///< of which the bus has heard
  std::atomic<GstClockTime> base_{GST_CLOCK_TIME_NONE};
};

}  // namespace gpumap::gst
