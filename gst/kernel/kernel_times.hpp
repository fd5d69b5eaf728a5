// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <algorithm>
#include <cstdint>

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

/// Whether a stream's frames follow on one another. Upstream marks a hole, or sends a gap, or samples show it: they
/// last as long as there are, and then the next ones are due. Thread safety: one thread at a time.
class Continuity {
 public:
  /// How far samples may be from where they are due: live sources have jitter. As GStreamer's audio encoders have it.
  static constexpr GstClockTime tolerance = 40 * GST_MSECOND;

  /// The first frame comes next, or one that is as good as the first.
  void begin() noexcept { *this = {}; }
  /// Whatever comes next follows on nothing.
  void break_off() noexcept {
    broken_ = true;
    due_ = GST_CLOCK_TIME_NONE;
    length_ = 0;
  }

  [[nodiscard]] bool breaks_at(const GstBuffer* in) const noexcept {
    if (broken_ || GST_BUFFER_IS_DISCONT(in)) return true;
    const GstClockTime pts = GST_BUFFER_PTS(in);
    if (!GST_CLOCK_TIME_IS_VALID(due_) || !GST_CLOCK_TIME_IS_VALID(pts)) return false;
    return (pts > due_ ? pts - due_ : due_ - pts) > std::max(tolerance, length_);
  }

  /// There is something before `in` that it does not follow on.
  [[nodiscard]] bool breaks_off_at(const GstBuffer* in) const noexcept { return begun_ && breaks_at(in); }

  /// A frame goes in, of so many samples at so many a second; 0: what it is of does not count its time.
  void add(const GstBuffer* in, std::uint64_t samples, std::uint64_t rate) noexcept {
    length_ = rate != 0 ? gst_util_uint64_scale(samples, GST_SECOND, rate) : 0;
    const GstClockTime pts = GST_BUFFER_PTS(in);
    const GstClockTime begins = GST_CLOCK_TIME_IS_VALID(pts) ? pts : due_;
    due_ = rate != 0 && GST_CLOCK_TIME_IS_VALID(begins) ? begins + length_ : GST_CLOCK_TIME_NONE;
    broken_ = false;
    begun_ = true;
  }

 private:
  bool begun_ = false;  ///< a frame went in
  bool broken_ = true;
  GstClockTime due_ = GST_CLOCK_TIME_NONE;
  GstClockTime length_ = 0;  ///< of the last frame
};

}  // namespace gpumap::gst
