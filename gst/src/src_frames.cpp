// SPDX-License-Identifier: MIT
// How a frame leaves a gpumapsrc.
#include <algorithm>
#include <utility>

#include "gst/src/src_stream.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

namespace gpumap::gst {

/// do-timestamp: as a live source, the running time of the moment.
void SrcStream::stamp_time(GstBuffer* buffer) const {
  GstClock* clock = gst_element_get_clock(element_);
  if (clock == nullptr) return;
  const GstClockTime now = gst_clock_get_time(clock);
  gst_object_unref(clock);
  const GstClockTime base = gst_element_get_base_time(element_);
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  if (segment_ != nullptr) gst_event_copy_segment(segment_, &segment);
  const GstClockTime running = now > base ? now - base : 0;
  const bool timed = segment.format == GST_FORMAT_TIME;
  GST_BUFFER_PTS(buffer) =
      timed ? gst_segment_position_from_running_time(&segment, GST_FORMAT_TIME,
                                                     static_cast<guint64>(std::max<GstClockTimeDiff>(
                                                         static_cast<GstClockTimeDiff>(running) - shift_.value(), 0)))
            : running;
  GST_BUFFER_DTS(buffer) = GST_CLOCK_TIME_NONE;
}

void SrcStream::push(Channel::Next& frame) {
  if (drops_) return;
  if (!started_) push_stream_start();
  if (gst_pad_check_reconfigure(pad_)) output_.reconsider();
  if (!negotiate()) return;
  if (shift_.update(*channel_, false) && segment_ != nullptr) push_segment();
  if (loans_ != frame.loans) {  // this thread alone writes it
    const std::lock_guard lock(mutex_);
    loans_ = frame.loans;
  }
  if (output_.take_loss()) frame.after_hole = true;
  const SrcOutput::Memory memory = output_.memory_for(frame, *channel_);
  const std::uint64_t bytes = frame.lease.info().bytes;
  GstBuffer* buffer = loans_->recalled() ? nullptr : output_.wrap(std::move(frame), memory);
  // Behind a copy, too: only now it is known to be whole.
  if (loans_->recalled()) {
    GST_INFO_OBJECT(element_, "a frame is lost: the producer has taken it back");
    gst_clear_buffer(&buffer);
    output_.note_loss();
    return;
  }
  const guint64 number = frames_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (settings_.do_timestamp) stamp_time(buffer);
  GST_LOG_OBJECT(element_, "frame %" G_GUINT64_FORMAT "%s: %" GST_PTR_FORMAT, number,
                 memory == SrcOutput::Memory::copy ? ", copied" : "", static_cast<void*>(buffer));
  const GstFlowReturn flow = output_.push(buffer);
  if (flow == GST_FLOW_NOT_NEGOTIATED && forgives_refusal()) {
    GST_INFO_OBJECT(element_, "other caps are to come: frame %" G_GUINT64_FORMAT " is lost", number);
    output_.note_loss();
  } else if (flow == GST_FLOW_NOT_NEGOTIATED) {
    refuse();
  } else if (flow != GST_FLOW_OK) {
    give_up(flow);
  }
}

}  // namespace gpumap::gst
