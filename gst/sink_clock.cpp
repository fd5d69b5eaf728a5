// SPDX-License-Identifier: MIT
#include "sink_clock.hpp"

#include <chrono>

#include "frame_origin.hpp"

namespace gpumap::gst {

using namespace std::chrono_literals;

SinkClock::~SinkClock() {
  if (waiting_ != nullptr) gst_clock_id_unref(waiting_);
}

void SinkClock::reset() {
  const std::lock_guard lock(mutex_);
  gst_segment_init(&segment_, GST_FORMAT_UNDEFINED);
  flushing_ = false;
  first_ = true;
}

void SinkClock::set_segment(GstEvent* event) {
  const std::lock_guard lock(mutex_);
  gst_event_copy_segment(event, &segment_);
}

void SinkClock::wake() {
  if (waiting_ != nullptr) gst_clock_id_unschedule(waiting_);
  changed_.notify_all();
}

void SinkClock::set_playing(GstElement* element, bool playing) {
  GstClock* clock = playing ? gst_element_get_clock(element) : nullptr;
  const GstClockTime base = is_monotonic(clock) ? gst_element_get_base_time(element) : GST_CLOCK_TIME_NONE;
  if (clock != nullptr) gst_object_unref(clock);
  const std::lock_guard lock(mutex_);
  playing_ = playing;
  base_ = base;
  wake();
}

std::int64_t SinkClock::due_ns(const GstBuffer* buffer) {
  const GstClockTime pts = GST_BUFFER_PTS(buffer);
  const GstClockTime base = base_.load(std::memory_order_relaxed);
  if (!GST_CLOCK_TIME_IS_VALID(base) || !GST_CLOCK_TIME_IS_VALID(pts)) return 0;
  const std::lock_guard lock(mutex_);
  if (segment_.format != GST_FORMAT_TIME) return 0;
  const GstClockTime running = gst_segment_to_running_time(&segment_, GST_FORMAT_TIME, pts);
  return GST_CLOCK_TIME_IS_VALID(running) ? static_cast<std::int64_t>(base + running) : 0;
}

void SinkClock::set_flushing(bool flushing) {
  const std::lock_guard lock(mutex_);
  flushing_ = flushing;
  wake();
}

GstFlowReturn SinkClock::wait_for(GstElement* element, GstBuffer* buffer, const std::function<bool()>& prerolling) {
  std::unique_lock lock(mutex_);
  if (first_) {
    first_ = false;
    return flushing_ ? GST_FLOW_FLUSHING : GST_FLOW_OK;
  }
  const GstClockTime pts = GST_BUFFER_PTS(buffer);
  if (!GST_CLOCK_TIME_IS_VALID(pts) || segment_.format != GST_FORMAT_TIME) return GST_FLOW_OK;
  const GstClockTime running = gst_segment_to_running_time(&segment_, GST_FORMAT_TIME, pts);
  if (!GST_CLOCK_TIME_IS_VALID(running)) return GST_FLOW_OK;

  while (true) {
    // The src's state changes without a word to this side, so look again now and then.
    while (!changed_.wait_for(lock, 20ms, [this] { return playing_ || flushing_; })) {
      if (prerolling()) return GST_FLOW_OK;
    }
    if (flushing_) return GST_FLOW_FLUSHING;
    GstClock* clock = gst_element_get_clock(element);
    if (clock == nullptr) return GST_FLOW_OK;
    waiting_ = gst_clock_new_single_shot_id(clock, gst_element_get_base_time(element) + running);
    GstClockID id = waiting_;
    lock.unlock();
    const GstClockReturn waited = gst_clock_id_wait(id, nullptr);
    lock.lock();
    waiting_ = nullptr;
    gst_clock_id_unref(id);
    gst_object_unref(clock);
    // Unscheduled: paused (wait again, with the new base time) or flushing.
    if (waited != GST_CLOCK_UNSCHEDULED) return flushing_ ? GST_FLOW_FLUSHING : GST_FLOW_OK;
  }
}

}  // namespace gpumap::gst
