// SPDX-License-Identifier: MIT
// How a frame leaves a gpumapsrc: as its slot, or as a copy where downstream keeps too many slots.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "gpumap/printable.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/gst_error.hpp"
#include "gst/src/src_stream.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

namespace gpumap::gst {

using namespace std::chrono_literals;

namespace {

// No slot came back for this time, with all but one lent: downstream keeps them (an encoder with lookahead, a queue
// with a threshold, videorate), it is not merely slow. While it prerolls nothing can be slow: it waits for frames or
// has them.
constexpr auto patience_playing = 1000ms;
constexpr auto patience_prerolling = 200ms;
constexpr auto look_again = 20ms;

}  // namespace

/// False: a flush or a stop came, or patience is over.
bool SrcStream::waits_for_return(Loans& loans) {
  const std::uint64_t returned = loans.returned();
  auto waited = 0ms;
  while (true) {
    if (loans.wait_for_return(returned, look_again)) return true;
    bool playing = false;
    {
      const std::lock_guard lock(mutex_);
      if (flushing_ != 0) return false;
      playing = playing_;
    }
    const bool prerolls = is_changing_state(element_);
    // Paused for good, no one takes anything, and that is as it should be.
    if (!playing && !prerolls) continue;
    waited += look_again;
    if (waited >= (prerolls ? patience_prerolling : patience_playing)) return false;
  }
}

SrcOutput::Memory SrcStream::memory_for(const Channel::Next& frame) {
  const std::uint32_t slots = frame.lease.ring()->slots();
  const std::uint32_t lent = frame.loans->count();
  if (lent + 1 < slots) return SrcOutput::Memory::slot;
  // With this one downstream would have them all, and upstream none to write into.
  if (!keeps_ && waits_for_return(*frame.loans)) return SrcOutput::Memory::slot;
  {
    const std::lock_guard lock(mutex_);
    if (flushing_ != 0) return SrcOutput::Memory::slot;
  }
  const std::uint32_t kept = channel_->kept_slots();
  if (output_.needs_gpu_memory()) {
    // Frames to come lie in a larger ring.
    channel_->set_kept_slots(kept + slots);
    tell_of_keeping(frame, true);
    return SrcOutput::Memory::slot;
  }
  keeps_ = true;
  tell_of_keeping(frame, false);
  host_copies_.fetch_add(1, std::memory_order_relaxed);
  return SrcOutput::Memory::copy;
}

void SrcStream::tell_of_keeping(const Channel::Next& frame, bool more_slots) {
  if (std::exchange(keeping_told_, true)) return;
  const std::uint32_t slots = frame.lease.ring()->slots();
  const bool crosses = !settings_.socket_path.empty();
  const std::string where = crosses ? fmt::format("socket-path {}", printable(settings_.socket_path))
                                    : fmt::format("channel \"{}\"", channel_->name());
  const char* outcome = "while it does, it gets copies in host memory";
  // The ring of another process is that one's.
  if (more_slots) outcome = crosses ? "no frame comes until it gives one back" : "the ring gets twice as many";
  post_warning(element_,
               fmt::format("what follows gpumapsrc keeps {} of the {} slots ({}) of {}: {}; "
                           "set slots on gpumapsink to more than it keeps{}",
                           frame.loans->count(), slots, format_bytes(frame.lease.ring()->mapping()->bytes()), where,
                           outcome, more_slots && crosses ? ", or put gpumapkernel before what keeps them" : ""));
}

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

/// A frame on its last step to what follows. Another element may have been linked since it was made: that one gets its
/// caps first, and the frame as it reads frames.
GstPadProbeReturn SrcStream::fit(GstPadProbeInfo& info) {
  if (gst_pad_is_linked(pad_) == 0 || gst_pad_check_reconfigure(pad_) == 0) return GST_PAD_PROBE_OK;
  output_.reconsider();
  keeps_ = false;
  if (output_.negotiate()) {
    try {
      info.data = output_.fit(GST_BUFFER_CAST(std::exchange(info.data, nullptr)));
      return GST_PAD_PROBE_OK;
    } catch (const std::exception&) {
      failed_ = std::current_exception();
      return GST_PAD_PROBE_HANDLED;
    }
  }
  // The next frame, or event, says what is wrong, if it still is.
  gst_pad_mark_reconfigure(pad_);
  lost_one_ = true;
  return GST_PAD_PROBE_DROP;
}

void SrcStream::push(Channel::Next& frame) {
  if (drops_) return;
  if (!started_) push_stream_start();
  if (gst_pad_check_reconfigure(pad_)) {
    output_.reconsider();
    keeps_ = false;
  }
  if (!negotiate()) return;
  if (shift_.update(*channel_, false) && segment_ != nullptr) push_segment();
  if (loans_ != frame.loans) {  // this thread alone writes it
    const std::lock_guard lock(mutex_);
    loans_ = frame.loans;
  }
  if (std::exchange(lost_one_, false)) frame.after_hole = true;
  const SrcOutput::Memory memory = memory_for(frame);
  const std::uint64_t bytes = frame.lease.info().bytes;
  GstBuffer* buffer = loans_->recalled() ? nullptr : output_.wrap(std::move(frame), memory);
  // Behind a copy, too: only now it is known to be whole.
  if (loans_->recalled()) {
    GST_INFO_OBJECT(element_, "a frame is lost: the producer has taken it back");
    gst_clear_buffer(&buffer);
    lost_one_ = true;
    return;
  }
  const guint64 number = frames_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (settings_.do_timestamp) stamp_time(buffer);
  GST_LOG_OBJECT(element_, "frame %" G_GUINT64_FORMAT "%s: %" GST_PTR_FORMAT, number,
                 memory == SrcOutput::Memory::copy ? ", copied" : "", static_cast<void*>(buffer));
  const GstFlowReturn flow = gst_pad_push(pad_, buffer);
  if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  if (flow == GST_FLOW_NOT_NEGOTIATED && (gst_pad_needs_reconfigure(pad_) != 0 || forgives_refusal())) {
    // Another peer while this frame was under way, in the memory that the last one agreed to: as GstBaseSrc does. Or
    // the same one wants other caps now.
    GST_INFO_OBJECT(element_, "linked anew, or other caps are to come: frame %" G_GUINT64_FORMAT " is lost", number);
    lost_one_ = true;
  } else if (flow == GST_FLOW_NOT_NEGOTIATED) {
    refuse();
  } else if (flow != GST_FLOW_OK) {
    give_up(flow);
  }
}

}  // namespace gpumap::gst
