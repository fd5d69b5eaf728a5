// SPDX-License-Identifier: MIT
#include "gst/sink/gather.hpp"

#include <gst/audio/audio.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "gst/gst_error.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/memory/video_layout.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

namespace {

/// How far a buffer may be from where the one before ends: live sources have jitter. As GStreamer's audio encoders and
/// gpumapkernel have it.
constexpr GstClockTime tolerance = 40 * GST_MSECOND;

/// A frame has these where all its buffers do.
constexpr guint shared_flags = GST_BUFFER_FLAG_GAP | GST_BUFFER_FLAG_DROPPABLE;
/// These are of what a buffer begins with.
constexpr guint first_flags = GST_BUFFER_FLAG_DISCONT | GST_BUFFER_FLAG_RESYNC;

}  // namespace

void Gather::start(std::uint64_t bytes, std::uint32_t limit_us) {
  bytes_ = bytes;
  limit_ = bytes != 0 ? limit_us * GST_USECOND : 0;
  cut_ = Cut::anywhere;
  unit_ = 1;
  rate_ = 0;
  set_latency(limit_);
}

void Gather::set_latency(GstClockTime latency) {
  if (std::exchange(latency_, latency) == latency) return;
  if (const auto channel = core_.channel()) channel->set_latency(latency);
  gst_element_post_message(element_, gst_message_new_latency(GST_OBJECT_CAST(element_)));
}

void Gather::stop() {
  GST_PAD_STREAM_LOCK(pad_);  // the time limit's thread may have it
  drop();
  GST_PAD_STREAM_UNLOCK(pad_);
  latency_ = 0;
  if (const auto channel = core_.channel()) channel->set_latency(0);
}

std::size_t Gather::frame_bytes() const noexcept {
  return cut_ == Cut::anywhere ? std::max(bytes() - bytes() % unit_, unit_) : bytes();
}

void Gather::set_caps(const GstCaps* caps) {
  const GstStructure* media = gst_caps_get_structure(caps, 0);
  const auto is = [media](const char* name) { return gst_structure_has_name(media, name) != 0; };
  const FrameFormat format = FrameFormat::from_caps(caps);
  const char* layout = gst_structure_get_string(media, "layout");
  const bool samples = is("audio/x-raw") || is(packed_iq_name) || is(spectrum_name) || is(channels_name);
  cut_ = samples || is("application/octet-stream") ? Cut::anywhere : Cut::between_buffers;
  if (format.is_video() || format.image_bytes() != 0) cut_ = Cut::never;
  if (samples && layout != nullptr && std::string_view(layout) != "interleaved") cut_ = Cut::never;
  unit_ = std::max<std::size_t>(format.bytes_per_sample(), 1);
  rate_ = format.rate();

  GstClockTime latency = cut_ != Cut::never ? limit_ : 0;
  if (cut_ == Cut::anywhere && rate_ != 0) {
    const GstClockTime whole = gst_util_uint64_scale(frame_bytes() / unit_, GST_SECOND, rate_);
    latency = limit_ != 0 ? std::min(limit_, whole) : whole;
  }
  set_latency(latency);
}

void Gather::see(GstEvent* event) {
  if (!is_on() || (gst_event_type_get_flags(GST_EVENT_TYPE(event)) & GST_EVENT_TYPE_SERIALIZED) == 0) return;
  if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_STOP) {
    drop();
    return;
  }
  (void)finish();  // where it fails, so does the next frame
  if (GST_EVENT_TYPE(event) != GST_EVENT_CAPS) return;
  GstCaps* caps = nullptr;
  gst_event_parse_caps(event, &caps);
  set_caps(caps);
}

GstFlowReturn Gather::take(GstBuffer* buffer) {
  if (!is_on() || cut_ == Cut::never) return hand_on_(buffer);
  Ptr<GstBuffer> taken(buffer);
  if (slot_ && breaks_at(buffer)) {
    if (const GstFlowReturn flow = finish(); flow != GST_FLOW_OK) return flow;
  }
  const std::size_t bytes = gst_buffer_get_size(buffer);
  if (bytes == 0) {
    if (GST_BUFFER_IS_DISCONT(buffer)) core_.mark_hole();
    return GST_FLOW_OK;
  }
  if (slot_ && cut_ == Cut::between_buffers && filled_ + bytes > frame_bytes()) {
    if (const GstFlowReturn flow = finish(); flow != GST_FLOW_OK) return flow;
  }
  // A frame as it is, and what does not fit into one.
  if (!slot_ && (bytes == frame_bytes() || (cut_ == Cut::between_buffers && bytes > frame_bytes()))) {
    due_ = GST_CLOCK_TIME_NONE;
    return hand_on_(taken.release());
  }
  try {
    return add(buffer, bytes);
  } catch (const std::exception& error) {
    drop();
    post_error(element_, error);
    return GST_FLOW_ERROR;
  }
}

GstFlowReturn Gather::add(GstBuffer* buffer, std::size_t bytes) {
  const GstClockTime duration = duration_of(buffer, bytes);
  std::size_t from = 0;
  while (from < bytes) {
    if (!slot_) {
      if (const GstFlowReturn flow = open(buffer, from, duration); flow != GST_FLOW_OK) return flow;
    }
    const std::size_t some = std::min(frame_bytes() - filled_, bytes - from);
    core_.fill(*slot_, filled_, buffer, from, some);
    filled_ += some;
    const auto until = [&](std::size_t at) { return gst_util_uint64_scale(duration, at, bytes); };
    GstClockTime& whole = GST_BUFFER_DURATION(frame_.get());
    whole = GST_CLOCK_TIME_IS_VALID(duration) && GST_CLOCK_TIME_IS_VALID(whole)
                ? whole + until(from + some) - until(from)
                : GST_CLOCK_TIME_NONE;
    from += some;
    const bool ends = from == bytes;
    GST_BUFFER_OFFSET_END(frame_.get()) = ends ? GST_BUFFER_OFFSET_END(buffer) : GST_BUFFER_OFFSET_NONE;
    const guint flags = GST_BUFFER_FLAGS(buffer);
    GST_BUFFER_FLAG_UNSET(frame_.get(), shared_flags & ~flags);
    GST_BUFFER_FLAG_SET(frame_.get(), flags & GST_BUFFER_FLAG_CORRUPTED);
    if (ends) ++buffers_;
    if (filled_ < frame_bytes()) continue;
    if (const GstFlowReturn flow = finish(); flow != GST_FLOW_OK) return flow;
  }
  const GstClockTime pts = GST_BUFFER_PTS(buffer);
  const bool timed = GST_CLOCK_TIME_IS_VALID(pts) && GST_CLOCK_TIME_IS_VALID(duration);
  due_ = timed ? pts + duration : GST_CLOCK_TIME_NONE;
  return GST_FLOW_OK;
}

bool Gather::breaks_at(GstBuffer* buffer) const noexcept {
  if (GST_BUFFER_IS_DISCONT(buffer)) return true;
  const GstClockTime pts = GST_BUFFER_PTS(buffer);
  if (!GST_CLOCK_TIME_IS_VALID(due_) || !GST_CLOCK_TIME_IS_VALID(pts)) return false;
  return (pts > due_ ? pts - due_ : due_ - pts) > tolerance;
}

GstClockTime Gather::duration_of(GstBuffer* buffer, std::size_t bytes) const noexcept {
  if (GST_BUFFER_DURATION_IS_VALID(buffer)) return GST_BUFFER_DURATION(buffer);
  return rate_ != 0 ? gst_util_uint64_scale(bytes / unit_, GST_SECOND, rate_) : GST_CLOCK_TIME_NONE;
}

/// A frame that begins with byte `from` of `first`.
GstFlowReturn Gather::open(GstBuffer* first, std::size_t from, GstClockTime duration) {
  std::unique_ptr<FrameMemory> slot;
  const auto stopped = [this] { return GST_PAD_IS_FLUSHING(pad_) != 0; };
  (void)core_.acquire(frame_bytes(), slot, stopped, SinkCore::Patience::waits, SinkCore::Writer::element);
  if (stopped()) return GST_FLOW_FLUSHING;
  if (!slot) slot = std::make_unique<FrameMemory>(frame_bytes());
  (void)slot->map(GST_MAP_WRITE);

  frame_.reset(gst_buffer_new());
  gst_buffer_copy_into(frame_.get(), first, copy_all_but_memory, 0, static_cast<gsize>(-1));
  if (GstAudioMeta* meta = gst_buffer_get_audio_meta(frame_.get())) {
    gst_buffer_remove_meta(frame_.get(), &meta->meta);  // it counts the samples
  }
  if (from != 0) {
    GST_BUFFER_FLAG_UNSET(frame_.get(), first_flags);
    GST_BUFFER_DTS(frame_.get()) = GST_CLOCK_TIME_NONE;
    GST_BUFFER_OFFSET(frame_.get()) = GST_BUFFER_OFFSET_NONE;
    if (GST_BUFFER_PTS_IS_VALID(first) && GST_CLOCK_TIME_IS_VALID(duration)) {
      GST_BUFFER_PTS(frame_.get()) += gst_util_uint64_scale(duration, from, gst_buffer_get_size(first));
    }
  }
  GST_BUFFER_DURATION(frame_.get()) = 0;
  slot_ = std::move(slot);
  filled_ = 0;
  set_alarm(++number_);
  return GST_FLOW_OK;
}

void Gather::set_alarm(std::uint64_t number) {
  if (limit_ == 0) return;
  struct Due {
    Gather* gather;
    std::uint64_t number;
  };
  alarm_.set(limit_, element_, [this, number](GstElement* element) {
    // In a thread of its own: the frame may have to wait for a slot, and the clock's serves others.
    gst_element_call_async(
        element,
        [](GstElement* /*element*/, gpointer data) {
          const auto [gather, due] = *static_cast<Due*>(data);
          GST_PAD_STREAM_LOCK(gather->pad_);
          if (gather->number_ == due && GST_PAD_IS_FLUSHING(gather->pad_) == 0) (void)gather->finish();
          GST_PAD_STREAM_UNLOCK(gather->pad_);
        },
        new Due{this, number}, [](gpointer data) { delete static_cast<Due*>(data); });
  });
}

GstFlowReturn Gather::finish() {
  if (!slot_) return GST_FLOW_OK;
  alarm_.stop();
  slot_->unmap();
  (void)slot_->take_time_mapped();  // which is that of upstream
  core_.count_gathered(std::exchange(buffers_, 0));
  GST_LOG_OBJECT(element_, "%zu bytes make a frame", filled_);
  gst_buffer_append_memory(frame_.get(), memory_new(wrapping_allocator(), std::move(slot_), filled_, GstMemoryFlags{}));
  return hand_on_(frame_.release());
}

void Gather::drop() {
  alarm_.stop();
  slot_.reset();
  frame_.reset();
  buffers_ = 0;
  due_ = GST_CLOCK_TIME_NONE;
}

}  // namespace gpumap::gst
