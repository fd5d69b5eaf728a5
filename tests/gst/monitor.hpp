// SPDX-License-Identifier: MIT
//
// The rules of a pad, as the monitors of gst-validate check them, for the places where that is not to be had: what a
// pad carries, in which order, inside which segment, and with which sequence number.
#pragma once

#include <mutex>
#include <utility>

#include "pipeline.hpp"

namespace gpumap::gst::test {

/// Watches one pad. Outlives the pipeline.
class Monitor {
 public:
  void on(GstElement* element, const char* pad_name) {
    name_ = std::string(GST_ELEMENT_NAME(element)) + ':' + pad_name;
    const Pad pad(gst_element_get_static_pad(element, pad_name));
    const auto types = static_cast<unsigned>(GST_PAD_PROBE_TYPE_BUFFER) | GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM |
                       GST_PAD_PROBE_TYPE_EVENT_FLUSH;
    gst_pad_add_probe(pad.get(), static_cast<GstPadProbeType>(types), note, this, nullptr);
  }
  /// Stopped, a pad forgets what sticks to it.
  void begin_anew() {
    const std::lock_guard lock(mutex_);
    state_ = {};
  }
  /// The next flush and the segment behind it carry this number, of the seek that they come from.
  void expect_seqnum(guint32 seqnum) {
    const std::lock_guard lock(mutex_);
    seqnum_ = seqnum;
  }
  /// What broke a rule, a line each, the first few.
  [[nodiscard]] std::string violations() const {
    const std::lock_guard lock(mutex_);
    return violations_;
  }
  [[nodiscard]] std::size_t frames() const {
    const std::lock_guard lock(mutex_);
    return frames_;
  }

 private:
  struct State {
    bool stream = false, caps = false, segment = false, flushing = false, ended = false;
    /// One more may come after FLUSH_START: the streaming thread found the pad not flushing and came here second.
    bool overtaken = false;
    GstSegment format{};
    GstClockTime last = GST_CLOCK_TIME_NONE;
  };

  static GstPadProbeReturn note(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<Monitor*>(user);
    const std::lock_guard lock(self->mutex_);
    if ((info->type & GST_PAD_PROBE_TYPE_BUFFER) != 0) {
      self->check(GST_PAD_PROBE_INFO_BUFFER(info));
    } else {
      self->check(GST_PAD_PROBE_INFO_EVENT(info));
    }
    return GST_PAD_PROBE_OK;
  }

  void rule(bool kept, const std::string& broken) {
    if (!kept && violations_.size() < 1000) violations_ += name_ + ": " + broken + '\n';
  }

  /// Whether what comes in order may come now.
  bool is_in_order() { return !state_.flushing || std::exchange(state_.overtaken, false); }

  void check(GstBuffer* buffer) {
    ++frames_;
    rule(state_.stream, "a frame before stream-start");
    rule(state_.caps, "a frame before caps");
    rule(state_.segment, "a frame before a segment");
    rule(!state_.ended, "a frame after EOS");
    rule(is_in_order(), "a frame between FLUSH_START and FLUSH_STOP");
    const GstClockTime pts = GST_BUFFER_PTS(buffer);
    if (!state_.segment || state_.format.format != GST_FORMAT_TIME || !GST_CLOCK_TIME_IS_VALID(pts)) return;
    const GstClockTime end = pts + (GST_BUFFER_DURATION_IS_VALID(buffer) ? GST_BUFFER_DURATION(buffer) : 0);
    rule(gst_segment_clip(&state_.format, GST_FORMAT_TIME, pts, end, nullptr, nullptr) != FALSE,
         "a frame outside its segment, at " + std::to_string(pts));
    const bool forward = state_.format.rate > 0;
    rule(!GST_CLOCK_TIME_IS_VALID(state_.last) || (forward ? pts >= state_.last : pts <= state_.last),
         "time runs the wrong way, from " + std::to_string(state_.last) + " to " + std::to_string(pts));
    state_.last = pts;
  }

  void check(GstEvent* event) {
    const GstEventType type = GST_EVENT_TYPE(event);
    const guint32 number = gst_event_get_seqnum(event);
    switch (type) {
      case GST_EVENT_FLUSH_START:
        state_.flushing = state_.overtaken = true;
        rule(seqnum_ == 0 || number == seqnum_, "FLUSH_START has another number than its seek");
        flushed_by_ = seqnum_ != 0 ? number : 0;
        break;
      case GST_EVENT_FLUSH_STOP:
        rule(state_.flushing, "FLUSH_STOP without FLUSH_START");
        state_.flushing = state_.overtaken = state_.segment = state_.ended = false;
        state_.last = GST_CLOCK_TIME_NONE;
        rule(flushed_by_ == 0 || number == flushed_by_, "FLUSH_STOP has another number than its seek");
        break;
      case GST_EVENT_STREAM_START:
        state_.stream = true;
        state_.ended = false;
        break;
      case GST_EVENT_CAPS:
        rule(state_.stream, "caps before stream-start");
        state_.caps = true;
        break;
      case GST_EVENT_SEGMENT:
        if (state_.flushing) {  // of the seek before this flush's, and forgotten with it
          rule(is_in_order(), "a segment while flushing");
          break;
        }
        rule(state_.stream && state_.caps, "a segment before caps");
        state_.segment = true;
        gst_event_copy_segment(event, &state_.format);
        state_.last = GST_CLOCK_TIME_NONE;
        // Not that of the next seek, which may be announced already.
        rule(flushed_by_ == 0 || number == flushed_by_, "a segment has another number than its seek");
        flushed_by_ = 0;
        break;
      case GST_EVENT_EOS:
        rule(state_.stream, "EOS before stream-start");
        rule(!state_.ended, "EOS twice");
        state_.ended = true;
        break;
      default:
        rule((gst_event_type_get_flags(type) & GST_EVENT_TYPE_SERIALIZED) == 0 || is_in_order(),
             "a serialised event while flushing");
    }
  }

  mutable std::mutex mutex_;
  std::string name_, violations_;
  std::size_t frames_ = 0;
  State state_;
  guint32 seqnum_ = 0;
  guint32 flushed_by_ = 0;  ///< between the flush and the segment of a seek whose number is known
};

}  // namespace gpumap::gst::test
