// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

namespace gpumap::gst {

/// Times of what a kernel gives that does not give a frame for each frame: it begins with the first frame since the one
/// before, and is as long as they are together. Thread safety: one thread at a time.
class FrameTimes {
 public:
  void forget() { *this = {}; }
  /// A frame went in.
  void add(const GstBuffer* in) {
    if (GST_CLOCK_TIME_IS_VALID(duration_) || empty_) {
      const GstClockTime more = GST_BUFFER_DURATION(in);
      duration_ = !GST_CLOCK_TIME_IS_VALID(more) ? GST_CLOCK_TIME_NONE : empty_ ? more : duration_ + more;
    }
    if (empty_) pts_ = GST_BUFFER_PTS(in);
    discont_ = discont_ || GST_BUFFER_FLAG_IS_SET(in, GST_BUFFER_FLAG_DISCONT);
    empty_ = false;
  }
  /// `out` came of those that went in since the last one.
  void give(GstBuffer* out) {
    GST_BUFFER_PTS(out) = pts_;
    GST_BUFFER_DTS(out) = GST_CLOCK_TIME_NONE;
    GST_BUFFER_DURATION(out) = duration_;
    GST_BUFFER_OFFSET(out) = GST_BUFFER_OFFSET_END(out) = GST_BUFFER_OFFSET_NONE;  // they count other samples
    if (discont_) GST_BUFFER_FLAG_SET(out, GST_BUFFER_FLAG_DISCONT);
    forget();
  }

 private:
  bool empty_ = true;
  bool discont_ = false;
  GstClockTime pts_ = GST_CLOCK_TIME_NONE;
  GstClockTime duration_ = GST_CLOCK_TIME_NONE;
};

}  // namespace gpumap::gst
