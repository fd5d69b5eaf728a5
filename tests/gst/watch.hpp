// SPDX-License-Identifier: MIT
//
// What passes a pad, counted while it passes: for the tests of time, where a record at the end is not enough.
#pragma once

#include <algorithm>
#include <mutex>
#include <set>

#include "pipeline.hpp"

namespace gpumap::gst::test {

/// Frames and events at a pad of `element`. Outlives the pipeline.
class Watch {
 public:
  struct Frame {
    GstClockTime pts = 0;
    bool discont = false;
    std::chrono::steady_clock::time_point arrived;
  };

  /// Before the element works on them; a sink that waits for a frame's time has not done so yet.
  void on(GstElement* element, const char* pad_name = "sink") {
    const Pad pad(gst_element_get_static_pad(element, pad_name));
    const auto types = static_cast<unsigned>(GST_PAD_PROBE_TYPE_BUFFER) | GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM |
                       GST_PAD_PROBE_TYPE_EVENT_FLUSH;
    gst_pad_add_probe(pad.get(), static_cast<GstPadProbeType>(types), note, this, nullptr);
  }
  /// When a fakesink has rendered a frame: at its time, where it is synchronised.
  void on_rendered(GstElement* fakesink) {
    g_object_set(fakesink, "signal-handoffs", TRUE, nullptr);
    g_signal_connect(fakesink, "handoff", G_CALLBACK(+[](GstElement*, GstBuffer* buffer, GstPad*, gpointer user) {
                       static_cast<Watch*>(user)->add(buffer);
                     }),
                     this);
  }

  [[nodiscard]] std::vector<Frame> frames() const {
    const std::lock_guard lock(mutex_);
    return frames_;
  }
  [[nodiscard]] std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return frames_.size();
  }
  [[nodiscard]] std::vector<GstClockTime> times() const {
    std::vector<GstClockTime> times;
    for (const Frame& frame : frames()) times.push_back(frame.pts);
    return times;
  }
  /// Frames and events of downstream: "stream-start caps segment frame frame eos ".
  [[nodiscard]] std::string order() const {
    const std::lock_guard lock(mutex_);
    return order_;
  }
  /// Events of one type.
  [[nodiscard]] std::size_t events(GstEventType type) const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count(events_.begin(), events_.end(), type));
  }
  /// Segments, each once: a gpumapsrc pushes one again, with its number, when it knows better what time it is
  /// elsewhere.
  [[nodiscard]] std::size_t segments() const {
    const std::lock_guard lock(mutex_);
    return segments_.size();
  }
  [[nodiscard]] std::size_t counted_in(Time span) const {
    const std::size_t before = count();
    g_usleep(static_cast<gulong>(std::chrono::microseconds(span).count()));
    return count() - before;
  }
  /// `least` to `most` frames come in one of the next few times: a busy machine may be away for some of them, and catch
  /// up in the ones that follow.
  [[nodiscard]] testing::AssertionResult keeps_pace(std::size_t least, std::size_t most, Time span = 1s) const {
    auto failure = testing::AssertionFailure() << "not " << least << " to " << most << " in " << span.count() << " ms:";
    for (int turn = 0; turn < 8; ++turn) {
      const std::size_t frames = counted_in(span);
      if (frames >= least && frames <= most) return testing::AssertionSuccess();
      failure << ' ' << frames;
    }
    return failure;
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    frames_.clear();
    events_.clear();
    segments_.clear();
    order_.clear();
  }

 private:
  static GstPadProbeReturn note(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user) {
    auto* self = static_cast<Watch*>(user);
    if ((info->type & GST_PAD_PROBE_TYPE_BUFFER) != 0) {
      self->add(GST_PAD_PROBE_INFO_BUFFER(info));
    } else {
      const std::lock_guard lock(self->mutex_);
      GstEvent* event = GST_PAD_PROBE_INFO_EVENT(info);
      self->events_.push_back(GST_EVENT_TYPE(event));
      if (GST_EVENT_TYPE(event) == GST_EVENT_SEGMENT) self->segments_.insert(gst_event_get_seqnum(event));
      self->order_ += std::string(GST_EVENT_TYPE_NAME(event)) + ' ';
    }
    return GST_PAD_PROBE_OK;
  }
  void add(GstBuffer* buffer) {
    const std::lock_guard lock(mutex_);
    frames_.push_back({GST_BUFFER_PTS(buffer), GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_DISCONT) != FALSE,
                       std::chrono::steady_clock::now()});
    order_ += "frame ";
  }

  mutable std::mutex mutex_;
  std::vector<Frame> frames_;
  std::vector<GstEventType> events_;
  std::set<guint32> segments_;
  std::string order_;
};

}  // namespace gpumap::gst::test
