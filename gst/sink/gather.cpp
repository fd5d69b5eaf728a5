// SPDX-License-Identifier: MIT
#include "gst/sink/gather.hpp"

#include <gst/audio/audio.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "gpumap/thread_schedule.hpp"
#include "gst/gst_error.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/radio/radio_metas.hpp"

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

class StreamLock {
 public:
  explicit StreamLock(GstPad* pad) : pad_(pad) { GST_PAD_STREAM_LOCK(pad_); }
  ~StreamLock() { GST_PAD_STREAM_UNLOCK(pad_); }
  StreamLock(const StreamLock&) = delete;
  StreamLock& operator=(const StreamLock&) = delete;

 private:
  GstPad* const pad_;
};

/// The receiver was tuned elsewhere before `buffer`: a frame tells one frequency. Packets have no metas, and cost
/// little.
bool retunes(GstBuffer* buffer, GstBuffer* frame) {
  gpointer state = nullptr;
  if (gst_buffer_iterate_meta(buffer, &state) == nullptr) return false;
  const auto told = radio_of(buffer).center_frequency;
  return told && told != radio_of(frame).center_frequency;
}

/// The offset of byte `at` of `buffer`, which has `bytes`; none where that lies within what offsets count.
guint64 offset_at(GstBuffer* buffer, std::size_t at, std::size_t bytes) {
  const guint64 begin = GST_BUFFER_OFFSET(buffer), end = GST_BUFFER_OFFSET_END(buffer);
  if (at == 0) return begin;
  if (at == bytes) return end;
  if (begin == GST_BUFFER_OFFSET_NONE || end == GST_BUFFER_OFFSET_NONE || end <= begin) return GST_BUFFER_OFFSET_NONE;
  const guint64 one = bytes / (end - begin);
  return one * (end - begin) == bytes && at % one == 0 ? begin + at / one : GST_BUFFER_OFFSET_NONE;
}

}  // namespace

Gather::Gather(GstElement* element, GstPad* pad, SinkCore& core, HandOn hand_on)
    : element_(element),
      pad_(pad),
      core_(core),
      hand_on_(std::move(hand_on)),
      lender_(std::make_shared<Lender>(pad, this)),
      allocator_(allocator_new(
          [lender = lender_](std::size_t bytes, std::size_t align) { return lend_by(*lender, bytes, align); })) {}

Gather::~Gather() {
  const StreamLock lock(lender_->pad.get());  // the element may have none any more
  lender_->gather = nullptr;
}

void Gather::start(std::uint64_t bytes, std::uint32_t limit_us) {
  bytes_ = bytes;
  limit_ = bytes != 0 ? limit_us * GST_USECOND : 0;
  cut_ = Cut::anywhere;
  unit_ = 1;
  rate_ = 0;
  is_in_order_ = true;
  lender_->upstream = std::thread::id();
  set_latency(limit_);
}

void Gather::set_latency(GstClockTime latency) {
  if (std::exchange(latency_, latency) == latency) return;
  if (const auto channel = core_.channel()) channel->set_latency(latency);
  gst_element_post_message(element_, gst_message_new_latency(GST_OBJECT_CAST(element_)));
}

void Gather::stop() {
  const StreamLock lock(pad_);  // the time limit's thread may have it
  drop();
  latency_ = 0;
  if (const auto channel = core_.channel()) channel->set_latency(0);
}

std::size_t Gather::frame_bytes() const noexcept {
  return cut_ == Cut::anywhere ? std::max(bytes() - bytes() % unit_, unit_) : bytes();
}

std::size_t Gather::usual_bytes() const noexcept {
  if (limit_ == 0 || rate_ == 0) return frame_bytes();
  return std::min<std::size_t>(frame_bytes(), gst_util_uint64_scale(limit_, rate_ * unit_, GST_SECOND));
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
  const bool caps_follow = GST_EVENT_TYPE(event) == GST_EVENT_CAPS;
  if (caps_follow || GST_EVENT_TYPE(event) == GST_EVENT_EOS) {  // no frame comes, or one of another size
    slot_.reset();
    is_lent_ = false;
  }
  if (!caps_follow) return;
  GstCaps* caps = nullptr;
  gst_event_parse_caps(event, &caps);
  set_caps(caps);
}

GstFlowReturn Gather::take(GstBuffer* buffer) {
  if (!gathers()) return hand_on_(buffer);
  Ptr<GstBuffer> taken(buffer);
  const std::thread::id upstream = std::this_thread::get_id();
  if (lender_->upstream.load(std::memory_order_relaxed) != upstream) lender_->upstream = upstream;
  if (frame_ && breaks_at(buffer)) {
    if (const GstFlowReturn flow = finish(); flow != GST_FLOW_OK) return flow;
  }
  const std::size_t bytes = gst_buffer_get_size(buffer);
  if (bytes == 0) {
    if (GST_BUFFER_IS_DISCONT(buffer)) core_.mark_hole();
    return GST_FLOW_OK;
  }
  if (frame_ && cut_ == Cut::between_buffers && filled_ + bytes > frame_bytes()) {
    if (const GstFlowReturn flow = finish(); flow != GST_FLOW_OK) return flow;
  }
  if (is_lent_ && part_in_place(buffer) == nullptr) {
    if (const GstFlowReturn flow = pass_by_part(); flow != GST_FLOW_OK) return flow;
  }
  // A frame as it is, and what does not fit into one.
  if (!frame_ && !is_lent_ && (bytes == frame_bytes() || (cut_ == Cut::between_buffers && bytes > frame_bytes()))) {
    slot_.reset();
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
  if (frame_) copy_annotations(frame_.get(), buffer);
  while (from < bytes) {
    if (!frame_) {
      if (const GstFlowReturn flow = begin(buffer, from, duration); flow != GST_FLOW_OK) return flow;
    }
    const std::size_t some = std::min(frame_bytes() - filled_, bytes - from);
    if (std::exchange(is_lent_, false)) {
      core_.take_part(slot_.get(), part_in_place(buffer));
    } else {
      core_.fill(slot_.get(), filled_, buffer, from, some);
    }
    filled_ += some;
    const auto until = [&](std::size_t at) { return gst_util_uint64_scale(duration, at, bytes); };
    GstClockTime& whole = GST_BUFFER_DURATION(frame_.get());
    whole = GST_CLOCK_TIME_IS_VALID(duration) && GST_CLOCK_TIME_IS_VALID(whole)
                ? whole + until(from + some) - until(from)
                : GST_CLOCK_TIME_NONE;
    from += some;
    GST_BUFFER_OFFSET_END(frame_.get()) = offset_at(buffer, from, bytes);
    const guint flags = GST_BUFFER_FLAGS(buffer);
    GST_BUFFER_FLAG_UNSET(frame_.get(), shared_flags & ~flags);
    GST_BUFFER_FLAG_SET(frame_.get(), flags & GST_BUFFER_FLAG_CORRUPTED);
    if (from == bytes) ++buffers_;
    if (filled_ < frame_bytes()) continue;
    if (const GstFlowReturn flow = finish(); flow != GST_FLOW_OK) return flow;
  }
  const GstClockTime pts = GST_BUFFER_PTS(buffer);
  const bool timed = GST_CLOCK_TIME_IS_VALID(pts) && GST_CLOCK_TIME_IS_VALID(duration);
  due_ = timed ? pts + duration : GST_CLOCK_TIME_NONE;
  return GST_FLOW_OK;
}

bool Gather::breaks_at(GstBuffer* buffer) const noexcept {
  if (GST_BUFFER_IS_DISCONT(buffer) || retunes(buffer, frame_.get())) return true;
  const GstClockTime pts = GST_BUFFER_PTS(buffer);
  if (!GST_CLOCK_TIME_IS_VALID(due_) || !GST_CLOCK_TIME_IS_VALID(pts)) return false;
  return (pts > due_ ? pts - due_ : due_ - pts) > tolerance;
}

GstClockTime Gather::duration_of(GstBuffer* buffer, std::size_t bytes) const noexcept {
  if (GST_BUFFER_DURATION_IS_VALID(buffer)) return GST_BUFFER_DURATION(buffer);
  return rate_ != 0 ? gst_util_uint64_scale(bytes / unit_, GST_SECOND, rate_) : GST_CLOCK_TIME_NONE;
}

std::unique_ptr<FrameMemory> Gather::lend_by(Lender& lender, std::size_t bytes, std::size_t align) {
  // Another thread than the one that brings the buffers may be ahead of them, and must not wait for the lock.
  const std::thread::id upstream = lender.upstream;
  if (upstream != std::thread::id() && upstream != std::this_thread::get_id()) return nullptr;
  const StreamLock lock(lender.pad.get());
  return lender.gather != nullptr ? lender.gather->lend(bytes, align) : nullptr;
}

/// Part of the open slot, or of a new one, for upstream. Null: it is to take system memory.
std::unique_ptr<FrameMemory> Gather::lend(std::size_t bytes, std::size_t align) {
  if (!gathers() || !is_in_order_ || filled_ % align != 0 || bytes > frame_bytes() - filled_) return nullptr;
  try {
    if (!slot_) open_slot(SinkCore::Writer::upstream);
    // Its parts have it, too.
    if (!slot_ || GST_MINI_OBJECT_REFCOUNT_VALUE(slot_.get()) != 1) return nullptr;
    std::unique_ptr<FrameMemory> part = core_.lend(slot_.get(), filled_, bytes);
    is_lent_ = part != nullptr && !part->is_host();
    return part;
  } catch (const std::exception& error) {
    post_error(element_, error);
    return nullptr;
  }
}

/// What `buffer` has, where that lies behind what is in the slot; else null.
GstMemory* Gather::part_in_place(GstBuffer* buffer) const {
  GstMemory* memory = gst_buffer_n_memory(buffer) == 1 ? gst_buffer_peek_memory(buffer, 0) : nullptr;
  const FrameMemory* part = frame_memory(memory);
  return memory != nullptr && part != nullptr && memory->offset == 0 && part->is_part_of(slot_.get(), filled_)
             ? memory
             : nullptr;
}

/// Another buffer comes than what was lent. Where that is still out, upstream may write it: the slot is left to it.
GstFlowReturn Gather::pass_by_part() {
  is_lent_ = false;
  if (GST_MINI_OBJECT_REFCOUNT_VALUE(slot_.get()) == 1) return GST_FLOW_OK;  // dropped
  GST_DEBUG_OBJECT(element_, "a buffer overtook one that was lent: parts of slots are lent no more");
  is_in_order_ = false;
  if (frame_) return finish();
  slot_.reset();
  return GST_FLOW_OK;
}

/// No slot where there is none to be had.
void Gather::open_slot(SinkCore::Writer writer) {
  std::unique_ptr<FrameMemory> slot;
  const auto stopped = [this] { return GST_PAD_IS_FLUSHING(pad_) != 0; };
  (void)core_.acquire(frame_bytes(), slot, stopped, SinkCore::Patience::waits, writer);
  if (stopped()) return;
  if (!slot && writer == SinkCore::Writer::element) slot = std::make_unique<FrameMemory>(frame_bytes());
  if (!slot) return;
  (void)slot->map(GST_MAP_WRITE);
  slot_.reset(memory_new(wrapping_allocator(), std::move(slot), frame_bytes(), GstMemoryFlags{}));
}

/// A frame that begins with byte `from` of `first`.
GstFlowReturn Gather::begin(GstBuffer* first, std::size_t from, GstClockTime duration) {
  if (!slot_) open_slot(SinkCore::Writer::element);
  if (!slot_) return GST_FLOW_FLUSHING;

  frame_.reset(gst_buffer_new());
  gst_buffer_copy_into(frame_.get(), first, copy_all_but_memory, 0, static_cast<gsize>(-1));
  if (GstAudioMeta* meta = gst_buffer_get_audio_meta(frame_.get())) {
    gst_buffer_remove_meta(frame_.get(), &meta->meta);  // it counts the samples
  }
  if (from != 0) {
    drop_annotations(frame_.get());  // the frame before has them
    GST_BUFFER_FLAG_UNSET(frame_.get(), first_flags);
    GST_BUFFER_DTS(frame_.get()) = GST_CLOCK_TIME_NONE;
    const std::size_t bytes = gst_buffer_get_size(first);
    GST_BUFFER_OFFSET(frame_.get()) = offset_at(first, from, bytes);
    if (GST_CLOCK_TIME_IS_VALID(duration)) {
      const GstClockTime later = gst_util_uint64_scale(duration, from, bytes);
      if (GST_BUFFER_PTS_IS_VALID(first)) GST_BUFFER_PTS(frame_.get()) += later;
      move_reference_times(frame_.get(), static_cast<GstClockTimeDiff>(later));
    }
  }
  GST_BUFFER_DURATION(frame_.get()) = 0;
  set_alarm(++number_);
  return GST_FLOW_OK;
}

void Gather::set_alarm(std::uint64_t number) {
  if (limit_ == 0) return;
  struct Due {
    Gather* gather;
    std::uint64_t number;
  };
  const bool rings = alarm_.set(limit_, element_, [this, number](GstElement* element) {
    // In a thread of its own: the frame may have to wait for a slot, and the clock's serves others.
    gst_element_call_async(
        element,
        [](GstElement* /*element*/, gpointer data) {
          const auto [gather, due] = *static_cast<Due*>(data);
          const StreamLock lock(gather->pad_);
          if (gather->number_ == due && GST_PAD_IS_FLUSHING(gather->pad_) == 0) (void)gather->finish();
        },
        new Due{this, number}, [](gpointer data) { delete static_cast<Due*>(data); });
  });
  if (!rings) {
    throw no_thread("gather-time, in GStreamer's clock",
                    std::make_error_code(std::errc::resource_unavailable_try_again));
  }
}

GstFlowReturn Gather::finish() {
  if (!frame_) return GST_FLOW_OK;
  alarm_.stop();
  FrameMemory& slot = *frame_memory(slot_.get());
  slot.unmap();
  (void)slot.take_time_mapped();  // which is that of upstream
  core_.count_gathered(std::exchange(buffers_, 0));
  move_reference_times(frame_.get(), 0);  // its duration is known now
  GST_LOG_OBJECT(element_, "%zu bytes make a frame", filled_);
  gst_memory_resize(slot_.get(), 0, std::exchange(filled_, 0));
  is_lent_ = false;
  gst_buffer_append_memory(frame_.get(), slot_.release());
  return hand_on_(frame_.release());
}

void Gather::drop() {
  alarm_.stop();
  slot_.reset();
  frame_.reset();
  filled_ = 0;
  is_lent_ = false;
  is_in_order_ = true;
  lender_->upstream = std::thread::id();
  buffers_ = 0;
  due_ = GST_CLOCK_TIME_NONE;
}

}  // namespace gpumap::gst
