// SPDX-License-Identifier: MIT
#pragma once

#include <gst/base/gstbasesink.h>
#include <gst/gst.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "gst/sink/core.hpp"
#include "gst/sink/preroll.hpp"

namespace gpumap::gst {

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
