// SPDX-License-Identifier: MIT
#include "gst/link/inlet.hpp"

#include <unistd.h>

#include <chrono>
#include <functional>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/error.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

namespace gpumap::gst {

using namespace std::chrono_literals;

namespace {

GstClockTime gst_time(std::int64_t time) {
  return time < 0 ? GST_CLOCK_TIME_NONE : static_cast<GstClockTime>(time);
}

/// Times, flags and layout of a frame, without memory, as a gpumapsink hands it to a gpumapsrc.
GstBuffer* make_carrier(const FrameInfo& info, const std::optional<VideoLayout>& layout) {
  GstBuffer* carrier = gst_buffer_new();
  GST_BUFFER_PTS(carrier) = gst_time(info.pts);
  GST_BUFFER_DTS(carrier) = gst_time(info.dts);
  GST_BUFFER_DURATION(carrier) = gst_time(info.duration);
  GST_BUFFER_OFFSET(carrier) = info.offset;
  GST_BUFFER_OFFSET_END(carrier) = info.offset_end;
  constexpr std::uint32_t of_frames = GST_BUFFER_FLAG_LIVE | GST_BUFFER_FLAG_DISCONT | GST_BUFFER_FLAG_RESYNC |
                                      GST_BUFFER_FLAG_CORRUPTED | GST_BUFFER_FLAG_MARKER | GST_BUFFER_FLAG_HEADER |
                                      GST_BUFFER_FLAG_GAP | GST_BUFFER_FLAG_DROPPABLE | GST_BUFFER_FLAG_DELTA_UNIT |
                                      GST_VIDEO_BUFFER_FLAG_INTERLACED | GST_VIDEO_BUFFER_FLAG_TFF |
                                      GST_VIDEO_BUFFER_FLAG_RFF | GST_VIDEO_BUFFER_FLAG_ONEFIELD;
  GST_BUFFER_FLAG_SET(carrier, info.flags & of_frames);
  if (layout) add_layout(carrier, *layout, info.bytes);
  return carrier;
}

}  // namespace

Inlet::Inlet(GstElement* src, std::shared_ptr<Channel> channel, InletSettings settings)
    : src_(src), channel_(std::move(channel)), settings_(std::move(settings)), thread_([this] { run(); }) {}

Inlet::~Inlet() {
  stopping_ = true;
  thread_.join();
  channel_->detach_sink(false, 0);  // what is queued goes
}

void Inlet::push(GstEvent* event) {
  while (!stopping_ && !channel_->push_event(event)) std::this_thread::sleep_for(1ms);
  gst_event_unref(event);
}

void Inlet::read(std::span<const std::byte> text) {
  if (read_layout(text, layout_)) return;
  GstEvent* event = event_of(text);
  if (event == nullptr) {
    GST_WARNING_OBJECT(src_, "the producer sent an event that is not understood: left out");
    return;
  }
  if (GST_EVENT_TYPE(event) == GST_EVENT_EOS) ended_ = true;
  if (GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START) ended_ = false;
  push(event);
}

/// False: it is not to be connected again.
bool Inlet::follow(LinkConsumer& consumer) {
  const auto ring = std::make_shared<ChannelRing>(consumer.ring(), frames_, nullptr);
  channel_->push_ring(ring);
  layout_.reset();
  LinkFrame frame;
  // Made once: of a lambda each frame would make one anew, on the heap.
  const std::function<void(std::uint32_t)> before = [&](std::uint32_t slot) {
    ring->put(slot, make_carrier(frame.info, layout_));
  };
  for (LinkNext next = LinkNext::timeout; !stopping_ && next != LinkNext::closed;) {
    next = consumer.pass(frame, before, Clock::now() + 50ms);
    if (next == LinkNext::message) read(frame.message);
  }
  frames_ += consumer.ring()->published();
  GST_INFO_OBJECT(src_, "%s is closed: %s", settings_.path.c_str(), consumer.why().c_str());
  return !stopping_ && !ended_ && settings_.reconnect;
}

void Inlet::run() {
  try {
    for (bool again = true; again;) {
      LinkConsumerOptions options;
      options.path = settings_.path;
      gchar* name = gst_object_get_name(GST_OBJECT_CAST(src_));
      options.name = std::string(name).substr(0, 50);
      g_free(name);
      options.leak = settings_.leak;
      options.spin = std::chrono::microseconds(settings_.busy_poll_us);
      options.patience = std::chrono::hours(24 * 365);
      options.cancel = &stopping_;
      again = follow(*LinkConsumer::connect(Device::open(), std::move(options)));
    }
    if (!stopping_ && !ended_) push(gst_event_new_eos());
  } catch (const std::exception& error) {
    if (!stopping_) post_error(src_, error);
  }
}

}  // namespace gpumap::gst
