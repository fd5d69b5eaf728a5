// SPDX-License-Identifier: MIT
// How a gpumapsink comes by its rings: one for the frames of the moment, a larger one where frames grow.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "error.hpp"
#include "gpumap/error.hpp"
#include "sink_core.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

using namespace std::chrono_literals;

void SinkCore::provision(std::size_t bytes) {
  // The pool's thread and the element's may both find the slots too small: one ring is made, not two.
  const std::lock_guard one_at_a_time(provisioning_);
  std::weak_ptr<Ring> old;
  std::optional<Transport> replaced;
  {
    const std::lock_guard lock(mutex_);
    if (lane_ && lane_->ring().slot_bytes() >= bytes) return;
    if (!channel_ || flushing_) return;
    if (lane_) {
      const RingCounters counters = lane_->ring().counters();
      gone_.dropped += counters.dropped;
      gone_.producer_waits += counters.producer_waits;
      old = lane_->shared_ring();
      replaced = lane_->ring().transport();
    }
  }
  if (settings_.slot_bytes != 0 && bytes > settings_.slot_bytes) {
    throw Error(ErrorCode::invalid, fmt::format("a frame of {} bytes does not fit slot-size {}: set slot-size to {} or "
                                                "more, or to 0 to take it from the caps",
                                                bytes, settings_.slot_bytes, bytes));
  }
  std::shared_ptr<Ring> ring = make_ring(bytes, old, replaced);
  if (!ring) return;
  report_fallback(*ring);
  auto made = std::make_shared<Lane>(std::move(ring));
  const std::lock_guard lock(mutex_);
  // Making it took time: after a stop in between, the next start must find neither lane nor frames of this one.
  if (flushing_) return;
  GST_INFO("channel %s: ring of %u slots of %zu bytes on %s, transport %s", settings_.channel.c_str(),
           made->ring().slots(), made->ring().slot_bytes(), device_->info().name.c_str(),
           to_string(made->ring().transport()).data());
  transport_ = made->ring().transport();
  channel_->push_lane(made);
  lane_ = std::move(made);
}

std::shared_ptr<Ring> SinkCore::make_ring(std::size_t bytes, const std::weak_ptr<Ring>& old,
                                          std::optional<Transport> replaced) {
  RingOptions options;
  options.slots = settings_.slots;
  options.slot_bytes = std::max<std::size_t>({bytes, settings_.slot_bytes, 1});
  options.spin = std::chrono::microseconds(settings_.busy_poll_us);
  options.transport = settings_.transport;
  // A ring in the window makes room for the next one: auto gives the window up only when that was not enough.
  if (replaced == Transport::bar && !options.transport) options.transport = Transport::bar;

  Deadline patience = Clock::now() + 2s;
  for (;;) {
    try {
      return Ring::create(device_, options);
    } catch (const Error& error) {
      // Where memory is short the ring before this one may be in the way: it goes once its last frame has been read.
      if (error.code() != ErrorCode::no_memory || !replaced) throw;
      if (Clock::now() > patience) {
        if (options.transport == settings_.transport) throw;
        options.transport = settings_.transport;
        continue;
      }
      // Once no one has it, its memory is free a moment later.
      if (old.expired()) patience = std::min(patience, Clock::now() + 100ms);
      {
        const std::lock_guard lock(mutex_);
        if (flushing_) return nullptr;
        if (lane_) channel_->retire_lane();
        lane_.reset();
      }
      std::this_thread::sleep_for(1ms);
    }
  }
}

void SinkCore::report_fallback(const Ring& ring) const {
  GstElement* sink = ring.fallback_reason().empty() ? nullptr : channel_->sink();
  if (sink == nullptr) return;
  post_warning(sink, ring.fallback_reason());
  gst_object_unref(sink);
}

}  // namespace gpumap::gst
