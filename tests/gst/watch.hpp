// SPDX-License-Identifier: MIT
//
// What passes a pad, counted while it passes: for the tests of time, where a record at the end is not enough.
#pragma once

#include <gst/check/gsttestclock.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

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

//
// Time that passes when a test says so: a second takes as long as the elements need for what is due in it, on a busy
// machine as on a quick one, and a thread is late only where the test holds it up.

using ClockPtr = Ptr<GstClock>;

/// Clocks that go together. Outlives the pipelines that play by them. Thread safety: all of it.
class SimulatedTime {
 public:
  SimulatedTime() = default;
  ~SimulatedTime() {
    if (is_default_) gst_system_clock_set_default(nullptr);
  }
  SimulatedTime(const SimulatedTime&) = delete;
  SimulatedTime& operator=(const SimulatedTime&) = delete;

  /// A clock that shows `start` when no time has passed; borrowed.
  [[nodiscard]] GstClock* clock(GstClockTime start) {
    const std::lock_guard lock(mutex_);
    clocks_.emplace_back(gst_test_clock_new_with_start_time(start + passed_));
    return clocks_.back().get();
  }
  /// While this lives, a caller that asks for GStreamer's system clock gets one of these: an alarm, a watchdog, a
  /// pipeline.
  void become_default() {
    is_default_ = true;
    gst_system_clock_set_default(clock(1'000 * GST_SECOND));
  }
  /// A thread that waits for a moment within `span` continues.
  void pass(std::chrono::nanoseconds span) {
    const auto ns = static_cast<GstClockTime>(span.count());
    const std::lock_guard lock(mutex_);
    passed_ += ns;
    for (const ClockPtr& clock : clocks_) {
      gst_test_clock_advance_time(GST_TEST_CLOCK(clock.get()), static_cast<GstClockTimeDiff>(ns));
    }
  }

 private:
  /// GstTestClock lets nobody go on by itself, not even who waits for a moment that has passed.
  void wake() {
    const std::lock_guard lock(mutex_);
    for (const ClockPtr& clock : clocks_) {
      while (const GstClockID due = gst_test_clock_process_next_clock_id(GST_TEST_CLOCK(clock.get()))) {
        gst_clock_id_unref(due);
      }
    }
  }

  std::mutex mutex_;
  std::vector<ClockPtr> clocks_;
  GstClockTime passed_ = 0;
  bool is_default_ = false;
  std::jthread waker_{[this](const std::stop_token& over) {
    for (; !over.stop_requested(); g_usleep(500)) wake();
  }};
};

inline void use(Pipeline& pipeline, GstClock* clock) {
  gst_pipeline_use_clock(GST_PIPELINE(pipeline.get()), clock);
}

}  // namespace gpumap::gst::test
