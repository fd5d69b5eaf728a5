// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>

#include "gst/channel/channel.hpp"

namespace gpumap::gst {

/// Two pipelines have two base times, and perhaps two clocks: what is due at a moment there is due at that moment here.
/// Keeps what is to be added to the running time of the gpumapsink's pipeline for that of the gpumapsrc's.
/// Thread safety: value() from any thread, the rest in the streaming thread.
class TimeShift {
 public:
  /// `src`: the gpumapsrc, which owns this.
  explicit TimeShift(GstElement* src) : src_(src) {}

  void reset();
  /// A flush resets the running time of the gpumapsink's pipeline. From any thread, before a frame comes behind it.
  void begin_anew_there(const Channel& channel);
  /// Look at both base times (and, once a second, at two clocks), which pauses, flushes and late starts change. True
  /// where the value has changed. `anew`: a segment begins, whose first frame may be due at another moment.
  [[nodiscard]] bool update(const Channel& channel, bool anew);
  [[nodiscard]] GstClockTimeDiff value() const noexcept { return shift_; }

 private:
  [[nodiscard]] GstClockTimeDiff compute(const Channel& channel);
  [[nodiscard]] GstClockTimeDiff compute_from(const Channel& channel, const Channel::FarTime& there);

  GstElement* src_;
  std::atomic<GstClockTimeDiff> shift_{0};
  Channel::SinkTime there_;
  GstClockTime here_ = GST_CLOCK_TIME_NONE;
  bool playing_ = false;
  bool estimated_ = false;  ///< a side was not playing yet
  bool two_clocks_ = false;
  gint64 looked_at_us_ = 0;  ///< of two clocks
  /// Of the gpumapsink's pipeline, which has it until it plays again.
  std::atomic<GstClockTime> ended_base_{GST_CLOCK_TIME_NONE};
};

}  // namespace gpumap::gst
