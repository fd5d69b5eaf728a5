// SPDX-License-Identifier: MIT
// What goes through: times, events and frames, in their order.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/latency.hpp"
#include "gst/channel/frame_origin.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/link/meta_text.hpp"
#include "gst/link/outlet.hpp"
#include "gst/ptr.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

using namespace std::chrono_literals;

namespace {

/// Two clocks are read one after the other: a difference below this may be the time in between.
constexpr GstClockTimeDiff clock_error = 2 * GST_MSECOND;
/// While nothing changes: a clock drifts slowly.
constexpr auto between_looks = 10ms;

std::uint32_t key_of(Keeping keeping, std::size_t number = 0) {
  constexpr unsigned bits_of_number = 24;
  return static_cast<std::uint32_t>(keeping) << bits_of_number | static_cast<std::uint32_t>(number);
}
Keeping keeping_of_key(std::uint32_t key) {
  return static_cast<Keeping>(key >> 24U);
}

}  // namespace

/// A frame whose rows a client would look for elsewhere is no picture.
void Outlet::check_layouts(GstBuffer* carrier, std::uint64_t bytes) {
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta_filtered(carrier, &state, GST_VIDEO_META_API_TYPE)) {
    const VideoLayout layout = layout_of(*reinterpret_cast<const GstVideoMeta*>(meta));
    // What has no planes says nothing of them.
    if (layout.planes == 0 || (bytes == checked_bytes_ && layout == checked_layout_)) continue;
    if (!fits(layout, bytes)) {
      throw Error(ErrorCode::not_supported,
                  fmt::format("a frame of {} bytes with {} planes of {}x{} {}, the first at byte {} with rows {} bytes "
                              "apart, does not cross to other processes: these rows are not in it; put videoconvert "
                              "before the gpumapsink",
                              bytes, layout.planes, layout.width, layout.height,
                              gst_video_format_to_string(static_cast<GstVideoFormat>(layout.format)), layout.offset[0],
                              layout.stride[0]));
    }
    checked_layout_ = layout;
    checked_bytes_ = bytes;
  }
}

/// Clients are told when the base time changes, or the clock drifts away from the one that all processes have.
void Outlet::watch_time() {
  const Channel::SinkTime now = channel_->sink_time();
  const Deadline moment = Clock::now();
  if (time_ && time_->playing && now == sink_time_ && moment < next_look_) return;
  sink_time_ = now;
  next_look_ = moment + between_looks;
  if (is_stopping(sink_)) return;  // it will play no more: what is left is due when it always was
  // In this order: a pipeline that begins to play meanwhile has set its clock and its base time before.
  Channel::FarTime time;
  const bool settled = (now.playing && !is_changing_state(sink_)) || is_in_playing(sink_);
  const GstClockTime coming = coming_base_time(sink_);
  time.playing = settled || (GST_CLOCK_TIME_IS_VALID(coming) && coming != ended_base_);
  const Ptr<GstClock> clock(gst_element_get_clock(sink_));
  if (time.playing) {
    time.base = static_cast<GstClockTimeDiff>(settled ? base_time_of(sink_) : coming);
  } else {
    // Its running time will begin, or go on, when it plays, which is now, as far as is known.
    const Ptr<GstElement> pipeline(top_level(sink_));
    const GstClockTime stopped = gst_element_get_start_time(pipeline.get());
    if (GST_CLOCK_TIME_IS_VALID(stopped)) time.stopped = static_cast<GstClockTimeDiff>(stopped);
  }
  if (clock && !is_monotonic(clock.get())) {
    time.ahead = static_cast<GstClockTimeDiff>(gst_clock_get_time(clock.get())) - monotonic_ns();
  }
  if (time_ && std::llabs(time_->ahead - time.ahead) < clock_error) time.ahead = time_->ahead;
  if (time_ == time) return;
  time_ = time;
  send(text_of(time), gst::key_of(Keeping::time));
}

/// What overtakes the frames. Takes it; in the thread that sends it.
void Outlet::on_event(GstEvent* event) {
  const Ptr<GstEvent> owned(event);
  if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_STOP) {
    flush(event);
    return;
  }
  if (GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START) {
    flushing_ = true;
    channel_->set_src_flushing(true);
  }
  const LinkText text = text_of(event);
  if (text.empty()) return;
  const bool flushes = GST_EVENT_TYPE(event) == GST_EVENT_FLUSH_START;
  if (GST_EVENT_TYPE(event) == GST_EVENT_CUSTOM_DOWNSTREAM_OOB) give_time_to_read();
  if (const auto server = this->server())
    server->send_at_once(text, flushes ? LinkServer::Unread::send : LinkServer::Unread::skip);
}

/// The thread that sends what overtakes may be the application's. It waits for a moment, once, and clients that read
/// nothing, as those that are paused, go without.
void Outlet::give_time_to_read() {
  constexpr auto longest = 1s;
  const Deadline end = gave_time_ ? Deadline{} : Clock::now() + longest;
  do {
    // Not held for long: a change of ring waits for it.
    const auto server = this->server();
    if (!server || server->wait_until_read(std::min<Deadline>(end, Clock::now() + 10ms))) {
      gave_time_ = false;
      return;
    }
  } while (!stopping_ && !flushing_ && Clock::now() < end);
  if (gave_time_.exchange(true)) return;
  GST_WARNING_OBJECT(sink_, "events out of band do not reach clients that have read nothing for 1 s");
}

void Outlet::forget(std::uint32_t key, LinkServer* server) {
  kept_.erase(key);
  if (server != nullptr) server->forget(key);
}

/// The end of a flush: what was on its way is gone, here and at the clients.
void Outlet::flush(GstEvent* event) {
  flushing_ = true;
  channel_->set_src_flushing(true);
  const std::lock_guard lock(step_);
  ++flushes_;
  ended_base_ = base_time_of(sink_);
  channel_->forget_held();
  const auto server = this->server();
  // As on a pad.
  for (const Keeping over : {Keeping::segment, Keeping::end}) forget(gst::key_of(over), server.get());
  if (server) {
    server->withdraw_all();
    server->send(text_of(event));
  }
  {
    const std::lock_guard ending(mutex_);
    ended_ = false;
  }
  channel_->set_src_flushing(false);
  flushing_ = false;
}

/// A client that may miss nothing and reads nothing, as one that is paused, is waited for, as for a slot: gaps without
/// an end are no frames, which wait by themselves.
void Outlet::wait_until_read() {
  Deadline began = Clock::now();
  while (!stopping_ && !flushing_ && !server_->wait_until_read(Clock::now() + 100ms)) {
    if (!is_in_playing(sink_)) began = Clock::now();
    const auto limit = settings_.stall_limit;
    if (limit.count() > 0 && Clock::now() - began >= limit) server_->end_unread();
  }
}

void Outlet::send(const LinkText& text, std::uint32_t key) {
  if (key != 0) kept_[key] = text;
  if (server_) {
    wait_until_read();
    server_->send(text, key);
  } else if (!moving_.empty() && key == 0) {
    owed_.push_back(text);
  }
}

/// 0: it is not kept.
std::uint32_t Outlet::key_of(GstEvent* event) {
  const Keeping keeping = keeping_of(event);
  if (keeping != Keeping::tags && keeping != Keeping::custom) return gst::key_of(keeping);
  // One of each name holds, as on a pad.
  const std::string name = gst_structure_get_name(gst_event_get_structure(event));
  const auto number = static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
  if (number == names_.size()) names_.push_back(name);
  return gst::key_of(keeping, number);
}

void Outlet::forget_last_stream() {
  for (auto at = kept_.begin(); at != kept_.end();) {
    if (outlives_stream(keeping_of_key(at->first))) {
      ++at;
      continue;
    }
    if (server_) server_->forget(at->first);
    at = kept_.erase(at);
  }
  names_.clear();
}

/// A stream may end without a frame, or begin with a gap: the sink has made a ring for it, and clients that wait at the
/// path come now. False: a flush came in between, and the event is from before.
bool Outlet::serve_without_frame(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t flushes = flushes_;
  const auto ring = channel_->src_ring();
  if (server_ || failed_ || !ring) return true;
  serve(ring, lock);
  wait_for_client();
  return !flushing_ && flushes == flushes_;
}

void Outlet::wait_for_client() {
  while (settings_.wait_for_connection && !stopping_ && !flushing_ && !server_->wait_for_client(Clock::now() + 100ms)) {
  }
}

void Outlet::forward(GstEvent* event, std::unique_lock<std::mutex>& lock) {
  const Ptr<GstEvent> owned(event);
  if (GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START) forget_last_stream();
  const Keeping keeping = keeping_of(event);
  if (keeping == Keeping::segment) forget(gst::key_of(Keeping::end), server_.get());  // of the last one, which was done
  const bool needs_clients = (keeping == Keeping::none && crosses(GST_EVENT_TYPE(event))) || keeping == Keeping::end;
  if (needs_clients && !serve_without_frame(lock)) return;
  unsigned left_out = 0;
  const LinkText text = text_of(event, &left_out);
  if (text.empty() && GST_EVENT_TYPE(event) == GST_EVENT_CAPS) {
    throw Error(
        ErrorCode::not_supported,
        fmt::format("caps that cannot be written in {} bytes do not cross to other processes: take large fields "
                    "out of them, or fields that are pointers or objects",
                    max_link_message));
  }
  if (text.empty() || left_out > 0) {
    // Decoders tell of an object with each stream, which is this process's own.
    const bool usual = GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START && !text.empty();
    GST_CAT_LEVEL_LOG(GST_CAT_DEFAULT, usual ? GST_LEVEL_INFO : GST_LEVEL_WARNING, sink_,
                      "%s%s does not cross to other processes: %u fields cannot be written in %zu bytes",
                      text.empty() ? "" : "some of ", GST_EVENT_TYPE_NAME(event), left_out, max_link_message);
  }
  if (!text.empty()) send(text, key_of(event));
  if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) end();
}

void Outlet::forward(Channel::Next& frame, std::unique_lock<std::mutex>& lock) {
  if (failed_) return;
  const std::uint64_t flushes = flushes_;
  if (frame.lease.ring() != ring_.get()) serve(channel_->src_ring(), lock);
  if (flushing_ || flushes != flushes_) return;  // it is from before
  if (frame.carrier) check_layouts(frame.carrier.get(), frame.lease.info().bytes);
  const auto layout = frame.carrier ? layout_of(frame.carrier.get()) : std::nullopt;
  if (layout != layout_) {
    layout_ = layout;
    send(text_of(layout), gst::key_of(Keeping::layout));
  }
  const MetaText metas = frame.carrier ? text_of_metas(frame.carrier.get(), max_link_note) : MetaText();
  if (metas.left_out != 0) {
    GST_DEBUG_OBJECT(
        sink_,
        "%u metas of a frame do not cross, or not all of them: they cannot be written, or take more than %zu bytes",
        metas.left_out, max_link_note);
  }
  wait_for_client();
  if (!flushing_) server_->show(std::move(frame.lease), metas.text);
}

}  // namespace gpumap::gst
